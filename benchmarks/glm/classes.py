"""Table 3: three classes, 4,000 x 20, the strength of l1 among 20 by 5 folds, with intercepts.

All search the same strengths, from lam_max to lam_max/1000, on the same folds. saga's tolerance is
the loosest at which its final model has a relative duality gap of 1e-9; `all` is the largest gap of
its models, of the folds and final, which stays large where all coefficients are zero: saga ends
there without a look at its intercept. Its C is 1 / (lam rows) with the rows of a fold, so that its
final model, on more rows, has a smaller lam; every gap is of the strength that was solved for.

`mossp fit` is a process from its start to its end: Python, imports, reading the CSV file, the
search, the model file; no rows kept for a test, no report. It is run with an empty folder of
compiled programs, and again. Other times are of `fit`, the second call; processes start no workers
unless n_jobs says so.

    mossp fit / saga                     at most 1.0
    PathCV / GridSearchCV                at most 0.5
    PathCV, n_jobs=2 / n_jobs=1          at most 1.0
"""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from optimality import softmax_gap
from settings import Settings, flag
from worker import NotAvailable, Worker

ROWS, COLUMNS, TRUE_FEATURES, CLASSES = 4_000, 20, 6, 3
QUICK_ROWS = 400
GOOD = 1e-9
SMALLEST = 1e-3  # of lam_max
ALLOWANCE = 3.0  # limits of a single call that a search may take
TOLERANCES = tuple(10.0**-k for k in range(4, 13))
MODEL_COMMAND = "import sys; from mossp.app.cli import main; sys.exit(main())"


class Searched(NamedTuple):
    """A search: what it took, and its final model."""

    seconds: float
    lam: float
    W: np.ndarray  # features x classes
    b: np.ndarray
    score: float  # mean over the folds at the chosen strength
    folds: Any = None  # (strength x fold) models of saga


class Size(NamedTuple):
    rows: int
    strengths: int
    folds: int


def size_of(quick: bool) -> Size:
    return Size(QUICK_ROWS, 5, 3) if quick else Size(ROWS, 20, 5)


@functools.cache
def data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, COLUMNS))
    W = np.zeros((COLUMNS, CLASSES))
    W[:TRUE_FEATURES] = rng.standard_normal((TRUE_FEATURES, CLASSES))
    P = scipy.special.softmax(X @ W, axis=1)
    return X, (P.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)


def strengths(size: Size) -> np.ndarray:
    """From lam_max, where W = 0 and b has the shares of the classes, down to a thousandth."""
    X, y = data(size.rows)
    Y = np.eye(CLASSES)[y]
    top = np.abs(X.T @ (Y - Y.mean(axis=0))).max() / len(y)
    return np.geomspace(top, SMALLEST * top, size.strengths)


def folds_of(size: Size) -> list[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(size.folds).split(*data(size.rows)))


# Searches, in a worker ---------------------------------------------------------------------------


def saga(size: Size, tol: float) -> Searched:
    from sklearn.linear_model import LogisticRegressionCV

    X, y = data(size.rows)
    folds = folds_of(size)
    model = LogisticRegressionCV(
        Cs=1 / (strengths(size) * len(folds[0][0])), cv=folds, solver="saga", l1_ratios=(1.0,),
        scoring="accuracy", tol=tol, max_iter=1_000_000, n_jobs=1, random_state=0,
        use_legacy_attributes=False,
    )  # fmt: skip
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    score = float(model.scores_.mean(axis=0).max())
    lam = 1 / (float(model.C_) * len(y))
    return Searched(seconds, lam, model.coef_.T, model.intercept_, score, model.coefs_paths_)


def path_cv(size: Size, n_jobs: int | None) -> Searched:
    from mossp.sklearn import MoSSPClassifier, PathCV

    more = {} if n_jobs is None else {"n_jobs": n_jobs}
    search = PathCV(MoSSPClassifier(), lams=strengths(size), cv=folds_of(size), **more)
    began = time.perf_counter()
    search.fit(*data(size.rows))
    seconds = time.perf_counter() - began
    score = float(search.scores_.mean(axis=0).max())
    return Searched(seconds, search.lam_, search.coef_.T, search.intercept_, score)


def takes_n_jobs() -> bool:
    from mossp.sklearn import PathCV

    return "n_jobs" in inspect.signature(PathCV).parameters


def grid_search(size: Size) -> Searched:
    from sklearn.model_selection import GridSearchCV

    from mossp.sklearn import MoSSPClassifier

    search = GridSearchCV(
        MoSSPClassifier(), {"lam": strengths(size).tolist()}, cv=folds_of(size), n_jobs=1
    )
    began = time.perf_counter()
    search.fit(*data(size.rows))
    seconds, best = time.perf_counter() - began, search.best_estimator_
    score = float(search.best_score_)
    return Searched(seconds, search.best_params_["lam"], best.coef_.T, best.intercept_, score)


# What is measured --------------------------------------------------------------------------------


def gap_of(found: Searched, size: Size) -> float:
    return softmax_gap(*data(size.rows), found.W, found.b, found.lam)


