"""Fits whose true rates on the training rows meet their bounds, with little to spare.

Decisions are steps, which have no gradients: what is solved has smooth ones in their place
(`mossp.rates.proxies`) and bounds that are moved. With e the true excess of each row over its
bound, p its smooth version and x_k the last answer, the next problem bounds p by

    p_j(x)  <=  p_j(x_k) - (e_j(x_k) + inside_j) / slope_j

that is, by what p would be if e were just inside of its bound, slope_j the change of e_j with p_j
as last seen. All are moved together, every solve starts from the answer before, and the best point
that meets all bounds is kept. e is a step function: bounds of a row that were seen to be too wide
and not wide enough bracket the step, and proposals outside are replaced by the middle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from mossp._base.printing import shown
from mossp._base.types import PyTree
from mossp.expected import Expected
from mossp.problem import Problem
from mossp.rates import Bound, parse
from mossp.rates.binding import bind
from mossp.rates.bounded import LOSS, Bounded
from mossp.rates.consistency import check_consistent
from mossp.rates.intervals import intervals, with_margin
from mossp.rates.proxies import Proxies
from mossp.regularizers.strength import strengthened
from mossp.result import Result, Status
from mossp.sklearn.formulation import (
    CLASSIFICATION,
    REGRESSION,
    Parameters,
    formulate,
    loss_of,
    targets_of,
)
from mossp.sklearn.rows import Rows, checked_rows
from mossp.solving.path import with_regularizer
from mossp.solving.solve import solve

SPARE = 0.002  # that a rate may stay away from its bound, beside one row
AIM = 0.4  # where between the bound and all that may be spared is aimed at
WIDTH = 0.1  # of the smooth step, in units of the margins' standard deviation
SHARPER = 3.0  # by which it is divided where the true rates are not met closely
SOLVES = 8  # at one width
SHARPENED = 3  # widths that are tried
WEAKER = (0.1, 0.01)  # strengths of the regulariser from whose answers a search may start
ROUNDING = 1e-9  # of a rate
HOPELESS = 3
THRESHOLDS = 400  # that are looked at for a start


class Sight(NamedTuple):
    """What a point is like: one entry for each of the bounds' rows."""

    excess: np.ndarray  # of the true rate over its bound; met where <= 0
    smooth: np.ndarray  # the smooth version of matrix @ means + constant
    scale: np.ndarray  # by which the excess is multiplied in there; not 1 for ratios
    grains: np.ndarray  # what one row of data changes

    @property
    def met(self) -> bool:
        return bool((self.excess <= ROUNDING).all())


class Candidate(NamedTuple):
    """An answer, and how it looks."""

    result: Result
    sight: Sight
    temperature: float


