"""Generalised linear models: figures against scikit-learn, skglm and celer, in one run.

    MOSSP_DATA=folder python benchmarks/glm [table ...] [--sets a9a,sparse] [--solvers ...]
                                            [--limit 60] [--quick]

l1         l1 logistic regression to a relative duality gap of 1e-9
penalties  MCP and SCAD, against skglm
paths      50 strengths of l1, MCP and SCAD, against skglm
classes    three classes: `mossp fit` and PathCV against LogisticRegressionCV (saga), GridSearchCV
sphere     l1 - l2 on the sphere, sparse rows against dense ones
large      a million variables on the sphere: seconds and memory

Sets: a9a (left out where MOSSP_DATA has none); sparse, 50,000 x 300 with 4 % filled; wide, 20,000 x
100,000 with 0.1 %; text, the same with some columns much fuller than others; dense, 2,000 x 500;
dense-wide, 500 x 5,000. A peer that does not reach what is asked within --limit seconds, or is not
installed, is N/A, and SHORT marks what misses its bound.
Needs scikit-learn, skglm and celer: pip install -e '.[bench]'.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile

from sets import NAMES
from settings import Settings
from solvers import SOLVERS

TABLES = ("l1", "penalties", "paths", "classes", "sphere", "large")


def arguments(cache: str) -> tuple[list[str], Settings]:
    parser = argparse.ArgumentParser(
        "benchmarks/glm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; all if left out")
    parser.add_argument("--sets", default=",".join(NAMES), help="names, with commas")
    parser.add_argument("--solvers", default=",".join(SOLVERS), help="names, with commas")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for a call")
    parser.add_argument("--quick", action="store_true", help="small sets, to see that all runs")
    given = parser.parse_args()
    asked = (given.tables, given.sets.split(","), given.solvers.split(","))
    for names, known in zip(asked, (TABLES, NAMES, tuple(SOLVERS)), strict=True):
        for name in names:
            if name not in known:
                parser.error(f"{name!r} is not one of {', '.join(known)}")
    sets, solvers = (tuple(names) for names in asked[1:])
    return given.tables or list(TABLES), Settings(given.quick, given.limit, sets, solvers, cache)


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        tables, settings = arguments(cache)
        for table in tables:
            importlib.import_module(table).main(settings)


if __name__ == "__main__":
    main()
