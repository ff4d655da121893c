"""Means over rows that depend on x by predictions: c_j(x) = mean_i phi_j(a_i'B, s, row_i).

B and s hold entries of x: the predictions of a row are z_i = a_i'B, and s are entries that are used
in another way (an intercept). With u_i = (z_i, s), and T_p the matrix that makes the p-th entry of
u from x, which is A at some places, or a column of ones,

    grad c_j = sum_p T_p' dphi_j/du_p / N
    Hess q'c = sum_{p, p'} T_p' diag(d^2 (q'phi) / du_p du_p') T_p' / N

by products on the host, in place of one pass over the data a column. Only phi, a function of few
numbers a row, is differentiated. `newton.predictions` finds phi in any function that a user wrote.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.programs import ProgramSet, compiled
from mossp._base.structure import Structure
from mossp._base.types import Vector
from mossp.newton.predictions import Cut, cut, is_sparse_rows
from mossp.newton.table import Table, table
from mossp.oracles import Oracles
from mossp.regularizers import Zero
from mossp.terms import Picked

LOSS = -1  # the number of f among the means; constraints have the numbers of their terms
# Numbers in the derivatives of all rows, beyond which there are too many predictions or entries.
MOST_CURVATURES = 2**24
SMALLEST = 1e-290  # curvature below it is none
LENGTHS = 8  # of the tables of distinct rows: eighths of the data
POINTS = (1.0, 1e-3)  # sizes of points at which it is compared: one must be finite


class At(NamedTuple):
    """What is known at one point."""

    x: bytes
    z: np.ndarray  # predictions, one row each, filled up as the data on the device are
    slopes: np.ndarray  # dphi_j / du: (rows, m, P + s), as often as the row counts
    values: np.ndarray
    J: np.ndarray


class LinearMean:
    """The mean, its Jacobian, and the Hessian of q'c, with all rows."""

    def __init__(self, oracles: Oracles, number: int, found: Cut, table: Table, N: int) -> None:
        self.oracles, self.number, self.cut, self.N = bare(oracles), number, found, N
        self.places, self.direct, self.table = found.places, found.direct, table
        self.C = 1  # entries of x belong together in no other way
        structure = oracles.structure
        self.n, self.whole = structure.size, structure.whole_size
        # Where the vector has only some entries of x (a working set), these alone are multiplied.
        self.entries = np.arange(self.whole)
        if structure.places is not None:
            self.entries = np.asarray(structure.places)
            here = np.isin(self.places, self.entries).any(axis=1)
            self.table, self.places = table.only(np.flatnonzero(here)), self.places[here]
        position = np.full(self.whole, -1)
        position[self.entries] = np.arange(self.n)
        self.where, self.at_direct = position[self.places], position[self.direct]
        # How often each row counts. Those that fill up the data on the device do not; and where
        # phi looks at nothing but predictions, a row that occurs several times is taken once.
        counts, padded = np.ones(N, self.table.A.dtype), _padded(oracles, number)
        if self.table.rows is not None and not found.rest:
            counts = self.table.rows.summed(counts)
            self.table = dataclasses.replace(self.table, rows=None)
            # Of a few lengths only, so that other data of this size share programs.
            padded = -(-len(counts) * LENGTHS // padded) * -(-padded // LENGTHS)
        self.rows = len(counts)
        self.counts = np.pad(counts, (0, padded - self.rows))
        self.known: At | None = None
        self.curved: tuple[bytes, bytes, np.ndarray] | None = None

    # The mean -------------------------------------------------------------------------------

    def values_and_jacobian(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(c, J), J with one row an entry of c."""
        at = self._at(x)
        return at.values, at.J

    def first_order(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """(f, grad f), for a mean with one value."""
        at = self._at(x)
        return float(at.values[0]), at.J[0]

    @property
    def forms_whole(self) -> bool:
        return False

    def value(self, x: np.ndarray) -> float:
        """f, for a mean with one value."""
        return self.first_order(x)[0]

    def _at(self, x: np.ndarray) -> At:
        key = x.tobytes()
        if self.known is not None and self.known.x == key:
            return self.known
        dtype = self.table.A.dtype
        z = np.zeros((len(self.counts), self.cut.outputs), dtype)
        z[: self.rows] = self.table.times(self._gathered(x))
        found = _first(self.oracles, self.number, self._whole(x), z, self.counts)
        values, slopes = (np.asarray(a, np.float64) for a in found)
        slopes, m, P = slopes[: self.rows], len(values), self.cut.outputs
        # A column of the product for each of the m P.
        flat = slopes[:, :, :P].reshape(self.rows, m * P).astype(dtype, copy=False)
        product = np.asarray(self.table.transposed(flat), np.float64).reshape(-1, m, P)
        J = np.zeros((m, self.n))
        for p in range(P):
            inside = self.where[:, p] >= 0
            J[:, self.where[inside, p]] += product[inside, :, p].T
        inside = self.at_direct >= 0
        J[:, self.at_direct[inside]] += slopes[:, :, P:].sum(axis=0)[:, inside]
        self.known = At(key, z, slopes, values / self.N, J / self.N)
        return self.known

    # Its curvature --------------------------------------------------------------------------

    def products(self, x: np.ndarray, E: np.ndarray, q: np.ndarray | None = None) -> np.ndarray:
        """Hess q'c(x) e for the rows e of E."""
        D, P, found = self._curvatures(x, q), self.cut.outputs, np.zeros(E.shape)
        inside = self.at_direct >= 0
        for row, e in enumerate(E):
            s = np.where(inside, e[self.at_direct], 0.0)
            u = np.concatenate(
                [self.table.times(self._gathered(e)), np.broadcast_to(s, (self.rows, len(s)))],
                axis=1,
            )
            v = np.einsum("ipr,ir->ip", D, u)
            back = np.asarray(
                self.table.transposed(v[:, :P].astype(self.table.A.dtype, copy=False))
            )
            for p in range(P):
                here = self.where[:, p] >= 0
                found[row, self.where[here, p]] += back[here, p]
            found[row, self.at_direct[inside]] += v[:, P:].sum(axis=0)[inside]
        return found / self.N

    def block(self, x: np.ndarray, S: np.ndarray, q: np.ndarray | None = None) -> np.ndarray:
        """Hess q'c(x) on the entries S."""
        return self.sandwich(self._curvatures(x, q), S)

    def sandwich(self, D: np.ndarray, S: np.ndarray) -> np.ndarray:
        """sum_{p, p'} T_p' diag(D_pp') T_p' / N on the entries S."""
        P = self.cut.outputs
        order = np.full(self.n, -1)
        order[S] = np.arange(len(S))
        # For every entry of u: the columns of A, if it is a prediction, and where these are in S.
        columns, inside = [], []
        for p in range(P):
            where = np.where(self.where[:, p] >= 0, order[self.where[:, p]], -1)
            columns.append(np.flatnonzero(where >= 0))
            inside.append(where[where >= 0])
        alone = [int(order[k]) if k >= 0 else -1 for k in self.at_direct]
        H = np.zeros((len(S), len(S)))
        for p in range(P):
            for r in range(p + 1):
                same = np.array_equal(columns[p], columns[r])
                part = self.table.gram(D[:, p, r], columns[p], None if same else columns[r])
                H[np.ix_(inside[p], inside[r])] += part
                if p != r:
                    H[np.ix_(inside[r], inside[p])] += part.T
            for j, k in enumerate(alone):
                if k >= 0:
                    mixed = np.ascontiguousarray(D[:, p, P + j, None], self.table.A.dtype)
                    column = np.asarray(self.table.transposed(mixed))[columns[p], 0]
                    H[inside[p], k] += column
                    H[k, inside[p]] += column
        for i, k in enumerate(alone):
            for j, other in enumerate(alone):
                if k >= 0 and other >= 0:
                    H[k, other] += D[:, P + i, P + j].sum()
        return H / self.N

    def bounded(self, x: np.ndarray, S: np.ndarray, q: np.ndarray, kappa: float) -> np.ndarray:
        """A matrix above Hess q'c(x) on the entries S, in which no row bends down.

        D_i has its absolute value and, along the slope of q'phi_i, kappa times its length besides:
        no row alone asks its predictions to move by more than 1 / kappa.
        """
        D, at = self._curvatures(x, q), self._at(x)
        slopes = np.einsum("j,ijp->ip", q, at.slopes)
        if D.shape[1] == 1:
            return self.sandwich(np.abs(D) + kappa * np.abs(slopes)[:, :, None], S)
        if not np.isfinite(D).all():  # of a point, or of multipliers, that are not taken
            return np.full((len(S), len(S)), np.nan)
        D = absolute(D)
        # s s' / |s| by way of s / max |s|: the squares of small slopes would underflow.
        largest = np.maximum(np.abs(slopes).max(axis=1), np.finfo(float).tiny)
        s = slopes / largest[:, None]
        size = kappa * np.sqrt(D.shape[1]) * largest / np.maximum(np.linalg.norm(s, axis=1), 1.0)
        return self.sandwich(D + np.einsum("i,ip,ir->ipr", size, s, s), S)

    def moved(self, dx: np.ndarray) -> float:
        """The largest move of a prediction."""
        return float(np.abs(self.table.times(self._gathered(dx))).max(initial=0.0))

    def _curvatures(self, x: np.ndarray, q: np.ndarray | None) -> np.ndarray:
        """The second derivatives of q'phi in u for every row: (rows, P + s, P + s)."""
        q = np.ones(1) if q is None else q
        key, multipliers = x.tobytes(), q.tobytes()
        if self.curved is None or self.curved[:2] != (key, multipliers):
            z = self._at(x).z
            q = np.asarray(q, z.dtype)
            D = _second(self.oracles, self.number, self._whole(x), z, q, self.counts)
            self.curved = key, multipliers, np.asarray(D, np.float64)[: self.rows]
        return self.curved[2]

    # Entries of x ---------------------------------------------------------------------------

    def _whole(self, x: np.ndarray) -> np.ndarray:
        """All entries of the user's x."""
        whole = np.zeros(self.whole, self.table.A.dtype)
        whole[self.entries] = x
        return whole

    def _gathered(self, x: np.ndarray) -> np.ndarray:
        """B."""
        return self._whole(x)[self.places]


def absolute(D: np.ndarray) -> np.ndarray:
    """|D_i| for symmetric matrices D_i, or what is above it where LAPACK finds no eigenvalues.

    Each in units of its largest entry: entries that are next to underflow stop the iteration.

    Examples
    --------
    >>> absolute(np.array([[[0.0, 2.0], [2.0, 0.0]]])).round(12).tolist()
    [[[2.0, 0.0], [0.0, 2.0]]]
    """
    size = np.abs(D).max(axis=(1, 2), keepdims=True, initial=0.0)
    counts = size > SMALLEST
    D = np.where(counts, D / np.where(counts, size, 1.0), 0.0)
    try:
        values, vectors = np.linalg.eigh(D)
    except np.linalg.LinAlgError:  # the sums of the rows' absolute values, by Gershgorin
        return size * np.abs(D).sum(axis=2)[:, :, None] * np.eye(D.shape[1])
    return size * np.einsum("ipk,ik,irk->ipr", vectors, np.abs(values), vectors)


def linear_mean(oracles: Oracles, number: int) -> LinearMean | None:
    """f, or the constraint of this number, if it is a mean over finite rows by predictions."""
    source = _source(oracles, number)
    arrays, N = getattr(source, "arrays", None), source.rows
    if arrays is None or N is None or not jax.tree.leaves(arrays):
        return None
    found = _cut_of(oracles, number)
    if found is None or not np.issubdtype(_leaves(arrays)[found.table].dtype, np.floating):
        return None
    if any(is_sparse_rows(_leaves(arrays)[i]) for i in found.rest):
        return None
    inputs, function = found.outputs + len(found.direct), _function(oracles, number)
    # Each row is asked for all entries of c, of which some may be picked.
    entries = function.whole if isinstance(function, Picked) else found.out
    if N * inputs * max(inputs, entries) > MOST_CURVATURES:
        return None
    rows = table(_leaves(arrays)[found.table], N, ones=False)
    if not _agrees(oracles, number, found, rows, N):
        return None
    return LinearMean(oracles, number, found, rows, N)


# Whether the means of a set of programs are what differentiation finds, by their numbers.
_agreed: weakref.WeakKeyDictionary[ProgramSet, dict[int, bool]] = weakref.WeakKeyDictionary()


def _agrees(oracles: Oracles, number: int, found: Cut, table: Table, N: int) -> bool:
    """Whether value and slopes at one point are those of the function as a whole.

    By construction they are, if the function is the mean that it should be. Evaluated once for a
    function: the numbers in it do not change what was found.
    """
    known = _agreed.setdefault(oracles.programs, {})
    if number not in known:
        plain = bare(oracles)
        mean = LinearMean(plain, number, found, table, N)
        known[number] = any(_agrees_at(mean, plain, number, size) for size in POINTS)
    return known[number]


def _agrees_at(mean: LinearMean, oracles: Oracles, number: int, size: float) -> bool:
    x = size * np.cos(np.arange(1, mean.n + 1) ** 2.0) / np.sqrt(mean.n)
    ours = mean.values_and_jacobian(x)
    whole = jax.device_get(_differentiated(oracles, number, np.asarray(x, mean.table.A.dtype)))
    accuracy = float(np.finfo(mean.table.A.dtype).eps) ** 0.5
    return all(
        bool(np.isfinite(b).all()) and np.abs(a - b).max() <= accuracy * (1 + np.abs(b).max())
        for a, b in zip(ours, (np.asarray(part, np.float64) for part in whole), strict=True)
    )


def whole(structure: Structure) -> Structure:
    """Of all entries of the user's x."""
    return Structure(structure.treedef, structure.shapes, structure.paths)


def bare(oracles: Oracles) -> Oracles:
    """What the means need, and no more, so that working sets share their programs."""
    structure = whole(oracles.structure)
    terms = dataclasses.replace(oracles.terms, structure=structure)
    return dataclasses.replace(
        oracles, structure=structure, terms=terms, regularizer=Zero(), pools=()
    )


def _source(oracles: Oracles, number: int) -> Any:
    """Of the rows of a mean; finite, for the means that are looked at here."""
    return oracles.source_of(_source_number(oracles, number))


def _source_number(oracles: Oracles, number: int) -> int | None:
    return 0 if number == LOSS else oracles.terms.terms[number].rows


def _function(oracles: Oracles, number: int) -> Any:
    return oracles.loss if number == LOSS else oracles.terms.terms[number].function


def _leaves(arrays: Any) -> list[Any]:
    return jax.tree.leaves(arrays, is_leaf=is_sparse_rows)


def _cut_of(oracles: Oracles, number: int) -> Cut | None:
    arrays = _source(oracles, number).arrays
    return cut(_function(oracles, number), whole(oracles.structure), arrays)


def _padded(oracles: Oracles, number: int) -> int:
    """The rows of the data on the device, of which the last ones fill them up."""
    arrays = _source(oracles, number).arrays
    return len(_leaves(arrays)[0])


def _rowwise(oracles: Oracles, number: int, x: Vector) -> tuple[Any, tuple[Any, ...]]:
    """(phi as a function of u and a row, the rows)."""
    found = _cut_of(oracles, number)
    assert found is not None, "only functions of predictions come here"
    function, structure = _function(oracles, number), oracles.structure
    arrays = _leaves(_source(oracles, number).arrays)
    rest = tuple(arrays[i] for i in found.rest)

    def phi(u: Any, row: tuple[Any, ...]) -> Any:
        z, s = u[: found.outputs], u[found.outputs :]
        whole = x.at[found.direct].set(s) if len(found.direct) else x
        leaves = jax.tree.leaves(structure.unravel(whole))
        return found.phi(function, leaves, z, [a[None] for a in row])

    return phi, rest


def _arguments(found: Cut, x: Vector, z: Any) -> Any:
    """u of every row."""
    s = jnp.broadcast_to(x[found.direct], (len(z), len(found.direct)))
    return jnp.concatenate([z, s], axis=1) if len(found.direct) else z


@compiled(static_argnums=(1,))
def _differentiated(oracles: Oracles, number: int, x: Vector) -> Any:
    """(c, J) of the function as a whole, which is differentiated as any other."""
    function, structure = _function(oracles, number), oracles.structure

    def on(x: Vector, batch: Any) -> Any:
        values = jax.tree.leaves(function(structure.unravel(x), batch))
        return jnp.concatenate([jnp.ravel(v).astype(x.dtype) for v in values])

    def both(batch: Any) -> Any:
        c, back = jax.vjp(lambda x: on(x, batch), x)
        return c, jax.vmap(lambda e: back(e)[0])(jnp.eye(len(c), dtype=x.dtype))

    return _source(oracles, number).mean(both)


@compiled(static_argnums=(1,))
def _first(oracles: Oracles, number: int, x: Vector, z: Any, counts: Vector) -> Any:
    """(sums of phi_j over the rows, dphi_j / du of every row)."""
    phi, rest = _rowwise(oracles, number, x)
    found = _cut_of(oracles, number)
    assert found is not None

    def one(u: Any, row: Any, count: Any) -> Any:
        values, back = jax.vjp(lambda u: phi(u, row), u)
        slopes = jax.vmap(lambda e: back(e)[0])(jnp.eye(len(values), dtype=u.dtype))
        return values * count, slopes * count

    values, slopes = jax.vmap(one)(_arguments(found, x, z), rest, counts)
    return values.sum(axis=0), slopes


@compiled(static_argnums=(1,))
def _second(oracles: Oracles, number: int, x: Vector, z: Any, q: Vector, counts: Vector) -> Any:
    """The second derivatives of q'phi in u, for every row."""
    phi, rest = _rowwise(oracles, number, x)
    found = _cut_of(oracles, number)
    assert found is not None

    def one(u: Any, row: Any, count: Any) -> Any:
        return count * jax.hessian(lambda u: q @ phi(u, row))(u)

    return jax.vmap(one)(_arguments(found, x, z), rest, counts)
