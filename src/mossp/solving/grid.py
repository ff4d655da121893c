"""A grid of settings, all at once: one replica a grid point, one compiled program.

Every point sees the same mini-batches from the same start, and the point with the lowest merit

    F(x) + ||(c_E(x), [c_I(x)]_+)||_1

at the end of its run wins, unless another merit is given.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.programs import compiled
from mossp._base.structure import Structure
from mossp._base.types import PyTree
from mossp.methods import Method
from mossp.methods.penalty import GrowingPenalty, ScaledPenalty
from mossp.oracles import Oracles
from mossp.problem import Problem
from mossp.result import Result, Status
from mossp.schedules import Measured, Rule, as_rule
from mossp.solving.arguments import checked
from mossp.solving.solve import solve_once

Grid = Mapping[str, Sequence[float]]

SHARE = 5  # a grid point gets this part of the steps that `solve` would take


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What a grid showed. `method` and `schedule` are the winner's, ready for `solve`.

    Attributes
    ----------
    values : dict
        The winner's settings by name.
    merit : float
        Its merit.
    table : list of dict
        One row per grid point, best first: its settings, objective, violation (the 1-norm) and
        merit; a run that diverged or met NaN has an infinite merit.
    at_edge : list of str
        The settings whose best value is the smallest or largest of several given.
    result : Result
        The runs themselves, one replica per grid point, in the grid's order.
    """

    method: Method
    schedule: Rule
    values: dict[str, float]
    merit: float
    table: list[dict[str, float]]
    at_edge: list[str]
    result: Result

    def summary(self, rows: int = 10) -> str:
        """The best rows of the table as text."""
        names = list(self.table[0])
        lines = ["  ".join(f"{name:>11}" for name in names)]
        for row in self.table[:rows]:
            lines.append("  ".join(f"{row[name]:>11.4g}" for name in names))
        return "\n".join(lines)


