"""The Hessian of the Lagrangian, H = Hess f(x) - g''(x) + sum_j q_j Hess c_j(x), in parts.

Nothing but products H e is ever computed, many at once in one pass over the data. From them come
the columns that a Newton step needs; beyond DENSE of them no matrix is formed.

Of many rows only some are taken for H. What they miss is made up for by secants: a step s from a
pair to the next shows y = H s with gradients over all rows, and the symmetric matrix of rank one

    r r' / (r's),    r = y - H s                                          (SR1)

added to H makes that equation hold.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp._base import keys
from mossp._base.programs import compiled
from mossp._base.types import Vector
from mossp.newton.meter import Meter
from mossp.newton.residual import KKT, Evaluation, row_count
from mossp.oracles import Oracles

# The order beyond which no matrix is formed: at 2,000 its eigenvalues take seconds, and a copy
# of it 32 MB.
DENSE = 2000
# Rows for the Hessian: a mean over 2^16 of them is off by 2^-8 of a standard deviation, and secants
# do the rest. Fewer than MANY times as many are all taken, since little would be saved.
SOME_ROWS, MANY = 2**16, 4
# Products formed in one pass: enough of them to make a pass pay, few enough to fit in memory. Their
# number is a power of two from FEWEST_COLUMNS on, so that few programs are compiled.
COLUMNS, FEWEST_COLUMNS = 256, 32
# A secant with r's below this part of ||r|| ||s|| is left out: the quotient would be rounding, or
# would make H less convex than it is.
SECANT = 1e-8
AT_ONCE = 2**23  # numbers in vectors of the length of x that are formed side by side
# Powers of H for its norm at most, and the growth by one of them below which there are no more: a
# length of steps follows from it, for which half will do.
POWERS, GROWN = 6, 1.2
# From so many entries on a matrix is used again while steps with it lead on: with fewer, to form it
# anew takes no longer than the pass over the data that shows how far a step has led.
WORTH_KEEPING = 32
TINY = 1e-300  # in place of 0 in a denominator


class Block(NamedTuple):
    """H on the entries S, and what a move of the other entries adds there."""

    S: np.ndarray
    H: np.ndarray
    pull: np.ndarray


class Columns(NamedTuple):
    """Columns of H that are known at one pair."""

    pair: tuple[bytes, bytes]
    known: np.ndarray  # their numbers, in the order in which they were formed
    H: np.ndarray


class Earlier(NamedTuple):
    """Hess f of a linear model on some entries, at the last pair where it was formed."""

    S: np.ndarray
    H: np.ndarray


class Secants(NamedTuple):
    """Corrections of H on the entries S: the sum of r r' over the rows."""

    S: np.ndarray
    rows: tuple[np.ndarray, ...]