class Promise:
    """The bounds on some rows, and how a point fares.

    Parameters
    ----------
    params : mapping
        Of the estimator.
    rows : Rows
        To fit to.
    """

    def __init__(self, params: Parameters, rows: Rows) -> None:
        self.rows, self.confidence = rows, checked_confidence(params["rates_margin"])
        self.loss = loss_of(
            params["loss"], REGRESSION if rows.classes is None else CLASSIFICATION, rows.classes
        )
        self.targets = targets_of(self.loss, rows)
        self.bounded = bounded_on(params["rates"], rows)
        if self.confidence is not None:
            check_consistent(self.tightened(np.ones(len(rows.labels), int)))

    def tightened(self, decisions: np.ndarray | None) -> Bounded:
        """The bounds with their margin for new rows, where one is wanted."""
        if self.confidence is None:
            return self.bounded
        return with_margin(self.bounded, self.confidence, decisions)

    def proxies(self, x: PyTree, temperature: float, shift: np.ndarray) -> Proxies:
        """The constraint that is solved with, as it is at x."""
        bounded = self.tightened(decisions_of(self.scores(x), self.rows))
        return Proxies.of(bounded, temperature, self.loss, shift)

    def scores(self, x: PyTree) -> np.ndarray:
        return scores_of(self.rows.X, x)

    def seen(self, x: PyTree, temperature: float) -> Sight:
        """How a point looks."""
        scores = self.scores(x)
        return self.judged(scores, temperature)

    def judged(self, scores: np.ndarray, temperature: float) -> Sight:
        decisions = decisions_of(scores, self.rows)
        bounded = self.tightened(decisions)
        losses = losses_of(self.loss, scores, self.targets) if LOSS in bounded.kinds else None
        means = self.smooth_means(scores, temperature)
        scale = np.ones(len(bounded.rows))
        for j, ratio in bounded.ratios.items():
            scale[j] = max(means[ratio.below], 1e-3)
        return Sight(
            excess=np.maximum(bounded.excess(decisions, losses), -1.0),
            smooth=bounded.matrix @ means + bounded.constant,
            scale=scale,
            grains=bounded.grains(decisions),
        )

    def smooth_means(self, scores: np.ndarray, temperature: float) -> np.ndarray:
        """The mean of every column of W, with smooth decisions."""
        proxies = Proxies.of(self.bounded, temperature, self.loss)
        with jax.enable_x64(True):
            seen = np.asarray(proxies.seen(jax.numpy.asarray(scores), self.targets))
        return np.asarray((self.bounded.weights * seen).mean(axis=0))

    @property
    def exact(self) -> np.ndarray:
        """Which rows have no decision in them: their smooth version is the true one."""
        decided = np.array([kind != LOSS for kind in self.bounded.kinds])
        return ~(self.bounded.matrix[:, decided] != 0).any(axis=1)

    @property
    def room(self) -> np.ndarray:
        """How far each row's rate can move between its own bound and the other end's."""
        ends = [self.bounded.bounds[row.bound] for row in self.bounded.rows]
        found = np.full(len(ends), np.inf)
        for j, bound in enumerate(ends):
            if bound.lower is not None and bound.upper is not None:
                found[j] = bound.upper - bound.lower
                if bound.lower == bound.upper:
                    found[j] = 2 * self.bounded.grains(None)[j]
            elif bound.rate.absolutes and bound.upper is not None:
                found[j] = 2 * bound.upper
        return found

    def rates(self, scores: np.ndarray) -> dict[str, float]:
        """True rates by text."""
        losses = losses_of(self.loss, scores, self.targets)
        return self.bounded.values(decisions_of(scores, self.rows), losses)

    def smooth_rates(self, scores: np.ndarray, temperature: float) -> dict[str, float]:
        """The same with smooth decisions."""
        means = self.smooth_means(scores, temperature)
        return {b.text: float(self.bounded.value(b.rate, means)) for b in self.bounded.bounds}


# The search ---------------------------------------------------------------------------------------


