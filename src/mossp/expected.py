"""Constraints, and concave parts of the objective, that are means over rows: E[c(x, zeta)].

Neyman-Pearson classification, a loss bounded on other data, equal rates of groups: what is bounded
is a mean over data, of which a step sees a mini-batch. `Expected` says so, and which rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from mossp._base.module import Module
from mossp._base.printing import quoted, shown
from mossp._base.types import ArrayLike, HostArray, PyTree
from mossp._base.validation import whole
from mossp.data import Source, as_source

__all__ = ["Expected", "group_weights"]


def _rows(data: Any) -> Source | None:
    return None if data is None else as_source(data, lambda arrays: None)


class Expected(Module):
    """A constraint that is a mean over rows of data: `E[function(x, row)] <= 0`, or `= 0`.

    Or a part of the objective with rows of its own, `Problem(..., concave=Expected(g, data=...))`.

    Parameters
    ----------
    function : callable
        `function(x, batch)`, the mean over the rows of `batch`, in JAX: a scalar, a vector or a
        dict of arrays. Like a loss it must be a mean, of which rows are drawn.
    data : array, pytree of arrays, Sampler or Stream, optional
        Rows of its own; left out, those of the problem.
    batch_size : int, optional
        Rows from which a step takes the value of the constraint; 8 times the problem's batch size
        unless given. (Its gradient comes from another mini-batch, as large as that of the loss.)

    Examples
    --------
    The mean score of the second class is at most 0:

    >>> import jax.numpy as jnp, numpy as np, mossp
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> y = np.sign(X[:, 0] + 0.5 * rng.normal(size=300))
    >>> problem = mossp.Problem(
    ...     mossp.losses.logistic,
    ...     (X, y),
    ...     mossp.L1(0.01),
    ...     inequality={"score": Expected(lambda x, A: jnp.mean(A @ x), data=X[y > 0])},
    ... )
    >>> result = mossp.solve(problem, np.zeros(3))
    >>> result.success, bool(np.mean(X[y > 0] @ result.x) < 1e-10)
    (True, True)
    """

    function: Callable[..., PyTree]
    data: Any = eqx.field(default=None, converter=_rows)
    batch_size: int | None = eqx.field(default=None, static=True)

    def __check_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(
                f"Expected needs a function of x and a batch, but {shown(self.function)} was given."
            )
        if self.batch_size is not None:
            whole("batch_size", self.batch_size, 1)


def as_concave(given: Any) -> Expected | None:
    """What a user gave as g: a function of x and a batch, or Expected; None for none at all."""
    if given is None:
        return None
    if isinstance(given, Expected):
        if given.batch_size is not None:
            raise ValueError(
                "batch_size is for the values of constraints: the subgradients of a concave part "
                "come from mini-batches as large as those of the loss. Leave it out."
            )
        return given
    if not callable(given):
        raise TypeError(
            "concave must be a function g(x, batch) or mossp.Expected(g, data=...), but "
            f"{shown(given)} was given."
        )
    return Expected(given)


class Side(NamedTuple):
    """The equalities, or the inequalities: functions of x and means over rows, in their order."""

    kind: str  # "equality" or "inequality"
    entries: tuple[Any, ...]
    paths: tuple[str, ...]
    treedef: jax.tree_util.PyTreeDef

    @classmethod
    def of(cls, kind: str, given: Any) -> Side:
        """What a user gave: one entry, or a dict or a list of entries; None for none at all."""
        leaves, treedef = jax.tree_util.tree_flatten_with_path(given, is_leaf=is_entry)
        paths = [jax.tree_util.keystr(p, simple=True, separator="/") for p, _ in leaves]
        side = cls(kind, tuple(entry for _, entry in leaves), tuple(paths), treedef)
        for entry, what in zip(side.entries, side.described(), strict=True):
            if not (callable(entry) or isinstance(entry, Expected)):
                raise TypeError(
                    f"{what} must be a function of x or mossp.Expected(...), but {shown(entry)} "
                    "was given."
                )
            if not isinstance(entry, Expected):
                refuse_batch(what, entry)
        return side

    def described(self) -> list[str]:
        """Each entry as an error names it."""
        names = (f" {quoted(path)}" if path else "" for path in self.paths)
        return [f"The {self.kind} constraint{name}" for name in names]


def refuse_batch(what: str, function: Callable[..., PyTree]) -> None:
    """A function that asks for a batch as well is a mean over rows, and has to say so."""
    try:
        asked = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # it does not tell
        return
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in asked if p.kind in plain and p.default is p.empty]
    if len(names) == 2:
        raise TypeError(
            f"{what} is called with x alone, but this function asks for {names[0]} and {names[1]}: "
            "write mossp.Expected(function) for a mean over rows of data."
        )


def is_entry(given: object) -> bool:
    """Whether it is one constraint; a dict, a list or a tuple holds several."""
    return given is not None and not isinstance(given, (dict, list, tuple))


def group_weights(group: ArrayLike, weights: ArrayLike | None = None) -> HostArray:
    """Weights of rows with which a mean over all rows is the mean over a group.

    `mean_i w_i v_i` with `w_i = 1[i in group] / share of the group` is the mean of v over the
    group's rows. Give them as an array of the data, and write `jnp.mean(w * v)` in `Expected`.

    Parameters
    ----------
    group : array of bool of shape (rows,)
        Which rows belong to it.
    weights : array of shape (rows,), optional
        Weights of the rows themselves.

    Returns
    -------
    array of shape (rows,)

    Examples
    --------
    >>> group_weights([True, False, False, True]).tolist()
    [2.0, 0.0, 0.0, 2.0]
    """
    member = np.asarray(group)
    if member.ndim != 1 or member.dtype.kind != "b":
        raise TypeError(
            "group_weights needs one truth value per row, but an array of shape "
            f"{member.shape} and type {member.dtype} was given: write z == value."
        )
    own = np.ones(len(member)) if weights is None else np.asarray(weights, np.float64)
    if own.shape != member.shape:
        raise ValueError(
            f"weights must have one number for each of the {len(member)} rows, but their shape is "
            f"{own.shape}."
        )
    share = float(np.mean(own * member)) if len(member) else 0.0
    if not share > 0:
        raise ValueError("The group has no row (or none whose weight is not 0).")
    return own * member / share
