"""Different regularisers for different parts of a pytree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import equinox as eqx
import jax
import numpy as np

from mossp._base.printing import quoted, shown
from mossp._base.types import AnyNumber, AnyVector, HostArray, PyTree
from mossp.regularizers.base import Counted, Regularizer
from mossp.regularizers.prox import aligned

Span = tuple[int, int]


class Blocks(Regularizer):
    """One regulariser per part of a pytree; parts that are not named are unpenalised.

    Every method takes and returns pytrees; `on` gives the same for the vector of all entries.

    Parameters
    ----------
    blocks : dict of str to Regularizer
        A path names a leaf or a subtree, "w" or "layers/0/w"; its regulariser acts on all entries
        of that part as one vector.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1
    >>> reg = Blocks({"w": L1(1.0)})
    >>> x = {"b": np.array([3.0]), "w": np.array([[3.0, -0.5]])}
    >>> reg.prox_h(x, 1.0)
    {'b': array([3.]), 'w': array([[2., 0.]])}
    """

    blocks: dict[str, Regularizer]

    def __init__(self, blocks: Mapping[str, Regularizer]) -> None:
        if not isinstance(blocks, Mapping) or not all(isinstance(path, str) for path in blocks):
            raise TypeError(
                "Blocks needs a dict of paths and regularisers such as {'w': mossp.L1(0.1)}, but "
                f"{shown(blocks)} was given."
            )
        self.blocks = dict(blocks)

    def __check_init__(self) -> None:
        for path, reg in self.blocks.items():
            if not isinstance(reg, Regularizer) or isinstance(reg, Blocks):
                raise ValueError(
                    "Blocks needs a regulariser of a vector for every path, but "
                    f"{type(reg).__name__} was given for {quoted(path)}."
                )
            inner = [other for other in self.blocks if _within(other, path) and other != path]
            if inner:
                raise ValueError(
                    f"Blocks needs parts that do not overlap, but {quoted(inner[0])} is inside "
                    f"{quoted(path)}."
                )

    def on(self, slices: Mapping[str, Span]) -> Regularizer:
        found = []
        for path, reg in self.blocks.items():
            spans = [span for leaf, span in slices.items() if _within(leaf, path)]
            if not spans:
                raise ValueError(
                    f"Blocks has a regulariser for {quoted(path)}, which x does not have; the "
                    f"paths of x are {', '.join(map(quoted, slices))}."
                )
            found.append((spans[0][0], spans[-1][1], reg))
        found.sort(key=lambda part: part[:2])
        return FlatBlocks(tuple(r for *_, r in found), tuple((i, j) for i, j, _ in found))

    def h(self, x: PyTree) -> AnyNumber:
        flat, (x,), _ = self._flat(x)
        return flat.h(x)

    def g(self, x: PyTree) -> AnyNumber:
        flat, (x,), _ = self._flat(x)
        return flat.g(x)

    def prox_h(self, v: PyTree, mu: AnyNumber) -> PyTree:
        flat, (v,), back = self._flat(v)
        return back(flat.prox_h(v, mu))

    def prox_g(self, v: PyTree, mu: AnyNumber) -> PyTree:
        flat, (v,), back = self._flat(v)
        return back(flat.prox_g(v, mu))

    def subgradient_g(self, x: PyTree) -> PyTree:
        flat, (x,), back = self._flat(x)
        return back(flat.subgradient_g(x))

    def nearest_h(self, x: PyTree, w: PyTree) -> PyTree:
        flat, (x, w), back = self._flat(x, w)
        return back(flat.nearest_h(x, w))

    def nearest_g(self, x: PyTree, w: PyTree) -> PyTree:
        flat, (x, w), back = self._flat(x, w)
        return back(flat.nearest_g(x, w))

    def nearest(self, x: PyTree, v: PyTree) -> PyTree:
        flat, (x, v), back = self._flat(x, v)
        return back(flat.nearest(x, v))

    def _flat(
        self, *trees: PyTree
    ) -> tuple[Regularizer, list[AnyVector], Callable[[AnyVector], PyTree]]:
        """This regulariser for vectors, the trees as vectors, and the way back to a tree."""
        paths, structure = jax.tree_util.tree_flatten_with_path(trees[0])
        shapes = [jax.numpy.shape(leaf) for _, leaf in paths]
        slices, start = {}, 0
        for path, leaf in paths:
            stop = start + int(jax.numpy.size(leaf))
            slices[jax.tree_util.keystr(path, simple=True, separator="/")] = (start, stop)
            start = stop

        def back(vector: AnyVector) -> PyTree:
            parts = [
                vector[i:j].reshape(shape)
                for (i, j), shape in zip(slices.values(), shapes, strict=True)
            ]
            return jax.tree_util.tree_unflatten(structure, parts)

        return self.on(slices), [_ravel(tree) for tree in trees], back

    @property
    def convex(self) -> bool:
        return all(reg.convex for reg in self.blocks.values())

    @property
    def smooth(self) -> bool:
        return all(reg.smooth for reg in self.blocks.values())

    @property
    def finite(self) -> bool:
        return all(reg.finite for reg in self.blocks.values())


class FlatBlocks(Regularizer):
    """Regularisers of consecutive pieces of a vector, nothing between them."""

    regs: tuple[Regularizer, ...]
    spans: tuple[Span, ...] = eqx.field(static=True)

    def h(self, x: AnyVector) -> AnyNumber:
        return sum(reg.h(x[i:j]) for reg, (i, j) in self._parts())

    def g(self, x: AnyVector) -> AnyNumber:
        return sum(reg.g(x[i:j]) for reg, (i, j) in self._parts())

    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self._join(v, [reg.prox_h(v[i:j], mu) for reg, (i, j) in self._parts()])

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self._join(v, [reg.prox_g(v[i:j], mu) for reg, (i, j) in self._parts()])

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        return self._join(0 * x, [reg.subgradient_g(x[i:j]) for reg, (i, j) in self._parts()])

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self._join(0 * x, [r.nearest_h(x[i:j], w[i:j]) for r, (i, j) in self._parts()])

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self._join(0 * x, [r.nearest_g(x[i:j], w[i:j]) for r, (i, j) in self._parts()])

    def part(self, places: HostArray, n: int) -> Regularizer:
        regs, spans = [], []
        for reg, (i, j) in self._parts():
            first, last = np.searchsorted(places, (i, j)).tolist()
            regs.append(reg.part(places[first:last] - i, j - i))
            spans.append((first, last))
        return FlatBlocks(tuple(regs), tuple(spans))

    def curvature_g(self, x: HostArray, E: HostArray) -> HostArray:
        curved = np.zeros_like(E)
        for reg, (i, j) in self._parts():
            if not reg.convex:
                curved[:, i:j] = reg.curvature_g(x[i:j], E[:, i:j])
        return curved

    def counted(self, n: int) -> list[Counted]:
        found = []
        for reg, (i, j) in self._parts():
            for units, k in reg.counted(j - i):
                everywhere = np.full(n, -1)
                everywhere[i:j] = units
                found.append(Counted(everywhere, k))
        return found

    def _parts(self) -> Iterator[tuple[Regularizer, Span]]:
        return zip(self.regs, self.spans, strict=True)

    def _join(self, between: AnyVector, pieces: list[AnyVector]) -> AnyVector:
        """The pieces at their spans, and `between` elsewhere."""
        xp, between, *pieces = aligned(between, *pieces)
        joined, start = [], 0
        for piece, (i, j) in zip(pieces, self.spans, strict=True):
            joined += [between[start:i], piece]
            start = j
        return xp.concat([*joined, between[start:]])

    @property
    def separable(self) -> bool:
        return all(reg.separable for reg in self.regs)

    @property
    def convex(self) -> bool:
        return all(reg.convex for reg in self.regs)

    @property
    def smooth(self) -> bool:
        return all(reg.smooth for reg in self.regs)

    @property
    def finite(self) -> bool:
        return all(reg.finite for reg in self.regs)


def _within(leaf: str, path: str) -> bool:
    """Whether the leaf (or subtree) `leaf` is the part `path` or lies in it."""
    return leaf == path or leaf.startswith(path + "/")


def _ravel(tree: PyTree) -> AnyVector:
    xp, *leaves = aligned(*jax.tree_util.tree_leaves(tree))
    return xp.concat([xp.asarray(leaf).reshape(-1) for leaf in leaves])
