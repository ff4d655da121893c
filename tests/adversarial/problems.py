"""Random problems: whatever a result says of its point is checked by hand.

`python -m tests.adversarial.problems FAMILY FIRST COUNT` solves some of a family and prints one
line of JSON each: a process per family keeps memory bounded, and a problem that hangs or kills its
process is itself a line of the table.
"""

from __future__ import annotations

import collections
import json
import queue
import sys
import threading
import time
import warnings
from typing import Any

import numpy as np

import mossp
from tests.adversarial import children
from tests.adversarial.families import Expect, Instance, draw
from tests.adversarial.kkt import flat, judge
from tests.adversarial.means import FAMILIES  # with those of means over rows
from tests.adversarial.table import Row, aligned

SECONDS = 10.0  # the budget of a solve: budgets are promises
PATIENCE = 240.0  # until a process that prints nothing is taken for hung, compilation included


def attack_one(name: str, number: int, warm: bool = True) -> dict[str, Any]:
    """Solve one problem and say what was wrong with what it said; a `warm` one compiles nothing."""
    case = draw(name, number)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning is a word of caution, not a failure
        result = mossp.solve(case.problem, case.x0, **{"seconds": SECONDS, **case.settings})
    took = time.perf_counter() - began
    faults, ratio = verdict(case, result)
    return {
        "family": name,
        "number": number,
        "status": result.status.name,
        "success": bool(result.success),
        "ratio": ratio,
        "faults": faults,
        "seconds": took - max(result.compile_seconds, 0.0) if warm else float("nan"),
    }


def verdict(case: Instance, result: Any) -> tuple[list[str], float]:
    """(what is false in the result, the largest residual relative to what its success claims)."""
    truth = judge(case.reference, flat(result.x), result)
    faults = []
    if result.success != (result.status is mossp.Status.CONVERGED):
        faults.append(f"success is {result.success} with the status {result.status.name}")
    if not np.isfinite(flat(result.x)).all():
        faults.append("x is not finite")
    if not truth.inside:
        faults.append("x is outside the domain of h")
    if result.success:
        if case.expect is not Expect.HONEST:
            faults.append(f"false success: expected {case.expect.value}")
        if not truth.finite:
            faults.append("false success: a function is not finite there")
        elif not truth.criticality <= 1:
            faults.append(f"false success: criticality is {truth.criticality:.3g} times allowed")
        if not truth.violation <= 1:
            faults.append(f"false success: violation is {truth.violation:.3g} times allowed")
    if truth.finite and truth.inside:
        if not truth.fun <= 1:
            faults.append(f"fun = {result.fun!r} is not F(x)")
        if not truth.reported <= 1:
            faults.append(f"violation = {result.violation!r} is not that of x")
    elif np.isfinite(result.fun) and not truth.finite:
        faults.append(f"fun = {result.fun!r} where a function is not finite")
    if not result.message.strip():
        faults.append("there is no message")
    return faults, truth.worst if result.success else float("nan")


# Many of them, in processes ---------------------------------------------------------------------


def stream(name: str, first: int, count: int) -> list[dict[str, Any]]:
    """The reports of a family."""
    return children.supervise(
        "problems", (name,), count, PATIENCE, first, lambda number, fault: lost(name, number, fault)
    )


def lost(name: str, number: int, fault: str) -> dict[str, Any]:
    return {
        "family": name, "number": number, "status": "LOST", "success": False,
        "ratio": float("nan"), "faults": [fault], "seconds": float("nan"),
    }  # fmt: skip


def attack(total: int, workers: int = 2) -> tuple[list[Row], str]:
    """`total` problems over all families, and the table by family."""
    each = -(-total // len(FAMILIES))
    names: queue.Queue[str] = queue.Queue()
    for name in FAMILIES:
        names.put(name)
    reports: list[dict[str, Any]] = []

    def work() -> None:
        while True:
            try:
                name = names.get_nowait()
            except queue.Empty:
                return
            found = stream(name, 0, each)
            reports.extend(found)
            print(by_family(found, header=False), flush=True)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rows_of(reports), by_family(reports)


def rows_of(reports: list[dict[str, Any]]) -> list[Row]:
    seeds = f"{len(FAMILIES)} families, conditions by hand in 80-bit NumPy"
    success = Row("a success is a KKT point at tol", seeds)
    honest = Row("x, fun, violation, status are true, whatever the status", seeds)
    ends = Row("a small solve ends", f"seconds={SECONDS:g}; {PATIENCE:.0f} s of silence is a hang")
    for report in reports:
        where = f"{report['family']} {report['number']}: "
        false = [fault for fault in report["faults"] if fault.startswith("false success")]
        gone = report["status"] == "LOST"
        other = [fault for fault in report["faults"] if fault not in false and not gone]
        success.add(where + "; ".join(false) if false else None)
        honest.add(where + "; ".join(other) if other else None)
        late = not gone and report["seconds"] > 1.05 * SECONDS + 1.0
        slow = [f"took {report['seconds']:.1f} s"] if late else []
        ends.add(where + "; ".join(report["faults"] if gone else slow) if gone or late else None)
    solved = sum(report["success"] for report in reports)
    success.figures = f"{solved:,} successes, worst residual {worst(reports):.2g} of allowed"
    took = [report["seconds"] for report in reports if report["seconds"] == report["seconds"]]
    ends.figures = f"median {np.median(took):.2g} s, longest {max(took):.3g} s" if took else ""
    return [success, honest, ends]


def worst(reports: list[dict[str, Any]]) -> float:
    return max((r["ratio"] for r in reports if r["ratio"] == r["ratio"]), default=0.0)


def by_family(reports: list[dict[str, Any]], header: bool = True) -> str:
    lines = []
    for name in dict.fromkeys(report["family"] for report in reports):
        mine = [report for report in reports if report["family"] == name]
        statuses = collections.Counter(report["status"] for report in mine).most_common()
        false = sum(any("false" in fault for fault in report["faults"]) for report in mine)
        took = [report["seconds"] for report in mine if report["seconds"] == report["seconds"]]
        lines.append([
            name.ljust(28), len(mine), sum(report["success"] for report in mine), false,
            f"{worst(mine):.2g}", f"{max(took, default=0):.1f}",
            ", ".join(f"{status} {count}" for status, count in statuses),
        ])  # fmt: skip
    columns = ["family", "tries", "success", "false", "worst", "longest s", "statuses"]
    text = aligned(columns, lines)
    return text if header else text.split("\n", 1)[1]


if __name__ == "__main__":
    family, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for number in range(first, first + count):
        print(json.dumps(attack_one(family, number, number > first)), flush=True)
