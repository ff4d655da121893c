"""How good an answer is, computed here in NumPy for every solver alike.

    min_w  F(w) = mean_i log(1 + exp(-y_i a_i'w)) + sum_j penalty(w_j)

For l1, with p_i = 1 / (1 + exp(y_i a_i'w)), every s in [0, 1] with s |A'(y p)| / N <= lam gives a
point s p of the dual, whose objective D is the mean entropy of (s p_i, 1 - s p_i). The relative gap
is (F - D) / F at the largest such s: it is made from w alone, whatever dual point a solver knows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special

MCP_GAMMA, SCAD_A = 3.0, 3.7


def penalty_value(name: str, w: np.ndarray, lam: float) -> float:
    a = np.abs(w)
    if name == "l1":
        return float(lam * a.sum())
    if name == "mcp":
        bend = MCP_GAMMA * lam
        inside = lam * a - a * a / (2 * MCP_GAMMA)
        return float(np.where(a <= bend, inside, lam * bend / 2).sum())
    bend = SCAD_A * lam
    middle = (2 * bend * a - a * a - lam**2) / (2 * (SCAD_A - 1))
    beyond = lam**2 * (SCAD_A + 1) / 2
    return float(np.where(a <= lam, lam * a, np.where(a <= bend, middle, beyond)).sum())


def penalty_slope(name: str, a: np.ndarray, lam: float) -> np.ndarray:
    """The derivative of the penalty at a > 0."""
    if name == "l1":
        return np.full_like(a, lam)
    if name == "mcp":
        return np.clip(lam - a / MCP_GAMMA, 0, None)
    return np.clip((SCAD_A * lam - a) / (SCAD_A - 1), 0, lam)


def objective(X: Any, y: np.ndarray, w: np.ndarray, penalty: str, lam: float) -> float:
    return float(np.logaddexp(0, -y * (X @ w)).mean()) + penalty_value(penalty, w, lam)


def criticality(X: Any, y: np.ndarray, w: np.ndarray, penalty: str, lam: float) -> float:
    """max_j dist(-df/dw_j, subdifferential of the penalty at w_j) / lam: the KKT residual."""
    p = scipy.special.expit(-y * (X @ w))
    downhill = X.T @ (y * p) / len(y)  # -grad f
    pull = penalty_slope(penalty, np.abs(w), lam) * np.sign(w)
    distance = np.where(w == 0, np.abs(downhill) - lam, np.abs(downhill - pull))
    return float(max(distance.max(), 0.0) / lam)


def endless(X: Any, y: np.ndarray, w: np.ndarray, penalty: str, lam: float) -> bool:
    """Whether F falls on and on along the entries that the penalty is flat in: data are separable.

    The KKT residual vanishes on the way, like the slopes of the loss, and F is no one's minimum.
    """
    flat = penalty_slope(penalty, np.abs(w), lam) == 0
    here, *further = (
        objective(X, y, np.where(flat, t * w, w), penalty, lam) for t in (1.0, 2.0, 16.0, 256.0)
    )
    return bool(flat.any()) and max(further) < here


def gap(X: Any, y: np.ndarray, w: np.ndarray, lam: float) -> float:
    """The relative duality gap of l1 logistic regression without an intercept."""
    F = objective(X, y, w, "l1", lam)
    p = scipy.special.expit(-y * (X @ w))
    steepest = float(np.abs(X.T @ (y * p)).max()) / len(y)
    s = min(1.0, lam / steepest) if steepest > 0 else 1.0
    D = float(np.mean(scipy.special.entr(s * p) + scipy.special.entr(1 - s * p)))
    return (F - D) / F


def softmax_gap(
    X: np.ndarray, labels: np.ndarray, W: np.ndarray, b: np.ndarray, lam: float
) -> float:
    """The relative duality gap of softmax with l1 and a free intercept; W is features x classes.

    A dual point is a row P_i of probabilities a sample with |A'(Y - P)| / N <= lam, and with
    sum_i (Y - P)_i = 0 for the intercept: b is first brought to its best for W. Shrinking Y - P by
    s <= 1 keeps the rows in the simplex and makes it feasible; D is the mean entropy.
    """
    N, classes = len(labels), W.shape[1]
    Y = np.eye(classes)[labels]
    scores = X @ W
    F = mean_softmax(scores + b, Y) + lam * np.abs(W).sum()
    P = scipy.special.softmax(scores + best_intercept(scores, Y, b), axis=1)
    steepest = float(np.abs(X.T @ (Y - P)).max()) / N
    s = min(1.0, lam / steepest) if steepest > 0 else 1.0
    D = float(scipy.special.entr(Y - s * (Y - P)).sum()) / N
    return float((F - D) / F)


def mean_softmax(scores: np.ndarray, Y: np.ndarray) -> float:
    return float((scipy.special.logsumexp(scores, axis=1) - (scores * Y).sum(axis=1)).mean())


def best_intercept(scores: np.ndarray, Y: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Newton's method in as many variables as classes; the last one stays, for uniqueness."""
    b = np.array(b, float)
    for _ in range(50):
        P = scipy.special.softmax(scores + b, axis=1)
        slope = (P - Y).mean(axis=0)[:-1]
        curve = (np.diag(P.mean(axis=0)) - P.T @ P / len(P))[:-1, :-1]
        step = np.linalg.solve(curve, slope)
        b[:-1] -= step
        if np.abs(step).max() < 1e-15 * max(1.0, np.abs(b).max()):
            break
    return b