def rated(params: Parameters, rows: Rows, start: PyTree | None = None) -> Result:
    """The model with these parameters whose true rates on these rows meet their bounds.

    Parameters
    ----------
    params : mapping
        Of the estimator, `rates` among them.
    rows : Rows
        To fit to, weights with mean 1.
    start : pytree, optional
        Coefficients to start from.

    Returns
    -------
    Result
        Its `success` includes that the rates are met; `settings["rates"]` has the true and the
        smooth ones. Where no point was found that meets all bounds, the nearest one.

    Examples
    --------
    >>> from mossp.sklearn import MoSSPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 3))
    >>> labels = np.where(X[:, 0] + rng.normal(size=400) > 0, 1.0, -1.0)
    >>> rows = Rows(X, labels, np.ones(400), np.array([0, 1]))
    >>> result = rated(MoSSPClassifier(rates="fpr <= 0.1").get_params(), rows)
    >>> result.success, 0.09 < result.settings["rates"]["true"]["fpr <= 0.1"] <= 0.1
    (True, True)
    """
    promise = Promise(params, rows)
    problem, x0, settings = formulate(params, rows, start)
    data = (rows.X, promise.targets, rows.weights, promise.bounded.weights)
    free = dataclasses.replace(problem, data=data)
    spent = Spent()
    alone = spent.on(solve(free, x0, **settings))
    temperature = WIDTH * spread_of(promise.scores(alone.x))
    first = Candidate(alone, promise.seen(alone.x, temperature), temperature)
    if first.sight.met or alone.status is Status.INTERRUPTED or not np.isfinite(alone.fun):
        return finished(promise, first, spent, first.sight.met)

    def solved(shift: np.ndarray, temperature: float, x: PyTree) -> Result:
        constraint = Expected(promise.proxies(x, temperature, shift))
        bounded = with_constraint(free, constraint)
        return spent.on(solve(bounded, x, **{**settings, "starts": 1}))

    starts = [alone.x if start is None else x0]
    starts += [moved for moved in [best_threshold(promise, alone.x, temperature)] if moved]
    nearest, best = first, None
    for number in range(SHARPENED + len(WEAKER)):
        if number >= SHARPENED and best is not None:
            break
        if number >= SHARPENED:  # no point yet that meets all: begin where other strengths lead
            weaker = with_regularizer(
                free, strengthened(free.regularizer, WEAKER[number - SHARPENED])
            )
            other = spent.on(solve(weaker, x0, **settings)).x
            x = best_threshold(promise, other, temperature) or other
        elif best is not None:
            x = best.result.x
        else:
            x = starts[min(number, len(starts) - 1)]
        width = temperature / SHARPER ** min(number, SHARPENED - 1)
        near, found, close = approach(solved, promise, x, width)
        nearest = min([nearest, *near], key=lambda c: c.sight.excess.max())
        best = min([b for b in (best, *found) if b is not None], key=worth, default=None)
        if close or spent.interrupted or promise.exact.all():
            break
    if spent.interrupted:
        return dataclasses.replace((best or nearest).result, status=Status.INTERRUPTED)
    return finished(promise, best or nearest, spent, best is not None)


def worth(candidate: Candidate) -> tuple[bool, float]:
    """Of points that meet all bounds: a certificate first, then a low objective."""
    return (not candidate.result.success, candidate.result.fun)


def approach(
    solved: Callable[[np.ndarray, float, PyTree], Result],
    promise: Promise,
    x: PyTree,
    temperature: float,
) -> tuple[list[Candidate], list[Candidate], bool]:
    """Move the bounds of the smooth rates at one temperature, from x on.

    Returns
    -------
    seen, met : lists of Candidate
        All answers, and those whose true rates meet all bounds.
    close : bool
        Whether the last one does with little to spare.
    """
    seen: list[Candidate] = []
    hopeless = 0  # solves in a row that found no point within the moved bounds
    exact, room = promise.exact, promise.room
    slope = np.ones(len(exact))
    low, high = np.full(len(exact), -np.inf), np.full(len(exact), np.inf)
    shift, behind = np.zeros(len(exact)), np.zeros(len(exact))
    sight = promise.seen(x, temperature)
    for _ in range(SOLVES):
        spare = sight.grains + SPARE
        inside = AIM * np.minimum(spare, room) * 2.0 ** np.maximum(behind - 2, 0)
        aimed = sight.smooth - sight.scale * (sight.excess + inside) / slope
        outside = np.isfinite(low) & np.isfinite(high) & ~((low < aimed) & (aimed < high))
        aimed[outside] = (low[outside] + high[outside]) / 2
        missed = np.maximum(sight.excess, 0.0) if seen else 0.0  # by a solve at a loose tol
        shift = np.where(exact, shift - 1.5 * missed, aimed)
        result = solved(shift, temperature, x)
        if result.status is Status.INTERRUPTED or not np.isfinite(result.fun):
            break
        before, sight = sight, promise.seen(result.x, temperature)
        x = result.x
        seen.append(Candidate(result, sight, temperature))
        infeasible = result.status is Status.INFEASIBLE_STATIONARY and not sight.met
        hopeless = hopeless + 1 if infeasible else 0
        if hopeless == HOPELESS or (infeasible and exact[sight.excess > ROUNDING].all()):
            break
        active = active_rows(result, len(exact)) & ~exact
        if sight.met and (sight.excess[active] >= -(sight.grains + SPARE)[active]).all():
            return seen, [c for c in seen if c.sight.met], True
        # How the true excess follows the smooth one, and what is too wide and what is not.
        moved = (sight.smooth - before.smooth) / sight.scale
        followed = np.divide(sight.excess - before.excess, moved, out=np.ones_like(moved),
                             where=np.abs(moved) > 1e-6)  # fmt: skip
        slope = np.where(
            active, np.clip(np.sqrt(slope * np.clip(followed, 0.25, 4)), 0.5, 2), slope
        )
        behind = np.where(sight.excess > ROUNDING, behind + 1, 0)
        wide = sight.excess > ROUNDING
        high = np.where(wide, np.minimum(high, sight.smooth), high)
        low = np.where(active & ~wide, np.maximum(low, sight.smooth), low)
        crossed = low >= high  # rows move one another: what was seen holds no longer
        low, high = np.where(crossed, -np.inf, low), np.where(crossed, np.inf, high)
        if (active & (high - low < 1e-7)).any():
            break  # between two answers next to each other lies one large step
    return seen, [c for c in seen if c.sight.met], False