class Hessian:
    """What is known of H along one run of Newton's method."""

    def __init__(self, kkt: KKT, meter: Meter) -> None:
        self.kkt, self.meter = kkt, meter
        self.linear, self.terms = kkt.linear, kkt.terms
        self.oracles = kkt.oracles if self.linear is not None else thinned(kkt.oracles)
        self.rows = row_count(self.oracles)
        self.columns_known: Columns | None = None
        self.earlier: Earlier | None = None
        self.again = False  # whether the matrix of an earlier pair serves
        self.settles = False  # whether the last step has left next to nothing
        self.secants = Secants(np.zeros(0, int), ())
        self.bend_known: tuple[tuple[bytes, bytes], np.ndarray | None] | None = None

    @property
    def thinned(self) -> bool:
        """Whether only some of the rows are taken."""
        return self.oracles is not self.kkt.oracles

    def products(self, at: Evaluation, E: np.ndarray) -> np.ndarray:
        """H e for the rows e of E."""
        pair = [np.asarray(a, self.kkt.dtype) for a in (at.x, at.q)]
        if self.linear is not None:
            self.meter.pay(products=len(E) * self.rows)
            H = self.linear.products(at.x, E) + self.beside(at, E)
            return H if self.terms is None else H + self.terms.products(at.x, at.q, E)

        def some(rows: np.ndarray, count: int) -> Any:
            self.meter.pay(products=count * self.rows)
            return _products(self.oracles, *pair, rows)

        return in_parts(some, E, self.kkt.dtype)

    def norm(self, at: Evaluation) -> float:
        """||H||, or much of it: by the power method, or restricted to a random subspace.

        Products of a linear model are cheap one by one, but where all of H comes at once anyway;
        others come many in one pass.
        """
        n = len(at.x)
        rng = keys.generator(0, keys.Purpose.POLISH)
        if self.linear is not None:
            e, L = rng.standard_normal((1, n)), 0.0
            product: Callable[[np.ndarray], np.ndarray] = functools.partial(self.products, at)
            if self.linear.forms_whole and is_dense(n):  # which the first step needs in any case
                H = self.square(at, np.arange(n))
                product = lambda e: e @ H  # noqa: E731
            for _ in range(POWERS):
                e = product(e / max(float(np.linalg.norm(e)), TINY))
                before, L = L, max(L, float(np.linalg.norm(e)))
                if GROWN * before >= L:
                    break
            return L
        E = np.linalg.qr(rng.standard_normal((n, min(FEWEST_COLUMNS, n))))[0].T
        return float(np.linalg.norm(self.products(at, E), 2))

    def beside(self, at: Evaluation, E: np.ndarray) -> np.ndarray:
        """What -g adds to H e for the rows e of E, and constraints that are no means of rows."""
        reg = self.kkt.regularizer
        added = np.zeros_like(E) if reg.convex else -reg.curvature_g(at.x, E)
        return added + self.bends(at, E)

    def beside_on(self, at: Evaluation, S: np.ndarray) -> np.ndarray | float:
        """The same on the entries S, as a matrix, or the number 0 where there is nothing."""
        if self.kkt.regularizer.convex and not self.kkt.oracles.m:
            return 0.0
        return self.beside(at, unit_rows(S, len(at.x)))[:, S]

    def bends(self, at: Evaluation, E: np.ndarray) -> np.ndarray:
        """What constraints add to H e that are no means of predictions."""
        oracles, q = self.oracles, at.q
        if self.terms is not None:
            if self.terms.others is None:
                return np.zeros_like(E)
            oracles, q = self.terms.others, q[self.terms.left]
        if not oracles.m or not q.any():
            return np.zeros_like(E)
        pair = [np.asarray(a, self.kkt.dtype) for a in (at.x, q)]
        diagonal = self.diagonal_bend(oracles, *pair)
        if diagonal is not None:
            return E * diagonal
        # Each row is as long as x, entries that are left out included.
        most = max(1, AT_ONCE // oracles.structure.whole_size)
        return in_parts(
            lambda rows, _: _bends(oracles, *pair, rows), E, self.kkt.dtype, whole=True, most=most
        )

    def diagonal_bend(self, oracles: Oracles, x: np.ndarray, q: np.ndarray) -> np.ndarray | None:
        """The diagonal of B = sum_j q_j Hess c_j(x) if it has no other entries, else None.

        B e = diag(B 1) e for a random e only then: those of a matrix with others are a null set.
        """
        pair = x.tobytes(), q.tobytes()
        if self.bend_known is None or self.bend_known[0] != pair:
            random = keys.generator(0, keys.Purpose.POLISH).standard_normal(len(x))
            probes = np.array([np.ones(len(x)), random], self.kkt.dtype)
            diagonal, along = np.asarray(_bends(oracles, x, q, probes), np.float64)
            off = np.abs(along - diagonal * probes[1]).max(initial=0.0)
            rounding = float(np.finfo(self.kkt.dtype).eps) ** 0.75 * np.abs(along).max(initial=0.0)
            self.bend_known = pair, diagonal if off <= rounding else None
        return self.bend_known[1]

    def columns(self, at: Evaluation, S: np.ndarray) -> np.ndarray:
        """The columns S of H; those that are known at this pair are not formed again."""
        n, pair = len(at.x), (at.x.tobytes(), at.q.tobytes())
        if self.columns_known is None or self.columns_known.pair != pair:
            self.columns_known = Columns(pair, np.zeros(0, int), np.zeros((n, 0)))
        _, known, H = self.columns_known
        new = np.setdiff1d(S, known)
        if len(new):
            found = self.products(at, unit_rows(new, n)).T
            known, H = np.append(known, new), np.concatenate([H, found], axis=1)
            self.columns_known = Columns(pair, known, H)
        order = np.argsort(known)
        return H[:, order[np.searchsorted(known, S, sorter=order)]]

    def block(self, at: Evaluation, S: np.ndarray, fixed: np.ndarray) -> Block:
        """H on S, where the other entries move by `fixed`."""
        if self.linear is not None:
            moved = np.union1d(S, np.flatnonzero(fixed))
            here, H = np.searchsorted(moved, S), self.square(at, moved)
            return Block(S, H[np.ix_(here, here)], H[here] @ fixed[moved])
        if is_dense(len(at.x)):  # the columns of what moves will be needed again
            moved = np.union1d(S, np.flatnonzero(fixed))
            H = self.columns(at, moved)[S]
            H, pull = H[:, np.searchsorted(moved, S)], H @ fixed[moved]
        else:
            H, pull = self.columns(at, S)[S], np.zeros(len(S))
            if fixed.any():
                pull = self.products(at, fixed[None])[0, S]
        return Block(S, (H + H.T) / 2, pull)

    def lasts(self, S: np.ndarray) -> bool:
        """Whether there is a matrix of an earlier pair on S, and it was dear."""
        if self.earlier is None or not self.settles or len(S) < WORTH_KEEPING:
            return False
        return bool(np.isin(S, self.earlier.S).all())

    def square(self, at: Evaluation, S: np.ndarray) -> np.ndarray:
        """H on S for a linear model; what is known at this pair serves smaller S as well."""
        assert self.linear is not None
        if self.again and self.earlier is not None and np.isin(S, self.earlier.S).all():
            here = np.searchsorted(self.earlier.S, S)
            return self.earlier.H[np.ix_(here, here)] + self.beside_on(at, S)
        pair = at.x.tobytes(), at.q.tobytes()
        if self.columns_known is not None and self.columns_known.pair == pair:
            _, known, H = self.columns_known
            if np.isin(S, known).all():
                here = np.searchsorted(known, S)
                return H[np.ix_(here, here)]
            S, wanted = np.union1d(S, known), S
        else:
            wanted = S
        self.meter.pay(products=len(S) * self.rows)
        H = self.linear.block(at.x, S)
        if not self.kkt.oracles.m:
            self.earlier = Earlier(S, H)
        H = H + self.beside_on(at, S)
        if self.terms is not None:
            H = H + self.terms.block(at.x, at.q, S)
        self.columns_known = Columns(pair, S, (H + H.T) / 2)
        return self.square(at, wanted)

    def corrected(self, block: Block) -> Block:
        """With the secants of earlier steps over the same entries; others are forgotten."""
        if not np.array_equal(self.secants.S, block.S):
            self.secants = Secants(block.S, ())
        rows = self.secants.rows
        return block._replace(H=block.H + sum(np.outer(r, r) for r in rows)) if rows else block

    def learn(self, block: Block, at: Evaluation, after: Evaluation) -> None:
        """Add the secant of a full step, for which `block` was what was known."""
        S, H, pull = block
        s = (after.x - at.x)[S]
        y = (after.W - (after.q - at.q) @ after.J - at.W)[S]  # for the same multipliers
        r = y - H @ s - pull
        along = float(r @ s)
        if along > SECANT * np.linalg.norm(r) * np.linalg.norm(s):
            secant = r / np.sqrt(along)
            self.secants = self.secants._replace(rows=(*self.secants.rows, secant))


def is_dense(order: int) -> bool:
    """Whether a matrix of this order is formed."""
    return order <= DENSE


def thinned(oracles: Oracles) -> Oracles:
    """With means over some of the rows, where there are many."""
    every = (oracles.source, *oracles.others)
    fewer = tuple(s.thinned(SOME_ROWS) if (s.rows or 1) >= MANY * SOME_ROWS else s for s in every)
    if all(s is before for s, before in zip(fewer, every, strict=True)):
        return oracles
    change = lambda o: (o.source, o.others)  # noqa: E731
    return eqx.tree_at(change, oracles, (fewer[0], fewer[1:]))


def unit_rows(S: np.ndarray, n: int) -> np.ndarray:
    """The unit vectors e_i, i in S, as rows."""
    E = np.zeros((len(S), n))
    E[np.arange(len(S)), S] = 1.0
    return E


def in_parts(
    function: Callable[[Any, int], Any], E: np.ndarray, dtype: Any, whole: bool = False,
    most: int = COLUMNS,
) -> np.ndarray:  # fmt: skip
    """A function of the rows of E, applied to some of them at a time.

    Parameters
    ----------
    function : callable
        Called with an array of rows, filled up with rows of zeros, and how many of them count. The
        shapes that it is given are few, so that few programs are compiled.
    E : ndarray
        The rows.
    dtype : dtype
        What the rows are converted to.
    whole : bool
        Whether as many rows as there are columns may come: one shape then serves any number.
    most : int
        Rows at a time.
    """
    count = E.shape[1] if whole else len(E)
    width = min(COLUMNS, most, max(FEWEST_COLUMNS, 1 << max(count - 1, 0).bit_length()))
    parts = [np.zeros((0, E.shape[1]))]
    for first in range(0, len(E), width):
        rows = np.zeros((width, E.shape[1]), dtype)
        some = E[first : first + width]
        rows[: len(some)] = some
        parts.append(np.asarray(function(rows, len(some)), np.float64)[: len(some)])
    return np.concatenate(parts)


@compiled
def _bends(oracles: Oracles, x: Vector, q: Vector, E: Any) -> Any:
    """sum_j q_j Hess c_j(x) e for the rows e of E."""
    return jnp.nan_to_num(jax.vmap(lambda e: oracles.bend(x, q, e))(E))


@compiled
def _products(oracles: Oracles, x: Vector, q: Vector, E: Any) -> Any:
    """H e for the rows e of E."""
    H = _along(oracles, lambda x: -oracles.regularizer.subgradient_g(x), x, E)
    for source, slope in oracles.slopes(q):
        along = lambda batch, s=slope: _along(oracles, lambda x: s(x, batch), x, E)  # noqa: E731
        H = H + source.mean(along)
    return jnp.nan_to_num(H)


def _along(oracles: Oracles, function: Callable[[Vector], Vector], at: Vector, E: Any) -> Any:
    """The derivative of a function along the rows of E."""
    if oracles.large:  # one after the other: a program for many at once is larger still
        return jax.lax.map(lambda e: oracles.along(function, at, e), E)
    return jax.vmap(lambda e: oracles.along(function, at, e))(E)
