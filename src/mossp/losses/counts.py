"""Losses of counts and amounts, whose mean is exp(prediction): Poisson, Gamma, Tweedie."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from mossp._base.targets import checked_target
from mossp._base.types import (
    Batch,
    HostArray,
    Number,
    Predictions,
    PyTree,
    RowLosses,
    Targets,
)
from mossp._base.validation import number, require
from mossp.losses.base import Predictive, sum_of_outputs


class LogLink(Predictive):
    """A loss whose `exp(prediction)` is the mean of the target."""

    def mean(self, prediction: HostArray) -> HostArray:
        with np.errstate(over="ignore"):  # infinity is what it is
            return np.exp(prediction)


class Poisson(LogLink):
    """Poisson loss: the mean of `exp(a_i'x) - b_i a_i'x`; `exp(a_i'x)` is the expected count.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.losses import poisson
    >>> float(poisson(jnp.zeros(2), (jnp.eye(2), jnp.array([1.0, 3.0]))))
    1.0
    """

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        return sum_of_outputs(jnp.exp(prediction) - b * prediction)

    def least(self, b: HostArray) -> HostArray:
        return b - b * np.log(np.where(b > 0, b, 1.0))  # at exp(p) = b

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless the targets are finite numbers that are not negative."""
        not_negative(
            "poisson", "counts, at least 0", checked_target("poisson", batch, x, several=True)
        )


class Gamma(LogLink):
    """Gamma loss: the mean of `b_i exp(-a_i'x) + a_i'x`; `exp(a_i'x)` is the expected target.

    For positive targets whose standard deviation grows in proportion to their mean: costs,
    durations. It is the negative log-likelihood of the gamma distribution, up to its dispersion.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.losses import gamma
    >>> float(gamma(jnp.zeros(2), (jnp.eye(2), jnp.array([1.0, 3.0]))))
    2.0
    """

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        return sum_of_outputs(jnp.multiply(b, jnp.exp(-prediction)) + prediction)

    def least(self, b: HostArray) -> HostArray:
        return 1 + np.log(b)  # at exp(p) = b

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless the targets are finite and positive."""
        b = checked_target("gamma", batch, x, several=True)
        not_negative("gamma", "positive numbers", b)
        if (b == 0).any():
            raise ValueError(
                f"The gamma loss needs positive numbers, but {int((b == 0).sum())} of {b.size} "
                "targets are 0: use mossp.losses.tweedie, which allows them."
            )


class Tweedie(LogLink):
    """Tweedie loss, for targets that are 0 or positive: `exp(a_i'x)` is the expected target.

    The mean of `b_i exp((1-q) a_i'x)/(q-1) + exp((2-q) a_i'x)/(2-q)`, q the power of the mean that
    the variance grows with: between Poisson, q = 1, and gamma, q = 2. For sums of a random number
    of positive amounts, such as claims of a policy, many of which are 0.

    Parameters
    ----------
    power : float
        The power q, between 1 and 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.losses import Tweedie
    >>> float(Tweedie(power=1.5)(jnp.zeros(2), (jnp.eye(2), jnp.array([0.0, 1.0]))))
    3.0
    """

    power: Number = eqx.field(default=1.5, converter=number)

    def __check_init__(self) -> None:
        needs = "power between 1 and 2 (for 1 take poisson, for 2 gamma, for 0 squared)"
        require(self, "power", self.power, needs, lambda q: (q > 1) & (q < 2))

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        # With m = exp(p): b m^(1-q) / (q-1) + m^(2-q) / (2-q), both convex in p.
        below, above = 1 - self.power, 2 - self.power
        return sum_of_outputs(
            jnp.exp(above * prediction) / above - b * jnp.exp(below * prediction) / below
        )

    def least(self, b: HostArray) -> HostArray:
        q = float(self.power)
        return b ** (2 - q) / ((q - 1) * (2 - q))  # at exp(p) = b, in the limit for b = 0

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless the targets are finite numbers that are not negative."""
        b = checked_target("tweedie", batch, x, several=True)
        not_negative("tweedie", "numbers, at least 0", b)


def not_negative(name: str, needs: str, b: HostArray) -> None:
    if (b < 0).any():
        raise ValueError(
            f"The {name} loss needs {needs}, but {int((b < 0).sum())} of {b.size} targets "
            f"are negative, the smallest {b.min():g}: for a target of either sign use "
            "mossp.losses.squared or mossp.losses.huber."
        )
