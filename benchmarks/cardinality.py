"""Linear models with at most k features: `max_features` against abess.

python benchmarks/cardinality.py [FOLDER OF a9a, phishing, australian]

For k = 5, 10, 20 on five generated sets and three real ones: the loss of both (abess's columns are
fitted anew, so that only the choice of columns is compared) and the time of a warm fit, the least
of three, with one thread each.
"""

from __future__ import annotations

import functools
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from abess import LinearRegression, LogisticRegression  # noqa: E402

from mossp import losses  # noqa: E402
from mossp.data.libsvm import read_libsvm  # noqa: E402
from mossp.sklearn import MoSSPClassifier, MoSSPRegressor  # noqa: E402
from mossp.sklearn.rows import Rows  # noqa: E402
from mossp.sklearn.splicing import KNOWN, Search  # noqa: E402

SIZES = (5, 10, 20)
EQUAL = 1e-9  # relative: losses that differ by less are equal


def generated():
    rng = np.random.default_rng(0)
    for name, N, p, kind in (
        ("normal", 500, 1000, "squared"), ("correlated", 500, 500, "squared"),
        ("weak", 300, 2000, "squared"), ("classes", 1000, 500, "logistic"),
        ("classes, correlated", 2000, 300, "logistic"),
    ):  # fmt: skip
        Z = rng.normal(size=(N, p))
        if "correlated" in name:
            for j in range(1, p):
                Z[:, j] = 0.8 * Z[:, j - 1] + 0.6 * Z[:, j]
        x = np.zeros(p)
        x[rng.choice(p, 12, replace=False)] = rng.choice([-1, 1], 12) * rng.uniform(0.3, 1.5, 12)
        x *= 0.4 if name == "weak" else 1.0
        score = Z @ x
        if kind == "squared":
            yield name, Z, score + rng.normal(size=N), kind
        else:
            yield name, Z, np.where(score + rng.logistic(size=N) > 0, 1.0, -1.0), kind


def real(folder):
    for name in ("a9a", "phishing", "australian"):
        X, y = read_libsvm(Path(folder) / name)
        yield name, np.asarray(X.todense()), np.where(y > 0, 1.0, -1.0), "logistic"


def timed(fit):
    fit()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        fitted = fit()
        times.append(time.perf_counter() - began)
    return fitted, min(times)


def main(folder):
    print(f"{'set':<20} {'k':>3} {'mossp':>12} {'abess':>12} {'':>7} {'s':>7} {'s':>7} ratio")
    cells = []
    for name, X, y, kind in (*generated(), *real(folder)):
        theirs, ours = (
            (LinearRegression, MoSSPRegressor) if kind == "squared"
            else (LogisticRegression, MoSSPClassifier)
        )  # fmt: skip
        loss = getattr(losses, kind)
        for k in (k for k in SIZES if k < X.shape[1]):
            search = Search(KNOWN[type(loss)], Rows(X, y, np.ones(len(y))), k, True)
            target = y if kind == "squared" else (y > 0).astype(int)
            model, t = timed(functools.partial(ours(max_features=k).fit, X, y))
            peer, s = timed(functools.partial(theirs(support_size=k).fit, X, target))
            columns = np.flatnonzero(np.ravel(peer.coef_))
            fun = search.fit(columns, None, 1e-10).loss
            assert np.count_nonzero(model.coef_) <= k and len(columns) <= k
            good = model.result_.fun <= fun + EQUAL * (1 + abs(fun))
            cells.append((good, t / s))
            mark = (
                "equal"
                if abs(model.result_.fun - fun) <= EQUAL * (1 + abs(fun))
                else ("lower" if good else "HIGHER")
            )
            print(f"{name:<20} {k:>3} {model.result_.fun:12.8f} {fun:12.8f} {mark:>7} {t:7.3f} "
                  f"{s:7.3f} {t / s:5.1f}", flush=True)  # fmt: skip
    ratios = np.array([r for _, r in cells])
    print(f"loss at most equal in {sum(g for g, _ in cells)} of {len(cells)} cells; time: median "
          f"ratio {np.median(ratios):.1f}, within 3 times in {np.sum(ratios <= 3)}")  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("MOSSP_DATA", "."))
