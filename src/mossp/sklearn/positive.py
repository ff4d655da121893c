"""Learning from positive and unlabelled rows: risks without a single negative label.

With pi the share of positives in the population, the risk of a score m is

    pi E_+[l(m)] + (1 - pi) E_-[l(-m)]  =  pi E_+[l(m)] + E[l(-m)] - pi E_+[l(-m)]

whose right-hand side needs labelled positives and rows of the population alone: the unbiased risk
(du Plessis, Niu, Sugiyama 2014, 2015). Its last part is concave in the coefficients. For the
logistic loss l(m) - l(-m) = -m, and the risk is convex; for the huberised hinge it is not. The last
two parts are the risk of the negatives, which cannot be below 0 but for chance. The nonnegative
risk (Kiryo et al. 2017) takes their positive part: a minimum of it is one of the unbiased risk
under the constraint

    E[l(-m)] - pi E_+[l(-m)] >= 0

as long as the multiplier is at most 1.
"""

from __future__ import annotations

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mossp import losses
from mossp._base.module import Module
from mossp._base.printing import shown
from mossp._base.types import Array, Batch, Number, Predictions, PyTree, RowLosses, Targets
from mossp.data import is_sparse
from mossp.expected import Expected
from mossp.losses import Predictive
from mossp.result import Result, Status
from mossp.sklearn.formulation import CLASSIFICATION, loss_of
from mossp.sklearn.linear import PARAMETERS
from mossp.sklearn.models import MoSSPClassifier
from mossp.sklearn.paths import solution
from mossp.sklearn.promises import scores_of
from mossp.sklearn.rows import Rows

RISKS = ("nonnegative", "unbiased")
SCENARIOS = ("single-set", "case-control")
HALF = 0.5  # of the noise in the largest entry of a gradient
RIDGE = 1e-3  # of the classifier behind an estimated prior
NAME = "negatives"  # of the constraint