def active_rows(result: Result, count: int) -> np.ndarray:
    """Which of the rates' bounds hold the answer back: those with a multiplier."""
    multipliers = np.ravel(result.certificate.multipliers["inequality"]["rates"])
    return np.asarray(multipliers > 1e-8) if len(multipliers) == count else np.ones(count, bool)


def best_threshold(promise: Promise, x: PyTree, temperature: float) -> PyTree | None:
    """The point with that intercept which comes nearest to all bounds, or meets them."""
    if "intercept" not in x or np.ndim(x["intercept"]):
        return None
    scores = promise.scores(x)
    levels = np.unique(np.quantile(scores, np.linspace(0, 1, THRESHOLDS)))
    between = (levels[1:] + levels[:-1]) / 2
    if len(between) == 0:
        return None
    worst = [promise.judged(scores - level, temperature).excess.max() for level in between]
    return {**x, "intercept": np.asarray(x["intercept"] - between[int(np.argmin(worst))])}


class Spent:
    """What several solves cost together."""

    def __init__(self) -> None:
        self.solves, self.seconds, self.compile_seconds, self.gradients = 0, 0.0, 0.0, 0
        self.interrupted = False

    def on(self, result: Result) -> Result:
        self.solves += 1
        self.seconds += result.seconds
        self.compile_seconds += result.compile_seconds
        self.gradients += result.gradients
        self.interrupted = result.status is Status.INTERRUPTED
        return result


def finished(promise: Promise, chosen: Candidate, spent: Spent, met: bool) -> Result:
    """The answer with the rates in its settings, and in its verdict."""
    result, scores = chosen.result, promise.scores(chosen.result.x)
    true = promise.rates(scores)
    told = {
        "true": true,
        "smooth": promise.smooth_rates(scores, chosen.temperature),
        "met": met,
        "width": chosen.temperature,
        "solves": spent.solves,
    }
    changes: dict[str, Any] = {
        "settings": {**result.settings, "rates": told},
        "seconds": spent.seconds,
        "compile_seconds": spent.compile_seconds,
        "gradients": spent.gradients,
    }
    if not met:
        missed = {
            promise.bounded.bounds[row.bound].text
            for row, excess in zip(promise.bounded.rows, chosen.sight.excess, strict=True)
            if excess > ROUNDING
        }
        listed = ", ".join(f"`{text}` ({value:.4g})" for text, value in true.items()
                           if text in missed)  # fmt: skip
        margin = "" if promise.confidence is None else ", with its margin for new rows,"
        changes |= {
            "success": False,
            "status": Status.INFEASIBLE_STATIONARY if result.success else result.status,
            "message": f"No coefficients were found whose true rates on these rows{margin} meet "
            f"all bounds; the nearest ones miss {listed}.",
        }
    return dataclasses.replace(result, **changes)


# What a point is ----------------------------------------------------------------------------------


def bounds_of(given: Any) -> list[Bound]:
    """Bounds from text and objects, alone or in a list."""
    found = []
    for one in [given] if isinstance(given, (str, Bound)) else given:
        if not isinstance(one, (str, Bound)):
            raise TypeError(
                "rates must be text such as 'fpr <= 0.05', an object such as "
                f"mossp.rates.fpr() <= 0.05, or a list of these, but {shown(one)} was given."
            )
        found.append(parse(one) if isinstance(one, str) else one)
    return found


