"""Learning from positive and unlabelled rows, without a single negative label."""

from __future__ import annotations

import re
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mossp import losses
from mossp._base.printing import shown
from mossp._base.types import HostArray
from mossp._base.validation import check_choice
from mossp.expected import Expected
from mossp.losses import Predictive
from mossp.result import Result, Status
from mossp.sklearn.coefficients import entries
from mossp.sklearn.formulation import CLASSIFICATION, loss_of
from mossp.sklearn.held_out import FACTORS, calibrated, enough, held_out
from mossp.sklearn.levels import level
from mossp.sklearn.linear import PARAMETERS
from mossp.sklearn.models import MoSSPClassifier
from mossp.sklearn.paths import solution
from mossp.sklearn.promises import has_rates, scores_of
from mossp.sklearn.rows import Rows
from mossp.sklearn.strengths import is_plain, of_likelihood, of_risk
from mossp.sklearn.unlabelled import NoNegativeRisk, PositiveLikelihood, PositiveUnlabelled

RISKS = ("likelihood", "nonnegative", "unbiased")
THRESHOLDS = ("calibrated", "prior", "half")
SCENARIOS = ("single-set", "case-control")
RIDGE = 1e-3  # of the classifier behind an estimated prior
NAME = "negatives"  # of the constraint


