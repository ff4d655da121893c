"""The best k columns of a linear model, searched for by exchanges, on the host.

With A the columns in the model, losses l_i of predictions p_i, d = X' l'(p) / N and
h_j = sum_i l''(p_i) (x_ij - m_j)^2 / N, m_j the mean of column j (0 without an intercept), a
quadratic model says

    h_j x_j^2 / 2       what is lost where column j of A leaves
    d_j^2 / (2 h_j)     what is gained where column j outside of A enters

C of the former with the least to lose are exchanged for C of the latter with the most to gain, for
falling C, as long as the loss falls (Zhu et al., PNAS 2020). Where no exchange of this kind helps,
the quadratic model with all other columns fitted anew tells which single exchanges may; where none
does, the search ends. It begins from the columns with the largest gains at once, and again
from those that enter one after another; the better end is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from mossp import losses
from mossp.losses import Predictive
from mossp.sklearn.rows import Rows

NEWTON_STEPS = 50
ARRIVED = 1e-14  # a Newton decrement, relative to the loss
ROUNDING, REFINED = 1e-13, 3  # decrements that the loss cannot see, and steps that are taken there
ROUGH = 1e-5  # the same for a fit that only decides about an exchange
PAYS = 1e-9  # relative: an exchange that gains less is none
TURNS = 200  # exchanges, at most
# An exchange is tried where the quadratic model says that it gains this part of what it loses, or
# more, the best of them first. Of a quadratic loss the model is exact.
LIKELY, TRIALS = 0.7, 20
INDEPENDENT = 1e-9  # of the largest curvature: less is left of a column that others make up
RIDGE = 1e-10  # of the largest curvature: columns may depend on each other

KEPT = 0.01  # of the decrement: a Hessian that brings it below is kept for one more step

potrf, potrs = scipy.linalg.lapack.dpotrf, scipy.linalg.lapack.dpotrs
Derivatives = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


def squared(p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (p - y) ** 2 / 2, p - y, np.ones_like(p)


def logistic(p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m = -y * p
    e = np.exp(-np.abs(m))  # for all three: no other exponential is needed
    s = np.where(m > 0, 1.0, e) / (1 + e)
    return np.maximum(m, 0.0) + np.log1p(e), -y * s, s * (1 - s)


def poisson(p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mean = np.exp(np.minimum(p, 500.0))
    return mean - y * p, mean - y, mean


KNOWN: dict[type[Predictive], Derivatives] = {  # (l, l', l'') of the rows
    losses.Squared: squared,
    losses.Logistic: logistic,
    losses.Poisson: poisson,
}


class Fit(NamedTuple):
    """The minimum over some columns."""

    columns: np.ndarray
    coef: np.ndarray  # of these columns
    intercept: float
    loss: float
    slope: np.ndarray  # of the rows: weights times l'(p)
    curve: np.ndarray  # weights times l''(p)
    gradients: int = 0  # samples differentiated by the search so far


def best_columns(loss: Predictive, rows: Rows, k: int, intercept: bool) -> Fit | None:
    """The k columns that the search ends with; None for a loss that it does not know.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 6))
    >>> rows = Rows(X, X[:, 4] - X[:, 1] + 0.1 * rng.normal(size=100), np.ones(100))
    >>> best_columns(losses.squared, rows, 2, intercept=True).columns.tolist()
    [1, 4]
    """
    derivatives = KNOWN.get(type(loss))
    if derivatives is None or rows.outputs is not None:
        return None
    search = Search(derivatives, rows, min(k, rows.features), intercept)
    at_once = search.improved(search.fit(search.leading(search.empty, search.k)))
    grown = search.improved(search.grown(), at_once)
    best = min((at_once, grown), key=lambda fit: fit.loss)
    return search.fit(best.columns, best, ARRIVED)


class Curvatures(NamedTuple):
    """What the quadratic model knows of every column."""

    slopes: np.ndarray  # d
    whole: np.ndarray  # X' diag(l'') X, its diagonal
    about: np.ndarray  # h: about the means, where an intercept takes up what columns share


class Search:
    """Fits to columns of given rows, and exchanges of columns."""

    def __init__(self, derivatives: Derivatives, rows: Rows, k: int, intercept: bool) -> None:
        self.derivatives, self.rows, self.k, self.intercept = derivatives, rows, k, intercept
        self.X, self.w = rows.X, rows.weights / rows.weights.sum()
        if isinstance(self.X, np.ndarray):
            self.X = np.asfortranarray(self.X)  # columns are what is read, again and again
        self.offset = 0.0 if rows.offset is None else rows.offset
        self.dense = isinstance(self.X, np.ndarray)
        self.squares = self.X**2 if self.dense else self.X.multiply(self.X).tocsr()
        self.quadratic = derivatives is squared
        self.turns = TURNS
        self.gradients = 0
        nothing = np.zeros(0)
        self.seen: tuple[Fit, Curvatures] | None = None  # the last ones
        self.empty = Fit(nothing.astype(int), nothing, 0.0, np.inf, nothing, nothing)
        self.empty = self.fit(self.empty.columns)

    def fit(
        self, columns: np.ndarray, near: Fit | None = None, tol: float = ROUGH,
        enough: float = np.inf,
    ) -> Fit:  # fmt: skip
        """Newton's method over these columns, damped where the loss would rise.

        It is given up where twice the decrease that Newton's model promises, the decrement, does
        not lead to a loss of `enough`.
        """
        columns = np.sort(columns)
        A = self.matrix(columns)
        x = np.zeros(A.shape[1])
        if near is not None:
            known = np.zeros(self.rows.features)
            known[near.columns] = near.coef
            x[: len(columns)] = known[columns]
            x[len(columns) :] = near.intercept
        p = A @ x + self.offset
        value, slope, curve = self.evaluated(p)
        if value > self.empty.loss:  # coefficients that misled
            x[:] = 0.0
            x[len(columns) :] = self.empty.intercept
            p = A @ x + self.offset
            value, slope, curve = self.evaluated(p)
        last = 0  # steps since the loss stopped telling points apart
        factor, decrement = None, np.inf
        for _ in range(NEWTON_STEPS if len(x) else 0):
            g = A.T @ slope
            # While the steps of one Hessian lead on quickly, a fit that only decides keeps it.
            slow, step = KEPT * decrement, None
            if factor is not None and tol > ARRIVED:
                step = -potrs(factor, g)[0]
                decrement = -float(g @ step)
            if step is None or decrement > slow:
                factor, failed = potrf(self.hessian(A, curve))
                if failed:
                    break
                step = -potrs(factor, g)[0]
                decrement = -float(g @ step)
            if not decrement > tol**2 * (1 + abs(value)):
                break
            if value - decrement > enough:
                break
            along, t = A @ step, 1.0
            unseen = decrement <= ROUNDING * (1 + abs(value))  # what the loss cannot tell apart
            while t > 1e-6:
                new = self.evaluated(p + t * along)
                if unseen or new[0] <= value - 1e-4 * t * decrement:
                    break
                t /= 2
            else:
                break
            x, p = x + t * step, p + t * along
            value, slope, curve = new
            last += unseen
            if last == REFINED or (self.quadratic and t == 1.0 and tol > ARRIVED):
                break
        constant = float(x[-1]) if self.intercept else 0.0
        return Fit(columns, x[: len(columns)], constant, value, slope, curve, self.gradients)

    def matrix(self, columns: np.ndarray) -> np.ndarray:
        """These columns, and one of ones for the intercept."""
        n = len(columns)
        A = np.empty((len(self.w), n + self.intercept), order="F")
        A[:, :n] = self.X[:, columns] if self.dense else self.X[:, columns].toarray()
        A[:, n:] = 1.0
        return A

    def hessian(self, A: np.ndarray, curve: np.ndarray) -> np.ndarray:
        B = np.sqrt(curve)[:, None] * A
        H: np.ndarray = B.T @ B  # the product of a matrix with itself takes half the time
        n = len(H)
        diagonal = H.ravel()[:: n + 1]
        diagonal += RIDGE * max(float(diagonal.sum()) / n, 1e-300)
        return H

    def evaluated(self, p: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        self.gradients += len(p)
        each, slope, curve = self.derivatives(p, self.rows.labels)
        return float(self.w @ each), self.w * slope, self.w * curve

    def curvatures(self, fit: Fit) -> Curvatures:
        """Of all columns at a fit; those of the last fit are kept."""
        before, found = self.seen or (None, None)
        if found is None or before is not fit:
            slopes = np.asarray(self.X.T @ fit.slope).ravel()
            if found is not None and self.quadratic:
                found = found._replace(slopes=slopes)
            else:
                whole = about = np.asarray(self.squares.T @ fit.curve).ravel()
                if self.intercept:
                    common = np.asarray(self.X.T @ fit.curve).ravel()
                    about = whole - common**2 / max(float(fit.curve.sum()), 1e-300)
                found = Curvatures(slopes, whole, np.maximum(about, 0.0))
            self.seen = fit, found
        return found

    def losing(self, fit: Fit) -> np.ndarray:
        """The columns inside, those with the least to lose first."""
        h = self.curvatures(fit).about[fit.columns]
        return fit.columns[np.argsort(h * fit.coef**2, kind="stable")]

    def gains(self, fit: Fit) -> np.ndarray:
        """What columns outside would gain; -1 for those inside."""
        slopes, _, h = self.curvatures(fit)
        found = slopes**2 / np.maximum(h, 1e-12 * max(h.max(initial=0.0), 1e-300))
        found[fit.columns] = -1.0
        return found

    def leading(self, fit: Fit, count: int, gains: np.ndarray | None = None) -> np.ndarray:
        """The columns outside with the most to gain."""
        gains = self.gains(fit) if gains is None else gains
        count = min(count, len(gains) - len(fit.columns))
        if count <= 0:
            return np.zeros(0, int)
        some = np.argpartition(-gains, count - 1)[:count]
        return some[np.argsort(-gains[some], kind="stable")]

    def grown(self) -> Fit:
        """k columns, which enter one after another."""
        fit = self.empty
        for _ in range(self.k):
            fit = self.fit(np.append(fit.columns, self.leading(fit, 1)), fit)
        return fit

    def improved(self, fit: Fit, end: Fit | None = None) -> Fit:
        """Exchanges as long as one of them lowers the loss, or until they lead to a known end."""
        while self.turns > 0 and not (end and np.array_equal(fit.columns, end.columns)):
            better = self.exchanged(fit) or self.turned(fit)
            if better is None:
                return fit
            fit = better
            self.turns -= 1
        return fit

    def exchanged(self, fit: Fit) -> Fit | None:
        """C columns for C others, C falling; the first exchange that pays."""
        weakest = self.losing(fit)
        C = max(len(weakest) // 2, 1)
        entering = self.leading(fit, C)
        while C >= 1:
            columns = np.concatenate([weakest[C:], entering[:C]])
            trial = self.fit(columns, fit, enough=fit.loss)
            if self.pays(trial, fit):
                return trial
            C //= 2
        return None

    def turned(self, fit: Fit) -> Fit | None:
        """One column for another; the first exchange that pays, the most promising ones first."""
        leaving, entering = self.promising(fit)
        for j, e in zip(leaving.tolist(), entering.tolist(), strict=True):
            columns = np.where(fit.columns == j, e, fit.columns)
            trial = self.fit(columns, fit, enough=fit.loss)
            if self.pays(trial, fit):
                return trial
        return None

    def promising(self, fit: Fit) -> tuple[np.ndarray, np.ndarray]:
        """(columns that leave, those that enter for them), by the quadratic model of all pairs.

        With H over the columns inside and B its inverse, V = H_EA B of all columns e, and the
        others fitted anew: without column j the loss rises by x_j^2 / (2 B_jj), the slopes are
        d_e - x_j V_ej / B_jj, and the curvatures h_e - H_eA B H_Ae + V_ej^2 / B_jj.
        """
        inside, n = fit.columns, len(fit.columns)
        A = self.matrix(inside)
        C = np.asarray(self.X.T @ (fit.curve[:, None] * A))
        B = scipy.linalg.inv(self.hessian(A, fit.curve), check_finite=False)
        V, own = C @ B, np.diag(B)[:n]
        d, h, _ = self.curvatures(fit)
        left = (h - np.sum(C * V, axis=1))[:, None] + V[:, :n] ** 2 / own
        slopes = d[:, None] - V[:, :n] * (fit.coef / own)
        gained = slopes**2 / np.maximum(left, INDEPENDENT * max(h.max(initial=0.0), 1e-300))
        gained[inside] = 0.0
        lost = fit.coef**2 / own
        share = gained / np.maximum(lost, 1e-300)
        likely = share >= (1.0 if self.quadratic else LIKELY)
        count = min(int(likely.sum()), TRIALS)
        if not count:
            return np.zeros(0, int), np.zeros(0, int)
        net = np.where(likely, gained - lost, -np.inf).ravel()
        order = np.argpartition(-net, count - 1)[:count]
        entering, leaving = np.divmod(order[np.argsort(-net[order], kind="stable")], n)
        return inside[leaving], entering

    def pays(self, new: Fit, old: Fit) -> bool:
        return new.loss < old.loss - PAYS * (1 + abs(old.loss))


def as_start(fit: Fit, features: int, intercept: bool) -> dict[str, Any]:
    """The fit as coefficients, {"coef", "intercept"}."""
    coef = np.zeros(features)
    coef[fit.columns] = fit.coef
    return {"coef": coef, **({"intercept": np.array(fit.intercept)} if intercept else {})}