class PositiveUnlabelled(Predictive):
    """The unbiased risk, row by row, for targets +1 (labelled) and -1 (unlabelled).

    A labelled row counts `positive (l(m) - l(-m)) + both l(-m)`, another `unlabelled l(-m)`.
    """

    loss: Predictive
    positive: Number  # pi / (share of labelled rows)
    both: Number  # 1 where labelled rows count among the unlabelled, else 0
    unlabelled: Number

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        labelled = b > 0
        if isinstance(self.loss, losses.Logistic):  # l(m) - l(-m) = -m
            gained = jnp.where(labelled, self.positive, 0.0) * prediction
            return self.share(b) * self.loss.rows(prediction, 0 * b - 1) - gained
        own = jnp.where(labelled, self.positive, 0.0) * self.loss.rows(prediction, 0 * b + 1)
        return own + self.negatives(prediction, b)

    def share(self, b: Targets) -> Array:
        """Of a row in the mean over the population."""
        return jnp.where(b > 0, self.both, self.unlabelled)

    def negatives(self, prediction: Predictions, b: Targets) -> RowLosses:
        """The risk of the negatives: E[l(-m)] - pi E_+[l(-m)]."""
        weight = self.share(b) - jnp.where(b > 0, self.positive, 0.0)
        return weight * self.loss.rows(prediction, 0 * b - 1)

    @property
    def convex(self) -> bool:
        return isinstance(self.loss, losses.Logistic)

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless every target is -1 or +1."""
        self.loss.check(batch, x)


class NoNegativeRisk(Module):
    """-(E[l(-m)] - pi E_+[l(-m)]) <= 0, of {"coef", "intercept"} and (X, targets, weights)."""

    risk: PositiveUnlabelled
    offset: bool = eqx.field(static=True)

    def __call__(self, x: PyTree, batch: Batch) -> Array:
        A, b, w = batch[:3]
        prediction = A @ x["coef"] + x.get("intercept", 0.0)
        if self.offset:
            prediction = prediction + batch[3]
        return -jnp.mean(w * self.risk.negatives(prediction, b))


class PUClassifier(MoSSPClassifier):
    """Linear classifier from positive and unlabelled rows, sparse and under constraints.

    `fit(X, y)` takes two labels: the larger one marks rows known to be positive, the smaller one
    (0 or -1) unlabelled rows, which are positive or negative.

    Parameters
    ----------
    prior : float, optional
        The share of positives in the population, labelled or not. Left out it is estimated (see
        Notes), with a warning: give it if you know it.
    risk : {"nonnegative", "unbiased"}
        Whether the risk of the negatives, estimated without any, may fall below 0. It does where
        labels are few and the regulariser is weak: then the unbiased risk has no minimum.
    scenario : {"single-set", "case-control"}
        Whether labelled rows are a part of one sample of the population, and count among the
        unlabelled too, or were drawn by themselves, beside a sample of the population.
    loss : str or Predictive, optional
        "logistic", the default, with which the risk is convex, or "huberized-hinge".
    {PARAMETERS}

    `prior_` is the share that was given, or estimated. The estimated prior is that of Elkan and
    Noto (2008): a logistic regression with a small ridge tells labelled from unlabelled rows, and
    the mean of its probabilities over the labelled rows is taken for the chance c that a positive
    is labelled. Then prior = (share of labelled rows) / c for a single set, and (labelled /
    unlabelled) (1 - c) / c for case-control. It is too large where positives and negatives overlap.

    Left out, `lam` is half of prior (2 log(2 n_features) / (labelled rows))^{1/2} times the usual
    scale of a feature, whatever the regulariser: the order of what chance makes of the largest
    entry of the gradient. It is weak where labels are many. Where they are few, an l1 norm that is
    much weaker leaves the unbiased risk without a minimum.

    Scores such as `score` and bounds such as `fpr <= 0.05` are true where the labels that they are
    computed with are; `selection[...]` needs none.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2)) + rng.choice([-1.5, 1.5], 1000)[:, None]
    >>> truth = X.sum(axis=1) > 0
    >>> labelled = truth & (rng.random(1000) < 0.2)
    >>> model = PUClassifier(prior=0.5).fit(X, labelled.astype(int))
    >>> bool(model.score(X, truth.astype(int)) > 0.95), bool(model.certificate_.is_kkt(1e-10))
    (True, True)
    """

    def __init__(
        self,
        prior: float | None = None,
        *,
        risk: str = "nonnegative",
        scenario: str = "single-set",
        loss: Any = None,
        regularizer: Any = "l1",
        lam: float | None = None,
        equality: Any = None,
        inequality: Any = None,
        rates: Any = None,
        rates_margin: float | None = None,
        nonnegative: bool = False,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        constrain_intercept: bool = False,
        feature_weights: Any = None,
        method: Any = "auto",
        steps: int | None = None,
        batch_size: int | str | None = None,
        polish: bool | None = None,
        tol: float | None = None,
        n_starts: int = 1,
        n_replicas: int = 1,
        warm_start: bool = False,
        random_state: Any = None,
        dtype: str = "float64",
    ) -> None:
        super().__init__(
            loss, regularizer=regularizer, lam=lam, equality=equality, inequality=inequality,
            rates=rates, rates_margin=rates_margin, nonnegative=nonnegative,
            fit_intercept=fit_intercept, penalize_intercept=penalize_intercept,
            constrain_intercept=constrain_intercept, feature_weights=feature_weights,
            method=method, steps=steps, batch_size=batch_size, polish=polish, tol=tol,
            n_starts=n_starts, n_replicas=n_replicas, warm_start=warm_start,
            random_state=random_state, dtype=dtype,
        )  # fmt: skip
        self.prior = prior
        self.risk = risk
        self.scenario = scenario

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, sensitive: Any = None, offset: Any = None
    ) -> PUClassifier:
        """Fit to rows X, of which those with the larger label y are known to be positive.

        Parameters
        ----------
        X, y, sample_weight, sensitive, offset
            As for `MoSSPClassifier.fit`.
        """
        super().fit(X, y, sample_weight, sensitive, offset)
        self._check_multiplier()
        return self

    def _solved(self, params: dict[str, Any], rows: Rows, start: Any) -> Result:
        """A minimum of the unbiased risk where that part is positive is one of the other, too."""
        if self.risk == "unbiased":
            return solution(params, rows, start)
        first = solution(params, rows, start)
        risk = params["loss"]
        with jax.enable_x64(True):
            left = risk.negatives(jnp.asarray(scores_of(rows, first.x)), jnp.asarray(rows.labels))
        if first.status is Status.INTERRUPTED or (
            first.success and float(rows.weights @ np.asarray(left)) >= 0
        ):
            return first
        bounded = Expected(NoNegativeRisk(risk, rows.offset is not None))
        return solution({**params, "beside": {NAME: bounded}}, rows, start)

    @property
    def partial_fit(self) -> Any:
        """Not offered: the share of labelled rows is not known before all have come."""
        raise AttributeError("PUClassifier has no partial_fit: use fit with all rows.")

    def _parameters(self, rows: Rows) -> dict[str, Any]:
        if rows.outputs:
            classes = shown(np.unique(rows.labels).tolist())
            raise ValueError(
                "PUClassifier takes two labels, positive and unlabelled: Only binary "
                f"classification is supported, but y has the classes {classes}."
            )
        check_choice("risk", self.risk, RISKS)
        check_choice("scenario", self.scenario, SCENARIOS)
        labelled, weights = rows.labels > 0, rows.weights / rows.weights.sum()
        share = float(weights[labelled].sum())
        self.prior_ = self._estimated(rows, share) if self.prior is None else self._given(share)
        single = self.scenario == "single-set"
        risk = PositiveUnlabelled(
            loss_of(self.loss, CLASSIFICATION, rows.classes), self.prior_ / share,
            both=1.0 if single else 0.0, unlabelled=1.0 if single else 1 / (1 - share),
        )  # fmt: skip
        params = {**vars(self), "loss": risk}
        if self.lam is None and is_plain(self.regularizer):
            params["lam"] = self.prior_ * noise(rows)
        return params

    def _given(self, share: float) -> float:
        prior = self.prior
        if not (isinstance(prior, (int, float, np.number)) and 0 < prior < 1):
            raise ValueError(
                "prior must be the share of positives in the population, between 0 and 1, but "
                f"{shown(prior)} was given."
            )
        if self.scenario == "single-set" and prior < share:
            raise ValueError(
                f"prior = {prior:g} is below the share {share:.3g} of rows that are labelled "
                "positive: it is the share of all positives among all rows. Where the unlabelled "
                "rows are a sample of their own, use scenario='case-control'."
            )
        return float(prior)

    def _estimated(self, rows: Rows, share: float) -> float:
        tells = MoSSPClassifier(regularizer="ridge", lam=RIDGE)
        tells.fit(rows.X, rows.labels, sample_weight=rows.weights)
        labelled = rows.labels > 0
        probabilities = tells.predict_proba(rows.X)[labelled, 1]
        c = float(np.average(probabilities, weights=rows.weights[labelled]))
        prior = share / c if self.scenario == "single-set" else share / (1 - share) * (1 - c) / c
        least = share if self.scenario == "single-set" else 0.0
        prior = float(np.clip(prior, least + 1e-3 * (1 - least), 1 - 1e-3))
        warnings.warn(
            f"prior was left out, and is taken for {prior:.3g}, by the estimate of Elkan and Noto, "
            "which is too large where classes overlap: give prior= if you know it.",
            UserWarning, stacklevel=4,
        )  # fmt: skip
        return prior

    def _check_multiplier(self) -> None:
        found = self.certificate_.multipliers.get("inequality", {})
        multiplier = float(np.ravel(found.get(NAME, 0.0) if isinstance(found, dict) else 0.0)[0])
        if multiplier > 1:
            warnings.warn(
                f"The multiplier of the risk of the negatives is {multiplier:.3g}, above 1: the "
                "answer minimises the unbiased risk where that part is not negative, but the "
                "nonnegative risk is lower elsewhere. The prior is probably too large.",
                ConvergenceWarning, stacklevel=3,
            )  # fmt: skip

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def is_plain(regularizer: Any) -> bool:
    """Whether it is a name that says nothing of its strength."""
    return isinstance(regularizer, str) and ":" not in regularizer and regularizer != "none"


def noise(rows: Rows) -> float:
    """Half of what chance makes of the largest mean of a feature over the labelled rows.

    Of n normal deviations the largest is (2 log 2n)^{1/2} times as large as one. With all of it as
    the strength of an l1 norm, pi E_+[m] of the labelled rows exceeds that of the population by
    less than the penalty for every m = w'x, and the risk is bounded below; half of it keeps more.
    """
    counted = np.ones(len(rows.labels)) if rows.counted is None else rows.counted
    share = counted / counted.sum()
    square = rows.X.multiply(rows.X) if is_sparse(rows.X) else rows.X**2
    variance = np.ravel(share @ square) - np.ravel(share @ rows.X) ** 2
    scale = float(np.median(np.sqrt(np.maximum(variance, 0.0))))
    largest = HALF * np.sqrt(2 * np.log(2 * max(rows.features, 1)))
    return float((scale or 1.0) * largest / np.sqrt(max(counted[rows.labels > 0].sum(), 1.0)))


def check_choice(name: str, given: Any, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise ValueError(
            f"{name} must be {' or '.join(map(repr, choices))}, but {shown(given)} was given."
        )


PUClassifier.__doc__ = (PUClassifier.__doc__ or "").replace("    {PARAMETERS}\n", PARAMETERS)
