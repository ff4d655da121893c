"""A result put into words and rows, the same for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from mossp._base.types import PyTree
from mossp.certificates.conditions import VIOLATED, conditions
from mossp.report import numbers
from mossp.result import Result, Status

MOST_CONSTRAINTS = 50  # rows of a table


class Row(NamedTuple):
    """One line of the certificate."""

    name: str
    symbol: str
    value: str
    relative: str  # the value in units of its scale
    bound: str  # what that is held against
    holds: bool | None  # None: shown for information, and not part of the verdict
    meaning: str


def headline(result: Result) -> str:
    """Whether it worked, in one sentence."""
    tol = numbers.tolerance(result.tol)
    if result.success:
        return f"The certificate holds at tolerance {tol}."
    return f"The certificate does not hold at tolerance {tol}."


def explanation(result: Result) -> str:
    """The headline, and what else there is to say about how the run ended."""
    if result.status is Status.BUDGET:  # whose message says all of it
        return result.message
    more = result.message.removeprefix(Status.CONVERGED.value).strip()
    return f"{headline(result)} {more}".strip()


def certificate_rows(result: Result) -> list[Row]:
    """Each residual, what it is held against, and whether it holds.

    Examples
    --------
    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(loss=lambda x: x[0], equality=lambda x: x @ x - 1.0)
    >>> result = mossp.solve(problem, np.array([0.6, 0.8]), tol=0.01)
    >>> [(row.name, row.bound) for row in certificate_rows(result)][:2]
    [('criticality', '≤ 0.01'), ('proximity', '≤ 0.01')]
    """
    c, tol = result.certificate, result.tol
    bound = f"≤ {numbers.tolerance(tol)}"

    def row(name: str, symbol: str, value: float, meaning: str) -> Row:
        error = c.error(name)
        shown = numbers.residual(value) + (f" + {numbers.residual(error)}" if error > 0 else "")
        relative = c.bound(name, relative=True)
        return Row(
            name, symbol, shown, numbers.residual(relative), bound, bool(relative <= tol), meaning
        )

    rows = [
        row("criticality", "‖u‖", c.criticality, "what is left of the stationarity condition"),
        row("proximity", "‖x − y‖", c.proximity,
            "distance between the points where h and g are judged"),
    ]  # fmt: skip
    if not constrained(result):
        return rows
    rows.append(
        row("feasibility", "‖c‖", c.feasibility, "by how much the constraints are violated")
    )
    if math.isfinite(c.smallest_multiplier):
        rows += [
            row("complementarity", "‖min(λ, −c)‖", c.complementarity,
                "an inequality has slack or a multiplier, not both"),
            Row("smallest multiplier", "min λ", numbers.residual(c.smallest_multiplier),
                numbers.NONE, "≥ 0",
                bool(c.smallest_multiplier >= 0), "multipliers of inequalities are not negative"),
        ]  # fmt: skip
    rows.append(
        Row("infeasible stationarity", "‖J c‖", numbers.residual(c.infeasible_stationarity),
            numbers.NONE, numbers.NONE, None,
            "small with a large violation: stuck away from the constraints")
    )  # fmt: skip
    return rows


class Bound(NamedTuple):
    """One line of the table of constraints."""

    text: str
    value: str
    bound: str
    slack: str
    multiplier: str
    state: str


def constraint_rows(result: Result) -> tuple[list[Bound], str]:
    """(the constraints, those that hold the answer back first; what the dearest one costs).

    Examples
    --------
    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(
    ...     loss=lambda x: (x - 2.0) @ (x - 2.0), inequality=lambda x: {"x[0] <= 1": x[0] - 1.0}
    ... )
    >>> rows, price = constraint_rows(mossp.solve(problem, np.zeros(2)))
    >>> rows[0].value, rows[0].bound, rows[0].state
    ('1', '≤ 1', 'active')
    >>> print(price)
    One more unit of the bound of x[0] <= 1 would buy about 2 of the objective.
    """
    found = conditions(result.certificate, result.tol)
    found.sort(key=lambda one: (one.state != VIOLATED, -abs(one.multiplier)))
    stuck = result.status is Status.INFEASIBLE_STATIONARY
    signs = {"=": "=", "<=": "≤", ">=": "≥"}
    rows = [
        Bound(
            one.text, numbers.value(one.value, 6),
            f"{signs[one.relation]} {numbers.value(one.bound, 6)}", numbers.residual(one.slack),
            numbers.value(one.multiplier, 4),
            "violated, in conflict" if stuck and one.state == VIOLATED else one.state,
        )
        for one in found[:MOST_CONSTRAINTS]
    ]  # fmt: skip
    priced = [one for one in found if one.relation != "=" and one.multiplier > 0]
    if stuck or not priced:
        return rows, ""
    dearest = max(priced, key=lambda one: one.multiplier)
    # A unit is small beside the bound: prices hold to first order.
    small = 0 < abs(dearest.bound) < 1
    unit = 10.0 ** math.floor(math.log10(abs(dearest.bound)) - 1) if small else 1.0
    step = f"{numbers.value(unit, 1)} more" if small else "One more unit"
    return rows, (
        f"{step} of the bound of {dearest.text} would buy about "
        f"{numbers.value(unit * dearest.multiplier, 4)} of the objective."
    )


def basis(result: Result) -> str:
    """From what the certificate was computed."""
    c = result.certificate
    gradient = (
        "the full gradient" if c.samples is None else numbers.counted(c.samples, "fresh sample")
    )
    if c.form == "exact":
        return f"Computed from {gradient}, with the best multipliers and subgradients at x itself."
    return f"Computed from {gradient} and the subgradients of the method's last step."


def constrained(result: Result) -> bool:
    """Whether the problem has constraints."""
    number = result.settings.get("constraints")
    if number is not None:
        return bool(number)
    return any(np.size(leaf) for leaf in jax.tree.leaves(result.certificate.multipliers))


def coefficients(result: Result, names: Sequence[str] | None = None) -> list[tuple[str, float]]:
    """The nonzero entries of x with their names, the largest first.

    Without names, an entry is called by where it is in x: "x[3]", "w[0, 1]".
    """
    leaves = jax.tree_util.tree_flatten_with_path(result.x)[0]
    flat = [float(v) for _, leaf in leaves for v in np.asarray(leaf, np.float64).ravel()]
    called = [str(n) for n in names] if names is not None else list(_places(leaves))
    if len(called) != len(flat):
        raise ValueError(
            f"x has {len(flat)} entries, but {len(called)} names were given: give one for each."
        )
    nonzero = [pair for pair in zip(called, flat, strict=True) if pair[1] != 0]
    # NaN before all others: it is what should be seen first.
    return sorted(nonzero, key=lambda pair: -abs(pair[1]) if pair[1] == pair[1] else -math.inf)


def size(result: Result) -> int:
    """The number of entries of x."""
    return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(result.x))


def intercepts(result: Result, names: Sequence[str] | None = None) -> list[tuple[str, float]]:
    """Entries of x that are intercepts: those of a linear model, {"coef", "intercept"}."""
    if not isinstance(result.x, dict) or set(result.x) != {"coef", "intercept"}:
        return []
    values = np.ravel(result.x["intercept"]).astype(float).tolist()
    called = (
        [f"intercept[{k}]" if len(values) > 1 else "intercept" for k in range(len(values))]
        if names is None
        else [str(name) for name in names[-len(values) :]]
    )
    return list(zip(called, values, strict=True))


def _places(leaves: list[tuple[Any, PyTree]]) -> Any:
    for path, leaf in leaves:
        parts = [str(getattr(p, "key", getattr(p, "name", getattr(p, "idx", p)))) for p in path]
        stem = ".".join(parts) or "x"
        for index in np.ndindex(np.shape(leaf)):
            yield f"{stem}[{', '.join(map(str, index))}]" if index else stem