def has_rates(params: Parameters) -> bool:
    """Whether any rate is bounded."""
    given = params.get("rates")
    if given is None:
        return False
    if not isinstance(given, (str, Bound, list, tuple)):
        bounds_of([given])  # which says what is wrong
    return isinstance(given, (str, Bound)) or len(given) > 0


def bounded_on(given: Any, rows: Rows, check: bool = True) -> Bounded:
    """The bounds on some rows."""
    counted = np.ones(len(rows.labels)) if rows.counted is None else rows.counted
    classes = None if rows.classes is None else rows.classes.tolist()
    return bind(bounds_of(given), rows.class_numbers, classes, counted, rows.columns, check=check)


def checked_confidence(given: Any) -> float | None:
    if given is None:
        return None
    number = isinstance(given, (int, float, np.number)) and not isinstance(given, bool)
    if not number or not 0.5 <= given < 1:
        raise ValueError(
            "rates_margin must be None, or a confidence from 0.5 to below 1 such as 0.95, but "
            f"{shown(given)} was given."
        )
    return float(given)


def scores_of(X: Any, x: PyTree) -> np.ndarray:
    return np.asarray(X @ np.asarray(x["coef"]) + np.asarray(x.get("intercept", 0.0)))


def decisions_of(scores: np.ndarray, rows: Rows) -> np.ndarray | None:
    """Numbers of classes as `predict` decides; None for a target that is a number."""
    if rows.classes is None:
        return None
    return (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)


def losses_of(loss: Any, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The loss of every row."""
    with jax.enable_x64(True):
        return np.asarray(loss.rows(jax.numpy.asarray(scores), jax.numpy.asarray(targets)))


def spread_of(scores: np.ndarray) -> float:
    """The scale of margins: of scores, or of their differences between classes."""
    centred = scores if scores.ndim == 1 else scores - scores.mean(axis=1, keepdims=True)
    return float(centred.std()) or 1.0


def with_constraint(problem: Problem, constraint: Expected) -> Problem:
    """The problem with one more inequality, called "rates"."""
    given = {} if problem.inequality is None else {"given": problem.inequality}
    return dataclasses.replace(problem, inequality={**given, "rates": constraint})


def rates_on(
    model: Any, X: Any, y: Any, sensitive: Any = None, sample_weight: Any = None,
    confidence: float = 0.95,
) -> dict[str, tuple[float, tuple[float, float]]]:  # fmt: skip
    """The rates that a fitted model was asked for on other rows, each with an interval.

    Parameters
    ----------
    model : MoSSPClassifier or MoSSPRegressor
        Fitted, with `rates`.
    X, y, sensitive, sample_weight
        Rows as for its `fit`, which were not fitted to.
    confidence : float
        Of each interval by itself; Wilson's for one rate, Newcombe's for sums of them.

    Returns
    -------
    dict
        By text (rate, (low, high)); NaN where no row counts.

    Examples
    --------
    >>> from mossp.sklearn import MoSSPClassifier
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = MoSSPClassifier(rates="fpr <= 0.5").fit(X[::2], y[::2])
    >>> rates_on(model, X[1::2], y[1::2])["fpr <= 0.5"][0]
    0.0
    """
    rows = checked_rows(model, X, y, sample_weight, sensitive, reset=False)
    bounded = bounded_on(model.rates, rows, check=False)
    loss = loss_of(model.loss, REGRESSION if rows.classes is None else CLASSIFICATION,
                   rows.classes)  # fmt: skip
    coef = np.atleast_2d(model.coef_)
    scores = np.asarray(rows.X @ coef.T) + model.intercept_
    scores = scores[:, 0] if scores.shape[1] == 1 else scores
    losses = losses_of(loss, scores, targets_of(loss, rows))
    decisions = decisions_of(scores, rows)
    values = bounded.values(decisions, losses)
    ends = intervals(bounded, decisions, losses, confidence)
    return {text: (values[text], ends[text]) for text in values}
