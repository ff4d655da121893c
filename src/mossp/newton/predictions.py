"""Whether a user's mean over rows looks at x only through predictions A x, found in its jaxpr.

A function of x and a batch is traced at a batch of one row. Every use of x is followed: pieces of x
(a slice, a reshaped leaf) that are multiplied by an array of the batch are predictions z = a'B;
pieces that are used in any other way (an intercept) are numbers s. What is left of the function is

    phi(z, s, row),    whose mean over the rows is the function

since that is what the user promised of it, and what the door has checked. So its derivatives are
those of phi, row by row, and products with A. Whatever is not understood here is no prediction:
the function is then differentiated as a whole, which is slower and always right.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from mossp._base.structure import Structure
from mossp._base.types import AnyArray, Batch, PyTree
from mossp.data.sparse import SparseRows

Atom = Any
Equation = Any
Jaxpr = Any

INLINED = ("jit", "pjit", "closed_call")
# What only moves the entries of an array: done to the places of the entries of x.
MOVES: dict[str, Callable[[np.ndarray, dict[str, Any]], np.ndarray]] = {
    "reshape": lambda a, p: a.reshape(p["new_sizes"]),
    "squeeze": lambda a, p: np.squeeze(a, p["dimensions"]),
    "transpose": lambda a, p: np.transpose(a, p["permutation"]),
    "slice": lambda a, p: a[
        tuple(map(slice, p["start_indices"], p["limit_indices"], p["strides"] or [1] * a.ndim))
    ],
    "broadcast_in_dim": lambda a, p: np.broadcast_to(
        a.reshape([
            a.shape[p["broadcast_dimensions"].index(k)] if k in p["broadcast_dimensions"] else 1
            for k in range(len(p["shape"]))
        ]),
        p["shape"],
    ),
    "copy": lambda a, p: a,
}  # fmt: skip


class Cut(NamedTuple):
    """A function of x and a row, cut where it multiplies x by the row."""

    jaxpr: Jaxpr  # of (what the function holds, x, z, the rest of the row)
    consts: tuple[Any, ...]
    out: int  # entries that it returns
    table: int  # the number of A among the arrays of a batch
    places: np.ndarray  # (features, outputs): the entries of x that predictions are made of
    shapes: tuple[tuple[int, ...], ...]  # of the products, with one row
    direct: np.ndarray  # the entries s of x that are used in other ways, ascending
    rest: tuple[int, ...]  # the numbers of the arrays of a batch that phi looks at

    @property
    def outputs(self) -> int:
        return self.places.shape[1]

    def phi(self, held: PyTree, x: Sequence[Any], z: Any, rest: Sequence[Any]) -> Any:
        """What one row gives, as a vector; x is needed at the entries s only."""
        splits = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts = jax.numpy.split(z, splits)
        products = [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        found = jax.core.eval_jaxpr(
            self.jaxpr, self.consts, *jax.tree.leaves(held), *x, *products, *rest
        )
        return jax.numpy.concatenate([jax.numpy.ravel(a).astype(z.dtype) for a in found])


def cut(function: Callable[..., PyTree], structure: Structure, batch: Batch) -> Cut | None:
    """The function in terms of predictions; None where it is no such function.

    Parameters
    ----------
    function : callable
        Of x and a batch, a pytree itself.
    structure : Structure
        Of the whole of x.
    batch : pytree
        All of the data, of which only shapes and types are looked at.
    """
    leaves, treedef = jax.tree.flatten((function, one_row(batch)))
    kinds = tuple((np.shape(leaf), np.dtype(leaf.dtype)) for leaf in leaves)
    return _cut(treedef, kinds, structure)


def one_row(batch: Batch) -> Batch:
    """Shapes of a batch of one row; sparse rows are dense ones: they are only multiplied."""

    def of(a: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((1, *np.shape(a)[1:]), a.dtype)

    return jax.tree.map(of, batch, is_leaf=is_sparse_rows)


def is_sparse_rows(a: object) -> bool:
    return isinstance(a, SparseRows)


@functools.lru_cache(maxsize=512)
def _cut(
    treedef: jax.tree_util.PyTreeDef, kinds: tuple[tuple[tuple[int, ...], np.dtype], ...],
    structure: Structure,
) -> Cut | None:  # fmt: skip
    """The same functions give the same cut: what tells programs apart tells functions apart."""
    leaves = [jax.ShapeDtypeStruct(*kind) for kind in kinds]
    function, batch = jax.tree.unflatten(treedef, leaves)
    dtype = next((leaf.dtype for leaf in jax.tree.leaves(batch) if leaf.dtype.kind == "f"), None)
    if dtype is None:
        return None
    held, rows = len(jax.tree.leaves(function)), jax.tree.leaves(batch)
    x = [jax.ShapeDtypeStruct(shape, dtype) for shape in structure.shapes]

    def call(function: Any, x: list[AnyArray], batch: Batch) -> PyTree:
        return function(jax.tree.unflatten(structure.treedef, x), batch)

    try:
        closed = jax.make_jaxpr(call)(function, x, batch)
    except Exception:  # with sparse rows it may do what dense ones cannot
        return None
    if closed.effects:
        return None
    return Walk(closed, held, structure, len(rows), dtype).cut()


class Product(NamedTuple):
    table: int
    places: np.ndarray
    var: Atom


class Walk:
    """Through the equations of a function, in order."""

    def __init__(
        self, closed: Any, held: int, structure: Structure, batch: int, dtype: np.dtype
    ) -> None:
        self.new, self.dtype = core.gensym(), dtype
        self.constvars, self.consts = list(closed.jaxpr.constvars), list(closed.consts)
        self.equations: list[Equation] = []
        self.outvars = self.flatten(closed.jaxpr, {})
        invars, count = list(closed.jaxpr.invars), len(structure.shapes)
        self.held = invars[:held]
        self.x, self.rows = invars[held : held + count], invars[held + count :]
        assert len(self.rows) == batch
        self.debug = closed.jaxpr.debug_info
        # The entries of x in a variable that has nothing but such entries.
        self.pieces: dict[Atom, np.ndarray] = {
            var: np.arange(a, b).reshape(shape)
            for var, (a, b), shape in zip(
                self.x, structure.slices.values(), structure.shapes, strict=True
            )
        }
        # Arrays of the batch by their number, and whether they are transposed.
        self.tables = {var: (i, False) for i, var in enumerate(self.rows) if var.aval.ndim == 2}
        self.products: list[Product] = []
        self.same: dict[Atom, Atom] = {}
        self.direct: set[int] = set()

    def flatten(self, jaxpr: Jaxpr, known: dict[Atom, Atom]) -> list[Atom]:
        """Note the equations with inner programs inlined; the atoms that it returns."""

        def read(atom: Atom) -> Atom:
            return atom if isinstance(atom, core.Literal) else known.get(atom, atom)

        for eqn in jaxpr.eqns:
            invars = [read(atom) for atom in eqn.invars]
            if eqn.primitive.name in INLINED and "jaxpr" in eqn.params:
                inner = eqn.params["jaxpr"]
                names = dict(zip(inner.jaxpr.invars, invars, strict=True))
                for var, const in zip(inner.jaxpr.constvars, inner.consts, strict=True):
                    names[var] = self.new(var.aval)
                    self.constvars.append(names[var])
                    self.consts.append(const)
                known.update(zip(eqn.outvars, self.flatten(inner.jaxpr, names), strict=True))
                continue
            outvars = [self.new(var.aval) for var in eqn.outvars]  # a program may stand in it twice
            known.update(zip(eqn.outvars, outvars, strict=True))
            self.equations.append(eqn.replace(invars=invars, outvars=outvars))
        return [read(atom) for atom in jaxpr.outvars]

    def cut(self) -> Cut | None:
        kept = []
        for eqn in self.equations:
            eqn = eqn.replace(invars=[self.read(atom) for atom in eqn.invars])
            if not self.understood(eqn):
                kept.append(eqn)
        self.outvars = [self.read(atom) for atom in self.outvars]
        for atom in self.outvars:
            self.use(atom)
        kept, needed = self.needed(kept)
        tables = {product.table for product in self.products}
        rest = tuple(i for i, var in enumerate(self.rows) if var in needed)
        if len(tables) != 1:
            return None
        invars = [*self.held, *self.x, *(p.var for p in self.products)]
        jaxpr = core.Jaxpr(
            self.constvars, [*invars, *(self.rows[i] for i in rest)], self.outvars, kept,
            debug_info=self.debug.with_unknown_names(),
        )  # fmt: skip
        return Cut(
            jaxpr, tuple(self.consts), sum(math.prod(a.aval.shape) for a in self.outvars),
            tables.pop(), np.concatenate([p.places for p in self.products], axis=1),
            tuple(p.var.aval.shape for p in self.products),
            np.array(sorted(self.direct), int), rest,
        )  # fmt: skip

    def understood(self, eqn: Equation) -> bool:
        """Whether an equation is a product, which becomes an argument. Notes what x is used for."""
        name, pieces = eqn.primitive.name, [self.piece(atom) for atom in eqn.invars]
        if all(piece is None for piece in pieces):
            table = self.tables.get(eqn.invars[0]) if is_transpose(eqn) else None
            if table is not None:
                self.tables[eqn.outvars[0]] = table[0], not table[1]
            return False
        if name in MOVES and len(eqn.invars) == 1 and pieces[0] is not None:
            self.pieces[eqn.outvars[0]] = MOVES[name](pieces[0], eqn.params)
            return False
        product = self.product(eqn, pieces) if name == "dot_general" else None
        if product is not None:
            same = (p for p in self.products if alike(p, product))
            known = next(same, None)
            if known is None:
                self.products.append(product)
            else:
                self.same[product.var] = known.var
            return True
        for atom in eqn.invars:
            self.use(atom)
        return False

    def product(self, eqn: Equation, pieces: list[np.ndarray | None]) -> Product | None:
        """rows @ piece, or piece @ rows', where rows are an array of the batch."""
        (left, right), (over_left, over_right) = eqn.params["dimension_numbers"]
        if over_left or over_right or len(left) != 1 or eqn.outvars[0].aval.dtype != self.dtype:
            return None
        atoms = list(zip(eqn.invars, pieces, (left[0], right[0]), strict=True))
        if pieces[0] is not None:
            atoms.reverse()
        (A, no_piece, features), (_, piece, axis) = atoms
        if no_piece is not None or isinstance(A, core.Literal) or A not in self.tables:
            return None
        table, transposed = self.tables[A]
        if features != (0 if transposed else 1) or piece is None or piece.ndim > 2:
            return None
        places = np.moveaxis(piece, axis, 0).reshape(piece.shape[axis], -1)
        if any(len(np.unique(column)) < len(column) for column in places.T):
            return None
        return Product(table, places, eqn.outvars[0])

    def read(self, atom: Atom) -> Atom:
        """The variable, or an earlier product that is the same."""
        return atom if isinstance(atom, core.Literal) else self.same.get(atom, atom)

    def piece(self, atom: Atom) -> np.ndarray | None:
        return None if isinstance(atom, core.Literal) else self.pieces.get(atom)

    def use(self, atom: Atom) -> None:
        piece = self.piece(atom)
        if piece is not None:
            self.direct.update(piece.ravel().tolist())

    def needed(self, equations: list[Equation]) -> tuple[list[Equation], set[Atom]]:
        """The equations that the result depends on, and the variables in them."""
        needed = {atom for atom in self.outvars if not isinstance(atom, core.Literal)}
        kept = []
        for eqn in reversed(equations):
            if any(var in needed for var in eqn.outvars):
                kept.append(eqn)
                needed.update(a for a in eqn.invars if not isinstance(a, core.Literal))
        return kept[::-1], needed


def alike(one: Product, other: Product) -> bool:
    same_shape = one.var.aval.shape == other.var.aval.shape
    return one.table == other.table and same_shape and np.array_equal(one.places, other.places)


def is_transpose(eqn: Equation) -> bool:
    swapped = eqn.primitive.name == "transpose" and tuple(eqn.params["permutation"]) == (1, 0)
    return swapped and not isinstance(eqn.invars[0], core.Literal)
