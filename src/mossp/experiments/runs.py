"""One part of an experiment: the grid of a contestant, or its runs, as plain numbers."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mossp.certificates.feasibility import restore
from mossp.certificates.stationarity import stationarity
from mossp.experiments.instances import Instance, Optimum, measured
from mossp.experiments.protocol import Contestant, Protocol
from mossp.result import Result, Status
from mossp.schedules import Rule, as_rule
from mossp.solving.arguments import cost
from mossp.solving.grid import tune, with_values
from mossp.solving.solve import Progress, solve

# Of the larger of criticality and violation: gradients and seconds until it is met for good.
LEVELS = (1e-2, 1e-3)


def gradients(protocol: Protocol, given: Instance, first: Contestant) -> int:
    """What MoSSP's K steps cost: the budget of its group."""
    rule, K = as_rule(first.schedule), protocol.steps[given.experiment]
    with jax.enable_x64(True):
        oracles = given.problem.oracles(given.x0)
    return cost(given.problem, oracles, first.method, rule, K, given.batch_size)


def choose(protocol: Protocol, given: Instance, who: Contestant, budget: int) -> dict[str, Any]:
    """The best point of the contestant's grid, by F + ||c||_1 after a part of the gradients."""
    best = tune(
        given.problem, given.x0, method=who.method, schedule=who.schedule, grid=who.grid,
        gradients=budget // protocol.share, batch_size=given.batch_size, seed=protocol.seed + 1,
    )  # fmt: skip
    return {
        "values": best.values, "merit": best.merit, "points": len(best.table),
        "at_edge": best.at_edge, "gradients": best.result.gradients, "table": best.table[:8],
    }  # fmt: skip


def run(
    protocol: Protocol, given: Instance, who: Contestant, values: dict[str, float],
    budget: dict[str, Any], best: Optimum,
) -> dict[str, Any]:  # fmt: skip
    """The runs with the chosen values: what they reached, and how they went."""
    rule: Rule = as_rule(who.schedule)
    method, rule = with_values(who.method, rule, values)
    at, when, xs = [0], [0.0], [np.broadcast_to(given.x0, (protocol.runs, given.x0.size))]

    def look(seen: Progress) -> None:
        at.append(seen.gradients)
        when.append(seen.seconds)
        xs.append(np.array(seen.x))

    def start(**budget: Any) -> Result:
        result = solve(
            given.problem, given.x0, method=method, schedule=rule, batch_size=given.batch_size,
            replicas=protocol.runs, seed=protocol.seed, trace=protocol.trace, callback=look,
            **budget,
        )  # fmt: skip
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt  # half a run is no part of an experiment
        return result

    if protocol.budget == "seconds":  # compile before the clock runs
        start(steps=protocol.trace)
        del at[1:], when[1:], xs[1:]
    result = start(**budget)
    objective, violation = measured(given.problem, np.stack(xs))
    restored = np.stack([restore(given.problem, x) for x in result.xs])
    gap = measured(given.problem, restored)[0] - best.value
    residual = [
        residuals(given, points, seen)
        for points, seen in zip(np.stack(xs).swapaxes(0, 1), violation.T, strict=True)
    ]
    cert = result.certificate
    return {
        "gradients": at, "seconds": when, "objective": objective.tolist(),
        "violation": violation.tolist(),
        "final": {
            "objective": objective[-1].tolist(), "violation": violation[-1].tolist(),
            "gap": gap.tolist(),
            "nonzeros": np.count_nonzero(result.xs, axis=1).tolist(),
            "stationarity": [stationarity(given.problem, x) for x in result.xs],
        },
        "reached": {
            f"{level:g}": [reached(at, when, each, level) for each in residual] for level in LEVELS
        },
        "certificate": {
            "criticality": cert.criticality, "proximity": cert.proximity,
            "feasibility": cert.feasibility, "status": result.status.name,
        },
        "cost": {"gradients": result.gradients, "seconds": result.seconds, "steps": result.steps},
        "form": result.settings["form"],
    }  # fmt: skip


def residuals(given: Instance, points: np.ndarray, violation: np.ndarray) -> np.ndarray:
    """The larger of ||u|| and the violation along one run; infinite before it stays low.

    Looked at from the end on, since what lies before the last large one does not matter.
    """
    found = np.full(len(points), np.inf)
    for k in reversed(range(len(points))):
        if not violation[k] <= LEVELS[0]:
            break
        found[k] = max(float(violation[k]), stationarity(given.problem, points[k]))
        if not found[k] <= LEVELS[0]:
            break
    return found


def reached(at: list[int], when: list[float], residual: np.ndarray, level: float) -> Any:
    """(gradients, seconds) from which the residual stays at or below the level; None if never.

    A low one that is left again does not count.

    Examples
    --------
    >>> reached([0, 10, 20, 30], [0.0, 1.0, 2.0, 3.0], np.array([0.0, 0.5, 0.01, 0.02]), 0.05)
    [20, 2.0]
    """
    above = np.flatnonzero(~(residual <= level))
    first = int(above[-1]) + 1 if above.size else 0
    return [at[first], when[first]] if first < len(at) else None