def tune(
    problem: Problem,
    x0: Any,
    *,
    method: Any = "mossp-r",
    schedule: Any = None,
    grid: Grid | None = None,
    merit: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    steps: int | None = None,
    gradients: int | None = None,
    batch_size: int | str | None = None,
    seed: int = 0,
    dtype: Any = "float64",
) -> Tuning:
    """Run every combination of the grid's values and pick the one with the lowest merit.

    Parameters
    ----------
    grid : mapping, optional
        Values by name: fields of the schedule (rho, mu, eta, alpha, ...), of the method (inner,
        dual, beta, ...) or of its estimator. Left out: rho, step and alpha of
        `mossp.schedules.Measured`, which are in the problem's own units.
    schedule : Rule, optional
        The rule whose fields are varied: Measured unless given.
    merit : callable, optional
        merit(F, v) of arrays with one entry per grid point, v the 1-norm of the violation; F + v
        if left out.
    steps, gradients : int, optional
        Of each point: a fifth of what `solve` would take if left out.

    Examples
    --------
    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(loss=lambda x: x[0] + x[1], equality=lambda x: x @ x - 2.0)
    >>> best = mossp.tune(problem, np.array([1.0, 0.0]), method="mossp-p", steps=500,
    ...                   schedule=mossp.schedules.Constant(rho=1.0, mu=0.01),
    ...                   grid={"rho": [1.0, 10.0], "mu": [0.001, 0.01]})
    >>> best.values
    {'rho': 10.0, 'mu': 0.01}
    """
    rule = Measured() if schedule is None else as_rule(schedule)
    a = checked(
        problem, x0, method=method, schedule=rule, steps=steps, gradients=gradients,
        batch_size=batch_size, seed=seed, dtype=dtype,
    )  # fmt: skip
    if steps is None and gradients is None:
        a = dataclasses.replace(a, steps=max(a.steps // SHARE, 1))
    grid = default_grid(a.method, rule) if grid is None else checked_grid(grid)
    names = list(grid)
    combinations = list(itertools.product(*grid.values()))
    variants = [
        with_values(a.method, rule, dict(zip(names, values, strict=True)))
        for values in combinations
    ]
    a = dataclasses.replace(a, replicas=len(variants))
    callers = bool(jax.config.read("jax_enable_x64"))
    with jax.enable_x64(a.dtype == np.float64):
        result, state = solve_once(problem, a, callers, variants)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt  # by Ctrl-C, which the run took: no point has been run whole
    F, v = result.funs, violations(problem, a.x0, result)
    merits = np.asarray(F + v if merit is None else merit(F, v), np.float64)
    if merits.shape != F.shape:
        raise ValueError(
            f"merit must return one number a grid point, {F.size} in all, but its shape is "
            f"{merits.shape}."
        )
    failed = state.record.given_up | np.isnan(merits)
    merits = np.where(failed, np.inf, merits)
    order = np.argsort(merits, kind="stable")
    rows = [
        dict(zip(names, combinations[i], strict=True))
        | {"objective": float(F[i]), "violation": float(v[i]), "merit": float(merits[i])}
        for i in order.tolist()
    ]
    best = int(order[0])
    if not np.isfinite(merits[best]):
        raise ValueError(
            "No point of the grid ended with a finite merit: try smaller steps (mu, eta or step)."
        )
    chosen = dict(zip(names, combinations[best], strict=True))
    edge = [
        name for name in names
        if len(set(grid[name])) > 1 and chosen[name] in (min(grid[name]), max(grid[name]))
    ]  # fmt: skip
    return Tuning(*variants[best], chosen, float(merits[best]), rows, edge, result)


def default_grid(method: Method, rule: Rule) -> Grid:
    """In the units of `Measured`; a method that sets its own parameters has none."""
    if method.parameter_free:
        raise ValueError(
            f"{type(method).__name__} finds its parameters by line search: there is nothing to "
            "tune. Give a grid of your own to vary something else."
        )
    if not isinstance(rule, Measured):
        raise ValueError(
            f"Give a grid for the schedule {type(rule).__name__}: only mossp.schedules.Measured, "
            "the default, has one of its own."
        )
    grid: dict[str, Sequence[float]] = {"step": (0.25, 0.5, 1.0, 2.0)}
    if isinstance(method.penalty, GrowingPenalty):
        grid = {"rho": (5.0, 20.0, 100.0, 500.0), **grid}
    elif isinstance(method.penalty, ScaledPenalty):
        grid = {"rho": (1.0, 5.0, 20.0, 100.0), **grid}
    if method.momentum.averages and not method.momentum.anchored:
        grid["alpha"] = (0.03, 0.1, 0.9)
    return grid


def checked_grid(grid: Any) -> Grid:
    if not isinstance(grid, Mapping) or not grid:
        raise TypeError(
            f"grid must name settings and their values, such as {{'rho': [1, 10]}}, but {grid!r} "
            "was given."
        )
    checked = {}
    for name, values in grid.items():
        try:
            array = np.asarray(values)
        except (TypeError, ValueError):  # of lists of unequal length
            array = np.asarray(None)
        if array.ndim != 1 or not array.size or array.dtype.kind not in "iuf":
            raise ValueError(f"grid[{name!r}] must be a list of numbers, but is {values!r}.")
        if not np.isfinite(array).all():
            raise ValueError(f"grid[{name!r}] must be finite, but is {values!r}.")
        checked[name] = [float(v) for v in array]
    return checked


def with_values(method: Method, rule: Rule, values: Mapping[str, float]) -> tuple[Method, Rule]:
    """The method and the rule with some of their fields replaced."""
    for name, value in values.items():
        own_alpha = name == "alpha" and getattr(method.momentum, "alpha", None) is not None
        changed = None if own_alpha else replaced(rule, name, value)
        if changed is not None:
            rule = changed
            continue
        changed = replaced(method, name, value)
        if changed is None:
            raise ValueError(
                f"grid names {name!r}, which is no number of the schedule "
                f"{type(rule).__name__}, the method {type(method).__name__} or its estimator; "
                f"these have {', '.join(dict.fromkeys(numbers_of(rule) + numbers_of(method)))}."
            )
        method = changed
    return method, rule


def replaced(module: Any, name: str, value: float) -> Any:
    """The module with this number in it, or in a module inside it; None if there is none."""
    if name in own_numbers(module):
        return dataclasses.replace(module, **{name: value})
    for field in dataclasses.fields(module):
        part = getattr(module, field.name)
        changed = replaced(part, name, value) if isinstance(part, eqx.Module) else None
        if changed is not None:
            return dataclasses.replace(module, **{field.name: changed})
    return None


def own_numbers(module: Any) -> list[str]:
    """The fields that a grid may vary: numbers, not switches, which change the program."""
    return [
        field.name
        for field in dataclasses.fields(module)
        if not field.metadata.get("static", False)
        and not isinstance(getattr(module, field.name), (eqx.Module, tuple))
        and "Constants" not in str(field.type)
    ]


def numbers_of(module: Any) -> list[str]:
    inside = (getattr(module, field.name) for field in dataclasses.fields(module))
    parts = [part for part in inside if isinstance(part, eqx.Module)]
    return own_numbers(module) + [name for part in parts for name in numbers_of(part)]


def violations(problem: Problem, x0: PyTree, result: Result) -> np.ndarray:
    """||(c_E, [c_I]_+)||_1 of every replica."""
    structure = Structure.of(x0)
    each = [jax.tree.map(lambda leaf, r=r: leaf[r], result.xs) for r in range(len(result.funs))]
    with jax.enable_x64(True):
        oracles = problem.oracles(x0)
        xs = jnp.asarray(np.stack([structure.ravel(x) for x in each]))
        return np.asarray(_violations(oracles, xs), np.float64)


@compiled
def _violations(oracles: Oracles, xs: jax.Array) -> jax.Array:
    return jax.vmap(oracles.violation_l1)(xs)
