"""The classifier against scikit-learn's saga (L1) and skglm (MCP), on the same objective.

    MOSSP_DATA=folder python benchmarks/estimators.py [breast-cancer] [digits] [digits-10] [a9a]

F is recomputed here for every answer. Times are of `fit`, the first call (compilation and all) and
the second; ratios are to the other solver in the same run. Without a9a in MOSSP_DATA it is left
out. Needs scikit-learn and skglm: pip install -e '.[bench]'.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

import mossp
from mossp.data import read_libsvm
from mossp.sklearn import MoSSPClassifier

STRENGTHS = {  # of L1, of MCP
    "breast-cancer": ((1e-2, 1e-3), (1e-1, 5e-2)),
    "digits": ((1e-2, 1e-3), (5e-2, 2e-2)),
    "digits-10": ((1e-2, 1e-3), ()),
    "a9a": ((1e-3, 1e-4), (1e-2, 3e-3)),
}
GAMMA = 3.0


def data(name: str) -> tuple[Any, np.ndarray] | None:
    if name == "breast-cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return scale(X), y
    if name.startswith("digits"):
        X, y = load_digits(return_X_y=True)
        return X / 16, y if name == "digits-10" else (y >= 5).astype(int)
    folder = os.environ.get("MOSSP_DATA")
    if not folder or not (Path(folder) / "a9a").exists():
        return None
    X, y = read_libsvm(Path(folder) / "a9a")
    return X, (y > 0).astype(int)


def objective(X: Any, y: np.ndarray, coef: np.ndarray, intercept: Any, reg: Any) -> float:
    scores = np.asarray(X @ np.atleast_2d(coef).T) + np.ravel(intercept)
    if scores.shape[1] == 1:
        f = np.mean(np.logaddexp(0, -np.where(y == 1, 1, -1) * scores[:, 0]))
    else:
        f = np.mean(scipy.special.logsumexp(scores, axis=1) - scores[np.arange(len(y)), y])
    return float(f + reg(np.ravel(coef)))


def timed(function: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    return function(), time.perf_counter() - began


def saga(X: Any, y: np.ndarray, lam: float) -> Any:
    model = LogisticRegression(
        l1_ratio=1.0, C=1 / (lam * X.shape[0]), solver="saga", tol=1e-7, max_iter=3_000
    )
    return model.fit(X, y)


def skglm(X: Any, y: np.ndarray, lam: float) -> Any:
    from skglm import GeneralizedLinearEstimator
    from skglm.datafits import Logistic
    from skglm.penalties import MCPenalty
    from skglm.solvers import AndersonCD

    solver = AndersonCD(fit_intercept=True, tol=1e-9, max_iter=20, max_epochs=2000)
    model = GeneralizedLinearEstimator(Logistic(), MCPenalty(lam, GAMMA), solver)
    return model.fit(scipy.sparse.csc_matrix(X) if scipy.sparse.issparse(X) else X, y)


def compare(name: str, X: Any, y: np.ndarray, lam: float, other: str) -> None:
    regularizer = mossp.L1(lam) if other == "saga" else mossp.MCP(lam, GAMMA)
    rival = {"saga": saga, "skglm": skglm}[other]
    ours = lambda: MoSSPClassifier(regularizer=regularizer).fit(X, y)  # noqa: E731
    model, first = timed(ours)
    second = timed(ours)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, their_first = timed(lambda: rival(X, y, lam))
        their_second = timed(lambda: rival(X, y, lam))[1]
    F = objective(X, y, model.coef_, model.intercept_, regularizer)
    G = objective(X, y, theirs.coef_, theirs.intercept_, regularizer)
    holds = "yes" if model.result_.success else "NO"
    print(
        f"{name:14} {other:6} {lam:7.0e} {F:.10f} {(F - G) / abs(G):+9.1e} "
        f"{np.count_nonzero(model.coef_):5d} {np.count_nonzero(theirs.coef_):5d} {holds:>5} "
        f"{first:8.2f} {second:7.2f} {their_first:8.2f} {their_second:7.2f} "
        f"{first / their_first:7.2f} {second / their_second:7.2f}",
        flush=True,
    )


def main(names: list[str]) -> None:
    print(
        f"{'data':14} {'rival':6} {'lam':>7} {'F of ours':>12} {'rel. F-F':>9} {'ours':>5} "
        f"{'its':>5} {'cert.':>5} {'first s':>8} {'second':>7} {'its 1st':>8} {'its 2nd':>7} "
        f"{'ratio 1':>7} {'ratio 2':>7}"
    )
    for name in names or list(STRENGTHS):
        found = data(name)
        if found is None:
            print(f"{name:14} left out: set MOSSP_DATA to a folder that has it")
            continue
        for other, lams in zip(("saga", "skglm"), STRENGTHS[name], strict=True):
            for lam in lams:
                compare(name, *found, lam, other)


if __name__ == "__main__":
    main(sys.argv[1:])
