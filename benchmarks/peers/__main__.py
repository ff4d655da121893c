"""`make compare`: all suites, or one; results.csv, figures and the tables of docs/compared.md.

    MOSSP_DATA=folder python -m benchmarks.peers [a b c d] [--trials 20] [--seeds 5]

Each peer runs in an environment of its own in build/peers/, made by name from the package index;
--python peer=/path/python or PEERS_PYTHON (for all) use what is there instead.
"""

from __future__ import annotations

import argparse
import importlib
import time

from benchmarks.peers import results, tables
from benchmarks.peers.asked import Asked
from benchmarks.peers.environments import PACKAGES, Environments, given

SUITES = ("a", "b", "c", "d")


def arguments() -> tuple[list[str], Asked, bool]:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.peers", description=__doc__.splitlines()[0]
    )
    parser.add_argument("suites", nargs="*", metavar="suite", help="of a, b, c, d; all if left out")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PYTHON",
                        help=f"an interpreter that has {', '.join(PACKAGES)} or all")  # fmt: skip
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--floor", type=float, default=0.5, help="seconds of a peer's run at least")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of a run at most")
    parser.add_argument("--jobs", type=int, default=2, help="workers side by side")
    parser.add_argument("--quick", action="store_true", help="few problems, to see that all runs")
    parser.add_argument("--problems", type=int, help="of a suite, the first ones; all if left out")
    parser.add_argument("--samples", type=int, default=640_000, help="where samples are counted")
    parser.add_argument("--only", default="", metavar="PATTERN",
                        help="problems of suites a and b with this in their names, such as "
                        "'by samples'; the rows of others stay")  # fmt: skip
    parser.add_argument("--tables", action="store_true", help="only write the tables again")
    asked = parser.parse_args()
    for name in asked.suites:
        if name not in SUITES:
            parser.error(f"{name!r} is not one of {', '.join(SUITES)}")
    settings = Asked(
        Environments(given(asked.python)), asked.trials, asked.seeds, asked.floor,
        limit=asked.limit, jobs=asked.jobs, quick=asked.quick, problems=asked.problems,
        samples=asked.samples, only=asked.only,
    )  # fmt: skip
    return [] if asked.tables else asked.suites or list(SUITES), settings, asked.quick


def main() -> None:
    suites, asked, quick = arguments()
    for suite in suites:
        module, began = importlib.import_module(f"benchmarks.peers.suites.{suite}"), time.time()
        before = asked.environments.installing
        print(f"suite {suite}: {module.__doc__.splitlines()[0]}", flush=True)
        outcome = module.run(asked)
        installing = (asked.environments.installing - before) / 60
        print(f"suite {suite}: {(time.time() - began) / 60:.1f} minutes, {installing:.1f} of them "
              "for environments that were installed", flush=True)  # fmt: skip
        if quick:
            print(tables.table(outcome.rows))
        else:
            results.replace(suite, outcome.rows, part=bool(asked.only))
            outcome.draw()
    if not quick:
        tables.write(results.read())


if __name__ == "__main__":
    main()
