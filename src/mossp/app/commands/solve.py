"""`mossp solve`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mossp.app import exits, options, preparation, terminal


def command(
    problem: options.ProblemName = None,
    method: options.Method = "auto",
    steps: options.ReplicaSteps = None,
    batch_size: options.BatchSize = None,
    replicas: options.Replicas = 1,
    starts: options.Starts = 1,
    polish: options.Polish = None,
    seed: options.Seed = 0,
    tol: options.Tol = None,
    schedule: options.Schedule = "auto",
    report: options.SolveReport = Path("mossp-report"),
    as_json: options.AsJson = False,
    no_report: options.NoReport = False,
) -> int:
    """Solve the built-in example, or your own.

    The example finds few measurements that tell malignant tumours from benign ones and miss at
    most 1 % of them, on scikit-learn's tumour data.
    """
    settings = {
        "method": method, "steps": steps, "batch_size": batch_size, "replicas": replicas,
        "seed": seed, "tol": tol, "schedule": schedule, "starts": starts, "polish": polish,
    }  # fmt: skip
    try:
        return solve(problem, settings, None if no_report else report, as_json)
    except KeyboardInterrupt:
        return exits.TOO_EARLY


def solve(which: str | None, settings: dict[str, Any], report: Path | None, as_json: bool) -> int:
    import mossp
    from mossp import examples
    from mossp.app import scripts

    preparation.check_folder("--report", report)
    if which is None:
        problem, start, known = examples.screening()
        names: Sequence[str] | None = known
        x0, title = start(settings["seed"]), "Tumours: few measurements, few malignant ones missed"
    else:
        problem, x0, names = scripts.load(which)
        title = f"The problem {which}"
    # What a package prints goes to stderr, and stdout is ours. So does the bar.
    with contextlib.redirect_stdout(sys.stderr), terminal.plain_warnings():
        result = mossp.solve(problem, x0, progress=sys.stderr.isatty(), **settings)
    if as_json:
        print(json.dumps(terminal.as_object(result, names), allow_nan=False))
    else:
        terminal.say(title)
        terminal.print_result(result)
        if which is None:
            ours = examples.screened("this rule", result.x)
            terminal.print_screened([ours, *examples.screened_without()])
    sys.stdout.flush()
    if report is not None:
        from mossp.report import write_page

        path = write_page(result, report, title=title, names=names)
        terminal.say(f"Report: {path}", sys.stderr if as_json else sys.stdout)
    return exits.code_of(result)
