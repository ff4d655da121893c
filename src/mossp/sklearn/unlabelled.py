"""What a row that is labelled positive, or not labelled, costs: losses without negative labels.

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

Risks take no part of what is known: that a row is positive with probability p = 1 / (1 + exp(-m)),
and that positives are labelled by chance alone. The likelihood of the labels does (Lancaster,
Imbens 1996; Ward et al. 2009), and where the model is right no estimate has a smaller error for
many rows. In a single set a positive is labelled with probability c = P(labelled) / pi:

    labelled     -log p       =  log(1 + exp(-m))
    unlabelled   -log(1 - cp) =  log(1 + exp(m)) - log(1 + (1 - c) exp(m))

Where labelled rows were drawn by themselves, beside a sample of the population, a row of both is a
labelled one with odds r p : 1, r = (labelled / unlabelled) / pi:

    labelled     log(1 + (1 + r) exp(m)) - m
    unlabelled   log(1 + (1 + r) exp(m)) - log(1 + exp(m))

Both are differences of convex functions, of which every unlabelled row has a concave part.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.special

from mossp import losses
from mossp._base.module import Module
from mossp._base.types import (
    Array,
    Batch,
    HostArray,
    Number,
    Predictions,
    PyTree,
    RowLosses,
    Targets,
)
from mossp.losses import Predictive
from mossp.losses.base import HostRows
from mossp.losses.classification import softplus


class PositiveLikelihood(Predictive):
    """-log likelihood of a label, row by row, for targets +1 (labelled) and -1 (unlabelled).

    With s(t) = log(1 + exp(t)) a labelled row counts `s(m + labelled) - m`, another one
    `s(m + first) - s(m + second)`.

    Examples
    --------
    >>> import numpy as np
    >>> single = PositiveLikelihood.single_set(0.25)  # a quarter of the positives is labelled
    >>> p = 1 / (1 + np.exp(-0.3))
    >>> rows = single.rows(jnp.array([0.3, 0.3]), jnp.array([1.0, -1.0]))
    >>> bool(np.allclose(rows, [-np.log(p), -np.log(1 - 0.25 * p)], atol=1e-6))
    True
    """

    labelled: Number
    first: Number
    second: Number

    @classmethod
    def single_set(cls, c: float) -> PositiveLikelihood:
        """Of one sample, in which a positive is labelled with probability c."""
        return cls(0.0, 0.0, float(np.log(max(1 - c, np.finfo(float).tiny))))

    @classmethod
    def case_control(cls, r: float) -> PositiveLikelihood:
        """Of two samples; r is (labelled / unlabelled) / prior."""
        return cls(float(np.log1p(r)), float(np.log1p(r)), 0.0)

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        s, m = softplus, prediction
        labelled = s(m + self.labelled) - m
        return jnp.where(b > 0, labelled, s(m + self.first) - s(m + self.second))

    def on_host(self, prediction: HostArray, b: HostArray) -> HostRows:
        known, s, p = b > 0, lambda t: np.logaddexp(0.0, t), scipy.special.expit
        at = prediction + np.where(known, self.labelled, self.first)
        beside = prediction + self.second
        up, down = p(at), p(beside)
        return HostRows(
            s(at) - np.where(known, prediction, s(beside)),
            up - np.where(known, 1.0, down),
            lambda: up * (1 - up) - np.where(known, 0.0, down * (1 - down)),
        )

    @property
    def loss(self) -> Predictive:
        """What it is where all labels are known."""
        return losses.logistic

    @property
    def convex(self) -> bool:
        return False

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless every target is -1 or +1."""
        self.loss.check(batch, x)


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