class PUClassifier(MoSSPClassifier):
    """Linear classifier from positive and unlabelled rows, under constraints, sparse if asked.

    `fit(X, y)` takes two labels: the larger one marks rows known to be positive, the smaller one
    (0 or -1) unlabelled rows, which are positive or negative.

    Parameters
    ----------
    prior : float, optional
        The share of positives in the population, labelled or not. Left out it is estimated (see
        Notes), with a warning: give it if you know it.
    risk : {"likelihood", "nonnegative", "unbiased"}, optional
        What is minimised. "likelihood", the default with the logistic loss: minus the logarithm of
        the probability of the labels, of the logistic model with this prior. The other two are
        estimates of the mean loss of true labels: "unbiased" has a part that stands for the
        negatives, and may fall below 0 though no loss does. It does where labels are few and the
        regulariser is weak: then it has no minimum. "nonnegative", the default with another loss,
        keeps that part above 0.
    threshold : {"calibrated", "prior", "half"}, optional
        What `predict` calls positive. A regulariser shrinks scores, and with them probabilities
        towards the prior, so that too few of them are above 1/2, the threshold of "half". For the
        other two the intercept is moved. "calibrated", the default for the likelihood: so that as
        many rows of the population are called positive as have a probability above 1/2 by scores
        of rows left out, rescaled such that labels are most likely (Notes). "prior", the default
        for the risks: so that the share `prior_` is.
    scenario : {"single-set", "case-control"}
        Whether labelled rows are a part of one sample of the population, and count among the
        unlabelled too, or were drawn by themselves, beside a sample of the population.
    loss : str or Predictive, optional
        "logistic", the default, with which the unbiased risk is convex, or, for the two risks,
        "huberized-hinge".
    {PARAMETERS}

    `prior_` is the share that was given, or estimated, `share_` that of the population at which the
    intercept was put, and `lam_` the strength, None where an object has its own. The estimated
    prior is that of Elkan and Noto (2008): a logistic regression with a small ridge tells labelled
    from unlabelled rows, and the mean of its probabilities over the labelled rows is taken for the
    chance c that a positive is labelled. Then prior = (share of labelled rows) / c for a single
    set, and (labelled / unlabelled) (1 - c) / c for case-control. It is too large where positives
    and negatives overlap.

    The likelihood of the labels of rows that a model has not seen says how good its scores are,
    without a single true label. For five folds (equal rows in the same) the scores m of rows left
    out are taken for sigma(a m + b), with the a > 0 that is the most likely and the b that gives
    the population the mean `prior_`. Left out, `lam` of a ridge is that of eight, from 30 times to
    a hundredth of 2 (sum of the variances of the features) / (number of rows), whose scores have
    the highest likelihood. (This is the normal prior of the coefficients under which scores have
    the variance 1/2. It stands where labelled rows are in fewer than two folds.) The threshold
    "calibrated" is where the same probability is 1/2: where scores of rows left out tell next to
    nothing, all rows are called what most of them are. `predict_proba` does not take part: it has
    the model's own scores, which the regulariser has drawn together.

    Left out, `lam` of another regulariser is a quarter of what chance makes of the largest entry of
    the gradient, (labelled rows) / (all rows) (2 log(2 n_features) / (labelled rows))^{1/2} times
    the usual scale of a feature; of the two risks half of the same with prior in place of the first
    fraction. It is weak where labels are many. Where they are few, an l1 norm that is much weaker
    leaves the unbiased risk without a minimum.

    With few labels the ridge has the smaller errors. `regularizer="l1"` has exact zeros.

    The intercept stays where it was found with `threshold="half"`, without an intercept, and under
    `rates` or constraints on the intercept, which speak of it.

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

    intercept_: Any

    def __init__(
        self,
        prior: float | None = None,
        *,
        risk: str | None = None,
        threshold: str | None = None,
        scenario: str = "single-set",
        loss: Any = None,
        regularizer: Any = "ridge",
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
        self.threshold = threshold
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
        if self._moves():
            scores = self._scores(X, offset)
            weights = np.ones(len(scores)) if sample_weight is None else np.asarray(sample_weight)
            labelled = np.asarray(y) == self.classes_[1]
            cut = level(scores, self._population(weights, labelled), self.share_, nearest=True)
            self.intercept_ = self.intercept_ - cut
        return self

    def _risk(self) -> str:
        """What is minimised: as asked, or what suits the loss."""
        if self.risk is not None:
            return self.risk
        logistic = isinstance(loss_of(self.loss, CLASSIFICATION), losses.Logistic)
        return "likelihood" if logistic else "nonnegative"

    def _threshold(self) -> str:
        """Where decisions are taken: as asked, or what suits the risk."""
        if self.threshold is not None:
            return self.threshold
        return "calibrated" if self._risk() == "likelihood" else "prior"

    def _population(self, weights: HostArray, labelled: HostArray) -> HostArray:
        """Weights of the rows as a sample of the population."""
        return np.where(labelled, 0.0, weights) if self.scenario == "case-control" else weights

    def _moves(self) -> bool:
        """Whether the intercept may be moved to where `threshold` wants it."""
        held = self.penalize_intercept or self.constrain_intercept or has_rates(vars(self))
        held = held or mentions_intercept(self.equality) or mentions_intercept(self.inequality)
        return self._threshold() != "half" and self.fit_intercept and not held

    def _solved(self, params: dict[str, Any], rows: Rows, start: Any) -> Result:
        """A minimum of the unbiased risk where that part is positive is one of the other, too."""
        if self._risk() != "nonnegative":
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
        check_choice("risk", self._risk(), RISKS)
        check_choice("threshold", self._threshold(), THRESHOLDS)
        check_choice("scenario", self.scenario, SCENARIOS)
        if self.threshold == "calibrated" and self._risk() != "likelihood":
            raise ValueError(
                "threshold='calibrated' is by the likelihood of the labels: use risk='likelihood', "
                "or threshold='prior'."
            )
        labelled, weights = rows.labels > 0, rows.weights / rows.weights.sum()
        share = float(weights[labelled].sum())
        self.prior_ = self._estimated(rows, share) if self.prior is None else self._given(share)
        single = self.scenario == "single-set"
        params = {**vars(self), "loss": self._loss(rows, share, single)}
        plain = self.lam is None and is_plain(self.regularizer)
        likelihood = self._risk() == "likelihood"
        if plain and likelihood:
            params["lam"] = of_likelihood(rows, share, self.regularizer)
        elif plain:
            params["lam"] = of_risk(rows, self.prior_)
        chooses = plain and likelihood and self.regularizer == "ridge"
        calibrates = self._threshold() == "calibrated" and self._moves()
        self.share_ = self.prior_
        if (chooses or calibrates) and enough(rows):
            lams = params["lam"] * FACTORS if chooses else [params["lam"]]
            population = self._population(rows.weights, labelled)
            found = [
                calibrated(params["loss"], scores, rows, population, self.prior_)
                for scores in held_out(params, rows, lams)
            ]
            best = min(range(len(lams)), key=lambda k: found[k].loss)
            params["lam"] = lams[best]
            self.share_ = found[best].share if calibrates else self.prior_
        self.lam_ = params["lam"]
        return params

    def _loss(self, rows: Rows, share: float, single: bool) -> Predictive:
        loss = loss_of(self.loss, CLASSIFICATION, rows.classes)
        if self._risk() != "likelihood":
            return PositiveUnlabelled(
                loss, self.prior_ / share, both=1.0 if single else 0.0,
                unlabelled=1.0 if single else 1 / (1 - share),
            )  # fmt: skip
        if not isinstance(loss, losses.Logistic):
            raise ValueError(
                f"risk='likelihood' is that of the logistic model, but loss = {shown(self.loss)}: "
                "leave loss out, or use risk='nonnegative'."
            )
        if single:
            return PositiveLikelihood.single_set(share / self.prior_)
        return PositiveLikelihood.case_control(share / (1 - share) / self.prior_)

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
                f"positive, those with y = {self.classes_[1]}, the larger label: it is the share "
                "of all positives among all rows. Where the unlabelled rows are a sample of their "
                "own, use scenario='case-control'."
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


def mentions_intercept(constraints: Any) -> bool:
    """Whether a text among them does; functions see the intercept where `constrain_intercept`."""
    given = (one for _, one in entries(constraints))
    texts = (one if isinstance(one, str) else getattr(one, "text", "") for one in given)
    return any(re.search(r"\bintercept\b", str(text)) for text in texts)


PUClassifier.__doc__ = (PUClassifier.__doc__ or "").replace("    {PARAMETERS}\n", PARAMETERS)
