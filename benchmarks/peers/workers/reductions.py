"""fairlearn: ExponentiatedGradient with DemographicParity, a mixture of logistic regressions."""

from __future__ import annotations

import numpy as np
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression

from benchmarks.peers.statement import Statement
from benchmarks.peers.workers import job

RANGES = {
    "difference_bound": job.log_uniform(1e-3, 0.03),
    "C": job.log_uniform(0.1, 1e3),
    "eta0": job.log_uniform(0.5, 5.0),
}
ROUNDS = 15


def solve(problem: Statement, s: job.Settings, _: int, __: np.ndarray, ___: job.Budget) -> job.Run:
    """All of the mixture's weights; deterministic, and without an end by time."""
    kept = problem.d != 0
    model = ExponentiatedGradient(
        LogisticRegression(C=s["C"], fit_intercept=False),
        DemographicParity(difference_bound=s["difference_bound"]),
        eps=s["difference_bound"], eta0=s["eta0"], max_iter=ROUNDS,
    )  # fmt: skip
    labels, group = (problem.y[kept] > 0).astype(int), (problem.d[kept] > 0).astype(int)
    model.fit(problem.X[kept], labels, sensitive_features=group)
    used = [k for k, w in model.weights_.items() if w > 0]
    xs = np.array([model.predictors_[k].coef_[0] for k in used])
    weights = np.array([float(model.weights_[k]) for k in used])
    return job.Run(weights @ xs, None, others=xs, weights=weights)


def worth(problem: Statement, run: job.Run) -> float:
    """The merit of a mixture: the mean loss, and the true selection difference, which it bounds."""
    margins = problem.X @ run.others.T
    loss = np.logaddexp(0, -problem.y[:, None] * margins).mean(0) @ run.weights
    gap = abs(np.mean(problem.d * ((margins > 0) @ run.weights)))
    return float(loss + job.BIG * max(gap - problem.bound, 0.0))


if __name__ == "__main__":
    job.work(["fairlearn", "scikit-learn"], RANGES, solve, True, worth, deterministic=True)
