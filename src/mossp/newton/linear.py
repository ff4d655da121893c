"""Losses of predictions that are linear in x: f(x) = mean_i w_i l(a_i'B + o, b_i), B from x.

With z = A B the predictions, kept from one evaluation to the next,

    grad f = A'l'(z) / N,    Hess f on entries S = A_S' diag(l''(z)) A_S / N

so that a matrix of the order of S is one product, in place of one pass over the data a column.
"""

from __future__ import annotations

import functools
import hashlib
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base import disk
from mossp._base.programs import ProgramSet
from mossp._base.types import PyTree
from mossp.losses.base import HostRows, Loss, Predictive
from mossp.newton.table import Table, table
from mossp.oracles import Oracles

LARGEST_CODE = 64  # outputs: with more of them, l'' of all rows is large beside the data
# Entries of x up to which all of a dense Hessian takes as long as the few products that would tell
# its norm, since these go by vectors, and what is formed serves the first step as well. Up to so
# many multiplications it takes little longer than any part of it.
FEW, LITTLE = 100, 2**24


class At(NamedTuple):
    """What is known at one point."""

    x: bytes  # its digest
    z: np.ndarray  # predictions, one row each, filled up as the data on the device are
    slopes: np.ndarray  # l', of the rows that count, with their weights
    f: float
    gradient: np.ndarray
    curvatures: Callable[[], np.ndarray]  # l'', of all rows of z


def digest(x: np.ndarray) -> bytes:
    """What tells x from all others; a copy of it might be long."""
    return hashlib.blake2b(np.ascontiguousarray(x).data, digest_size=16).digest()


