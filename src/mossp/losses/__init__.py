"""Ready losses: f(x) as a mean over the rows of a batch (A, b).

Each loss is an equinox module, called as `loss(x, (A, b))`. It uses A only through `A @ x`, so that
dense arrays and sparse rows serve alike, and it compares equal to any other instance with the same
parameters, so that a second solve does not compile again. The parameters are leaves of the pytree.
With p = a'x the prediction for a row:

    logistic           log(1 + exp(-b p))                     b in {-1, +1}
    huberized_hinge    (1 - b p)_+, a parabola up to delta    b in {-1, +1}
    softmax            log sum_c exp(p_c) - p_b               b in {0, ..., C - 1}, x: (n, C)
    squared            (p - b)^2 / 2
    huber              (p - b)^2 / 2, linear beyond delta
    quantile           pinball loss of b - p, a parabola near 0
    poisson            exp(p) - b p                           b >= 0
    gamma              b exp(-p) + p                          b > 0
    tweedie            between the two, of power 1 < q < 2    b >= 0

`LinearModel(loss)` adds an intercept, a weight per row and, if asked, an offset per row.
"""

from __future__ import annotations

from collections.abc import Mapping

from mossp._base import naming
from mossp.losses.base import Loss, Predictive
from mossp.losses.classification import HuberizedHinge, Logistic, Softmax
from mossp.losses.counts import Gamma, Poisson, Tweedie
from mossp.losses.linear_model import LinearModel
from mossp.losses.regression import Huber, Quantile, Squared

__all__ = [
    "Gamma",
    "Huber",
    "HuberizedHinge",
    "LinearModel",
    "Logistic",
    "Loss",
    "Poisson",
    "Predictive",
    "Quantile",
    "Softmax",
    "Squared",
    "Tweedie",
    "gamma",
    "huber",
    "huberized_hinge",
    "logistic",
    "named",
    "poisson",
    "quantile",
    "softmax",
    "squared",
    "tweedie",
]


logistic = Logistic()
huberized_hinge = HuberizedHinge()
softmax = Softmax()
squared = Squared()
huber = Huber()
quantile = Quantile()
poisson = Poisson()
gamma = Gamma()
tweedie = Tweedie()

NAMES: Mapping[str, type[Predictive]] = {
    "logistic": Logistic,
    "huberized-hinge": HuberizedHinge,
    "softmax": Softmax,
    "squared": Squared,
    "huber": Huber,
    "quantile": Quantile,
    "poisson": Poisson,
    "gamma": Gamma,
    "tweedie": Tweedie,
}


def named(text: str) -> Predictive:
    """The loss of this name, with its parameters if they are given.

    Parameters
    ----------
    text : str
        A name such as "quantile", with numbers if wanted, "quantile:0.9,0.05".

    Returns
    -------
    Predictive

    Examples
    --------
    >>> named("quantile:0.9,0.05") == Quantile(tau=0.9, delta=0.05)
    True
    """
    make, numbers = naming.find(text, NAMES, "loss")
    return naming.call(make, numbers, text)
