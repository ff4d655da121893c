"""A user's function in compiled programs: its code, and its numbers as arguments.

Code      what a function computes: the equations of its jaxpr, without the numbers in them
Function  the code together with its numbers, which are arguments of the compiled programs:
`lambda x: x @ x - 1.0` and `lambda x: x @ x - 2.0` share one program
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable

import jax

from mossp._base.tracing import Numbers, Probed, Trace, same_bits, trace
from mossp._base.types import AnyArray, PyTree


class Code:
    """What a function of a problem computes, whatever its numbers.

    It remembers what it traced, so that a run sees one function from its beginning to its end.
    """

    def __init__(self, probed: Probed, programs: Hashable, part: str) -> None:
        self.probed, self.programs, self.part = probed, programs, part
        self.traces: dict[Hashable, Trace] = {}
        self.inlined = False  # whether some batch size has numbers at other places than the probes

    def at(self, leaves: list[AnyArray], treedef: jax.tree_util.PyTreeDef) -> Trace:
        """The trace for arguments of these shapes."""
        kinds = tuple(leaf if isinstance(leaf, int) else jax.typeof(leaf) for leaf in leaves)
        key = (treedef, kinds)
        if key not in self.traces:
            shapes = [
                kind if isinstance(kind, int) else jax.ShapeDtypeStruct(kind.shape, kind.dtype)
                for kind in kinds
            ]
            args, kept = jax.tree.unflatten(treedef, shapes), self.probed.kept
            self.traces[key] = trace(self.probed.function, *args, kept=kept)
        return self.traces[key]

    def evaluate(self, numbers: Numbers, *args: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(args)
        traced = self.at(leaves, treedef)
        values, probed = list(traced.numbers), self.probed
        first, places = probed.traces[0].numbers, probed.hoisted
        if len(values) == len(first) and all(same_bits(values[i], first[i]) for i in places):
            for i, number in zip(places, numbers, strict=True):
                values[i] = number
        else:
            self.inlined |= bool(places)
        return traced.evaluate(values, [leaf for leaf in leaves if not isinstance(leaf, int)])


class Name:
    """What JAX remembers of a function: its part (loss, constraint, ...) in a set of programs.

    Two functions of the same name are the same program. JAX remembers for long, and so a name does
    not keep the code alive, with all that the user's function holds.
    """

    def __init__(self, code: Code) -> None:
        self.programs, self.part, self.code = code.programs, code.part, weakref.ref(code)

    def __hash__(self) -> int:
        return hash((id(self.programs), self.part))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and (
            self.programs is other.programs and self.part == other.part
        )


@jax.tree_util.register_pytree_node_class
class Function:
    """A user's function as an argument of compiled programs: its arrays and numbers are leaves."""

    def __init__(self, arrays: PyTree, numbers: Numbers, code: Code | None) -> None:
        self.arrays = arrays  # of a module or a Partial
        self.numbers, self.code = numbers, code

    def __call__(self, *args: PyTree) -> PyTree:
        assert self.code is not None, "the problem that this function belongs to is gone"
        return self.code.evaluate(self.numbers, self.arrays, *args)

    def tree_flatten(self) -> tuple[tuple[PyTree, Numbers], Name | None]:
        return (self.arrays, self.numbers), None if self.code is None else Name(self.code)

    @classmethod
    def tree_unflatten(cls, name: Name | None, leaves: tuple[PyTree, Numbers]) -> Function:
        arrays, numbers = leaves
        return cls(arrays, numbers, None if name is None else name.code())
