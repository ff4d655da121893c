"""Bounds on rates as promises about given rows: how a point keeps them, truly and smoothly."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from mossp._base.printing import shown
from mossp._base.types import PyTree
from mossp.rates import Bound, parse
from mossp.rates.binding import bind
from mossp.rates.bounded import LOSS, Bounded
from mossp.rates.consistency import check_consistent
from mossp.rates.intervals import intervals, with_margin
from mossp.rates.proxies import Proxies
from mossp.sklearn.answers import coefficients_of
from mossp.sklearn.formulation import CLASSIFICATION, REGRESSION, Parameters, loss_of, targets_of
from mossp.sklearn.rows import Rows, checked_rows

ROUNDING = 1e-9  # of a rate


class Sight(NamedTuple):
    """What a point is like: one entry for each of the bounds' rows."""

    excess: np.ndarray  # of the true rate over its bound; met where <= 0
    smooth: np.ndarray  # the smooth version of matrix @ means + constant
    scale: np.ndarray  # by which the excess is multiplied in there; not 1 for ratios
    grains: np.ndarray  # what one row of data changes

    @property
    def met(self) -> bool:
        return bool((self.excess <= ROUNDING).all())


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
        return scores_of(self.rows, x)

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

    @property
    def other_ends(self) -> np.ndarray:
        """For each row the one that bounds the same rate from the other side, or itself."""
        matrix = self.bounded.matrix
        found = np.arange(len(matrix))
        for j, row in enumerate(matrix):
            opposite = np.flatnonzero((np.abs(matrix + row) <= ROUNDING).all(axis=1))
            found[j] = opposite[0] if len(opposite) else j
        return found

    def rates(self, scores: np.ndarray) -> dict[str, float]:
        """True rates by text."""
        losses = losses_of(self.loss, scores, self.targets)
        return self.bounded.values(decisions_of(scores, self.rows), losses)

    def smooth_rates(self, scores: np.ndarray, temperature: float) -> dict[str, float]:
        """The same with smooth decisions."""
        means = self.smooth_means(scores, temperature)
        return {b.text: float(self.bounded.value(b.rate, means)) for b in self.bounded.bounds}


# What was asked, and what a point decides ---------------------------------------------------------


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


def scores_of(rows: Rows, x: PyTree) -> np.ndarray:
    scores = np.asarray(rows.X @ np.asarray(x["coef"]) + np.asarray(x.get("intercept", 0.0)))
    return scores if rows.offset is None else scores + rows.offset


def decisions_of(scores: np.ndarray, rows: Rows) -> np.ndarray | None:
    """Numbers of classes as `predict` decides; None for a target that is a number."""
    if rows.classes is None:
        return None
    return (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)


def losses_of(loss: Any, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The loss of every row."""
    found = loss.on_host(scores, targets)
    if found is not None:  # no program is compiled, nor called
        return np.asarray(found.values)
    with jax.enable_x64(True):
        return np.asarray(loss.rows(jax.numpy.asarray(scores), jax.numpy.asarray(targets)))


def spread_of(scores: np.ndarray) -> float:
    """The scale of margins: of scores, or of their differences between classes."""
    centred = scores if scores.ndim == 1 else scores - scores.mean(axis=1, keepdims=True)
    return float(centred.std()) or 1.0


def rates_on(
    model: Any, X: Any, y: Any, sensitive: Any = None, sample_weight: Any = None,
    confidence: float = 0.95, offset: Any = None,
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
    offset : array, optional
        As for its `fit`.

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
    rows = checked_rows(model, X, y, sample_weight, sensitive, offset, reset=False)
    return rates_on_rows(model, rows, confidence)


def rates_on_rows(
    model: Any, rows: Rows, confidence: float = 0.95
) -> dict[str, tuple[float, tuple[float, float]]]:
    """As `rates_on`, of rows that were checked."""
    bounded = bounded_on(model.rates, rows, check=False)
    loss = loss_of(model.loss, REGRESSION if rows.classes is None else CLASSIFICATION,
                   rows.classes)  # fmt: skip
    scores = scores_of(rows, coefficients_of(model))
    losses = losses_of(loss, scores, targets_of(loss, rows))
    decisions = decisions_of(scores, rows)
    values = bounded.values(decisions, losses)
    ends = intervals(bounded, decisions, losses, confidence)
    return {text: (values[text], ends[text]) for text in values}