class LinearLoss:
    """f, its gradient, and its Hessian on some entries, with all rows."""

    def __init__(
        self, table: Table, loss: Predictive, b: Any, w: np.ndarray, offset: np.ndarray | float,
        outputs: int | None, programs: ProgramSet,
    ) -> None:  # fmt: skip
        self.table, self.loss, self.b, self.w, self.offset = table, loss, b, w, offset
        self.outputs = outputs  # None: predictions are numbers, not vectors
        self.balanced = loss.shifts and outputs is not None  # whether rows of l'' sum to 0
        self.programs = programs
        self.made_from: Any = None
        self.N, self.C = len(w), outputs or 1
        self.known: At | None = None
        self.curved: tuple[bytes, np.ndarray] | None = None
        self.whole: tuple[bytes, np.ndarray] | None = None  # all of the Hessian at a point

    @property
    def size(self) -> int:
        """Entries of x."""
        return self.table.features * self.C

    @property
    def forms_whole(self) -> bool:
        """Whether the Hessian on all entries takes about as long as on few, or as some products."""
        if self.table.sparse:
            return self.C == 1 and self.table.paired
        return self.size <= FEW

    def first_order(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """(f, grad f)."""
        at = self._at(x)
        return at.f, at.gradient

    def afresh(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """(f, grad f), from the rows whatever is known of x."""
        at = self._from_rows(x, b"")
        return at.f, at.gradient

    def _at(self, x: np.ndarray) -> At:
        """What is known at x; another thread may ask for another point at the same time."""
        key, known = digest(x), self.known
        if known is None or known.x != key:
            known = self.known = self._from_rows(x, key)
        return known

    def _from_rows(self, x: np.ndarray, key: bytes) -> At:
        z, f, slopes, curvatures = self._zeroth(x)
        gradient = self.table.transposed(slopes).ravel()
        gradient /= self.N
        gradient.flags.writeable = False  # since it is handed out and remembered
        return At(key, z, slopes, f, gradient, curvatures)

    @functools.cached_property
    def hosted(self) -> bool:
        """Whether the loss of a row and its derivatives need no program."""
        none = np.zeros((0, self.C)) if self.outputs else np.zeros(0)
        return self.loss.on_host(none, self._labels[:0]) is not None

    def value(self, x: np.ndarray) -> float:
        """f alone, without the product with A' that a gradient takes."""
        known = self.known
        return known.f if known is not None and known.x == digest(x) else self._zeroth(x)[1]

    def _zeroth(
        self, x: np.ndarray
    ) -> tuple[np.ndarray, float, np.ndarray, Callable[[], np.ndarray]]:
        """(z, f, l', l'')."""
        z = np.zeros((len(self.b), self.C), self.table.A.dtype)
        z[: self.N] = self.table.times(self._matrix(x)) + self.offset
        rows = self._on_host(z)
        if rows is None:
            values, slopes = self._rowwise(_first, z)
            rows = HostRows(values, slopes, lambda: self._rowwise(_second, z))
        # Not by BLAS, whose threads take longer to start, and to wait for, than such a sum does.
        f = float(np.sum(rows.values[: self.N] * self.w) / self.N)
        slopes = rows.slopes.reshape(-1, self.C)[: self.N] * self.w[:, None]
        return z, f, slopes, rows.curvatures

    def products(self, x: np.ndarray, E: np.ndarray) -> np.ndarray:
        """Hess f(x) e for the rows e of E."""
        d, C = self.curvatures(x), self.C
        if C == 1:
            along = self.table.times(np.ascontiguousarray(E.T)) * d[:, 0]
            return self.table.transposed(along).T / self.N
        found = []
        for e in E:
            along = np.einsum("icd,id->ic", d, self.table.times(self._matrix(e)))
            found.append(self.table.transposed(along).ravel() / self.N)
        return np.array(found).reshape(E.shape)

    def block(self, x: np.ndarray, S: np.ndarray) -> np.ndarray:
        """Hess f(x) on the entries S."""
        if self.forms_whole and not self.table.sparse:
            key, whole, n = x.tobytes(), self.whole, self.size
            if whole is not None and whole[0] == key:
                return whole[1][np.ix_(S, S)]
            if len(S) == n or (2 * len(S) >= n and self.N * n**2 <= LITTLE):
                whole = self.whole = key, self._block(x, np.arange(n))
                return whole[1][np.ix_(S, S)]
        return self._block(x, S)

    def _block(self, x: np.ndarray, S: np.ndarray) -> np.ndarray:
        d, features, outputs = self.curvatures(x), S // self.C, S % self.C
        if self.C == 1:
            return self.table.gram(d[:, 0, 0], S) / self.N
        together = np.unique(features)
        places = [np.flatnonzero(outputs == c) for c in range(self.C)]
        if self._joins(len(together), [len(place) for place in places]):
            here = np.searchsorted(together, features) * self.C + outputs
            return self._joint(d, together)[np.ix_(here, here)]
        H = np.zeros((len(S), len(S)))
        for c in range(self.C):
            for e in range(c + 1):
                if not (len(places[c]) and len(places[e])):
                    continue
                other = None if c == e else features[places[e]]
                part = self.table.gram(d[:, c, e], features[places[c]], other) / self.N
                H[np.ix_(places[c], places[e])] = part
                H[np.ix_(places[e], places[c])] = part.T
        return H

    def _joins(self, count: int, sizes: list[int]) -> bool:
        """Whether symmetric products over all features of any output are less work.

        Such a product takes half the operations; pairs of outputs may each have few features.
        """
        if self.table.sparse:
            return False
        pairs = self.C * (self.C + (-1 if self.balanced else 1)) // 2
        apart = (sum(sizes) ** 2) / 2
        return pairs * count**2 / 2 <= apart

    def _joint(self, d: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Hess f on all outputs of these features, in the order of x.

        Where the rows of every l'' sum to 0, so do blocks of H: those on the diagonal follow, as
        sums of numbers of one sign.
        """
        C, m = self.C, len(features)
        H = np.zeros((m, C, m, C))
        for c in range(C):
            for e in range(c if self.balanced else c + 1):
                part = self.table.gram(d[:, c, e], features) / self.N
                H[:, c, :, e] = H[:, e, :, c] = part
        if self.balanced:
            each = np.arange(C)
            H[:, each, :, each] = -H.sum(axis=3).transpose(1, 0, 2)
        return H.reshape(m * C, m * C)

    def predictions(self, x: np.ndarray) -> np.ndarray:
        """A B, without offsets."""
        return self.table.times(self._matrix(x))

    def slopes(self, x: np.ndarray) -> np.ndarray:
        """w_i l'(z_i), of the order C for each row."""
        return self._at(x).slopes

    def on(
        self, x: np.ndarray, S: np.ndarray
    ) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
        """(v -> H v, the diagonal of H) for H = Hess f(x) on the entries S, in ascending order."""
        d, C = self.curvatures(x), self.C
        features = np.unique(S // C)
        table = self.table.only(features)
        here = (np.searchsorted(features, S // C), S % C)

        def product(v: np.ndarray) -> np.ndarray:
            if C == 1:
                along = table.times(np.asarray(v, table.A.dtype)) * d[:, 0, 0]
                return table.transposed(along) / self.N
            V = np.zeros((len(features), C), table.A.dtype)
            V[here] = v
            along = np.einsum("icd,id->ic", d, table.times(V))
            return table.transposed(along)[here] / self.N

        squares = [table.squares(d[:, c, c]) for c in range(C)]
        return product, np.stack(squares, axis=1)[here] / self.N

    def _matrix(self, x: np.ndarray) -> np.ndarray:
        """B, of which x is the rows one after the other."""
        return np.asarray(x, self.table.A.dtype).reshape(-1, self.C)

    def curvatures(self, x: np.ndarray) -> np.ndarray:
        """w_i l''(z_i), a matrix of order C for each row."""
        key, curved = digest(x), self.curved
        if curved is None or curved[0] != key:
            found = np.asarray(self._at(x).curvatures(), np.float64)
            d = found.reshape(-1, self.C, self.C)[: self.N] * self.w[:, None, None]
            curved = self.curved = key, d
        return curved[1]

    def _on_host(self, z: np.ndarray) -> HostRows | None:
        """The loss of every row and its derivatives without a program, if the loss knows them."""
        found = self.loss.on_host(z if self.outputs else z[:, 0], self._labels)
        if found is None:
            return None
        values, slopes = (np.asarray(a, np.float64) for a in found[:2])
        return HostRows(values, slopes, found.curvatures)

    @functools.cached_property
    def _labels(self) -> np.ndarray:
        return np.asarray(self.b)

    def _rowwise(self, function: Any, z: np.ndarray) -> Any:
        program = self.programs.program(function, {})
        with disk.used():
            found = program(self.loss, z if self.outputs else z[:, 0], self.b)
        return jax.tree.map(lambda a: np.asarray(a, np.float64), found)


# By the source, the loss and the structure of x, which each of them holds on to.
_in_use: weakref.WeakValueDictionary[tuple[int, ...], LinearLoss] = weakref.WeakValueDictionary()


def linear_loss(oracles: Oracles) -> LinearLoss | None:
    """The loss of a problem, if it is one of predictions that are linear in x.

    Problems that differ in their regularisers share it, with what is known at its last point.
    """
    parts = oracles.source, oracles.loss, oracles.structure
    key = tuple(id(part) for part in parts)
    found = _in_use.get(key)
    if found is None:
        found = made(oracles)
        if found is not None:
            found.made_from = parts
            _in_use[key] = found
    return found


def made(oracles: Oracles) -> LinearLoss | None:
    source, structure = oracles.source, oracles.structure
    arrays = getattr(source, "arrays", None)
    if not isinstance(oracles.loss, Loss) or source.rows is None or arrays is None:
        return None
    parts = oracles.loss.linear(arrays, structure.paths)
    if parts is None:
        return None
    shape = structure.shapes[0]
    outputs = shape[1] if len(shape) == 2 else None
    if outputs is not None and outputs > LARGEST_CODE:
        return None
    N = source.rows
    w = np.ones(N) if parts.w is None else np.asarray(parts.w, np.float64)[:N]
    rows = table(parts.A, N, parts.intercept)
    if structure.places is not None:
        rows = rows.only(np.asarray(structure.places)[:: outputs or 1] // (outputs or 1))
    offset: np.ndarray | float = 0.0
    if parts.offset is not None:
        offset = np.asarray(parts.offset, np.float64)[:N].reshape(N, -1)
    return LinearLoss(rows, parts.loss, parts.b, w, offset, outputs, oracles.programs)


def _first(loss: Predictive, z: Any, b: Any) -> PyTree:
    """(l, l') of every row."""
    return loss.rows(z, b), jax.grad(lambda z: jnp.sum(loss.rows(z, b)))(z)


def _second(loss: Predictive, z: Any, b: Any) -> PyTree:
    """l'' of every row: a number, or a matrix of the order of its predictions."""
    slopes = jax.grad(lambda z: jnp.sum(loss.rows(z, b)))
    if z.ndim == 1:
        return jax.jvp(slopes, (z,), (jnp.ones_like(z),))[1]
    unit = jnp.eye(z.shape[1], dtype=z.dtype)
    along = lambda e: jax.jvp(slopes, (z,), (jnp.broadcast_to(e, z.shape),))[1]  # noqa: E731
    return jnp.stack([along(e) for e in unit], axis=-1)