def largest_gap(found: Searched, size: Size) -> float:
    """Of saga's final model and those of the folds: folds x 1 x strengths x classes x (n + 1)."""
    X, y = data(size.rows)
    worst = gap_of(found, size)
    for (train, _), models in zip(folds_of(size), np.asarray(found.folds), strict=True):
        lams = strengths(size) * len(folds_of(size)[0][0]) / len(train)  # C is the same for all
        for lam, model in zip(lams, models.reshape(-1, *models.shape[-2:]), strict=True):
            gap = softmax_gap(X[train], y[train], model[:, :-1].T, model[:, -1], lam)
            worst = max(worst, gap)
    return worst


def command(size: Size, cache: str, limit: float) -> float:
    """Seconds of `mossp fit` in a process of its own."""
    X, y = data(size.rows)
    with tempfile.TemporaryDirectory() as folder:
        names = ",".join([*(f"f{j}" for j in range(COLUMNS)), "class"])
        lines = [
            ",".join([*map(repr, row.tolist()), "abc"[c]]) for row, c in zip(X, y, strict=True)
        ]
        table = Path(folder) / "rows.csv"
        table.write_text("\n".join([names, *lines, ""]))
        began = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, "-c", MODEL_COMMAND, "fit", str(table), "--target", "class",
                 "--regularizer", "l1", "--test", "0", "--no-standardize", "--no-report",
                 "--out", str(Path(folder) / "model.mossp")],
                env={**os.environ, "MOSSP_CACHE": cache}, capture_output=True, text=True,
                timeout=limit,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NotAvailable(f"more than {limit:.0f} s") from None
        seconds = time.perf_counter() - began
        if done.returncode != 0:
            raise NotAvailable(f"exit code {done.returncode}: {done.stderr.strip()[-200:]}")
        return seconds


def main(settings: Settings) -> None:
    size, limit = size_of(settings.quick), ALLOWANCE * settings.limit
    print(f"\nThree classes, {size.rows:,} x {COLUMNS}, {size.strengths} strengths x {size.folds} "
          "folds, l1")  # fmt: skip
    print(f"  {'search':26} {'gap':>8} {'all':>8} {'lam':>9} {'accuracy':>8} {'seconds':>8} ratio")
    with Worker() as worker:
        rival = saga_at_the_gap(worker, size, limit)
        grid = searched(worker, "GridSearchCV of ours", size, limit, grid_search, size)
        jobs = worker.call(takes_n_jobs, limit=limit)
        paths = searched(
            worker, "PathCV", size, limit, path_cv, size, 1 if jobs else None,
            than=grid, most=0.5, what="GridSearchCV",
        )  # fmt: skip
        if jobs:
            searched(worker, "PathCV, n_jobs=2", size, limit, path_cv, size, 2,
                     than=paths, most=1.0, what="n_jobs=1")  # fmt: skip
        else:
            print("  PathCV, n_jobs=2           N/A: PathCV has no n_jobs")
    with tempfile.TemporaryDirectory() as cache:
        for label in ("mossp fit, nothing on disk", "mossp fit, again"):
            try:
                seconds = command(size, cache, limit)
            except NotAvailable as reason:
                print(f"  {label:26} N/A: {reason}", flush=True)
                continue
            show(label, seconds, None, "", rival, 1.0, "saga")


def saga_at_the_gap(worker: Worker, size: Size, limit: float) -> float | None:
    """Seconds at the loosest tolerance that gets there."""
    for tol in TOLERANCES:
        label = f"saga, tol = {tol:.0e}"
        try:
            found = worker.call(saga, size, tol, limit=limit)
        except NotAvailable as reason:
            print(f"  {label:26} N/A: {reason}", flush=True)
            return None
        there = gap_of(found, size) <= GOOD
        show(label, found.seconds, found, f"{largest_gap(found, size):.1e}", None, 0, "", size)
        if there:
            return found.seconds
    return None


def searched(
    worker: Worker, label: str, size: Size, limit: float, function: Any, *args: Any,
    than: float | None = None, most: float = 0.0, what: str = "",
) -> float | None:  # fmt: skip
    """Seconds of the second call of one of our searches, shown."""
    try:
        worker.call(function, *args, limit=limit)
        found = worker.call(function, *args, limit=limit)
    except NotAvailable as reason:
        print(f"  {label:26} N/A: {reason}", flush=True)
        return None
    show(label, found.seconds, found, "", than, most, what, size)
    return found.seconds


def show(
    label: str, seconds: float, found: Searched | None, folds: str, than: float | None, most: float,
    what: str, size: Size | None = None,
) -> None:  # fmt: skip
    model = " " * 36
    if found is not None and size is not None:
        gap = gap_of(found, size)
        model = f"{gap:8.1e} {folds:>8} {found.lam:9.2e} {found.score:8.4f}"
    ratio = "" if than is None else f"{seconds / than:.2f} of {what}{flag(seconds > most * than)}"
    print(f"  {label:26} {model} {seconds:8.2f} {ratio}", flush=True)
