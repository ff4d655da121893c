"""The strength of a regulariser: its lam, wherever in its wrappers that is.

What else there is stays: gamma, weights, the ratio of an elastic net, the l2 of a `PlusRidge`.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx

from mossp._base.types import AnyKey, AnyNumber, Number, PyTree
from mossp.regularizers.base import Regularizer

Place = tuple[AnyKey, ...]  # names of fields and keys, from the outside in


def with_strength(regularizer: Regularizer, lam: float) -> Regularizer:
    """The regulariser, inside its wrappers, with another lam."""
    places = strengths_in(regularizer)
    if len(places) != 1:
        what = "no lam" if not places else f"{len(places)} values lam"
        raise ValueError(
            f"{type(regularizer).__name__} has {what}: say what a strength means by "
            "regularizer=lambda lam: ..., which returns the regulariser."
        )
    return eqx.tree_at(lambda tree: found_at(tree, places[0]), regularizer, lam)


def strengthened(regularizer: Regularizer, factor: Number) -> Regularizer:
    """The regulariser with every lam in it multiplied; the same compiled programs serve it.

    Examples
    --------
    >>> from mossp.regularizers import MCP, Nonnegative
    >>> strengthened(Nonnegative(MCP(0.5)), 2.0).reg
    MCP(lam=1.0)
    """
    places = strengths_in(regularizer)

    def strengths(tree: Regularizer) -> list[AnyNumber]:
        return [found_at(tree, place) for place in places]

    return eqx.tree_at(strengths, regularizer, [factor * lam for lam in strengths(regularizer)])


def found_at(tree: PyTree, place: Place) -> AnyNumber:
    for name in place:
        tree = tree[name] if isinstance(tree, (dict, list, tuple)) else getattr(tree, name)
    return tree


def strengths_in(tree: PyTree) -> list[Place]:
    """Where a field called lam is found: the way to each."""
    if isinstance(tree, dict):
        parts = list(tree.items())
    elif isinstance(tree, (list, tuple)):
        parts = list(enumerate(tree))
    elif isinstance(tree, Regularizer):
        parts = [(f.name, getattr(tree, f.name)) for f in dataclasses.fields(tree)]
        if "lam" in dict(parts):
            return [("lam",)]
    else:
        return []
    return [(name, *rest) for name, part in parts for rest in strengths_in(part)]
