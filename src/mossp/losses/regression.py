"""Losses of a number: squared, Huber's, and of a quantile."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp

from mossp._base.targets import checked_target
from mossp._base.types import (
    Batch,
    Number,
    Predictions,
    PyTree,
    RowLosses,
    Targets,
)
from mossp._base.validation import number, require, require_positive
from mossp.losses.base import Predictive, sum_of_outputs


class Squared(Predictive):
    """Squared loss: the mean of `(a_i'x - b_i)^2 / 2`.

    With x of shape (n, k) and b of shape (rows, k), the k squares of a row are summed.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.losses import squared
    >>> float(squared(jnp.array([1.0, 3.0]), (jnp.eye(2), jnp.zeros(2))))
    2.5
    """

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        residual = prediction - b
        return sum_of_outputs(0.5 * residual * residual)

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless the targets are finite numbers, one for each row of A."""
        checked_target("squared", batch, x, several=True)


class Huber(Predictive):
    """Huber loss: the mean of `r^2 / 2` up to `|r| = delta`, linear beyond, of `r = a_i'x - b_i`.

    Parameters
    ----------
    delta : float
        Where the parabola goes over into the straight lines; positive.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.losses import Huber, huber
    >>> batch = (jnp.eye(2), jnp.zeros(2))
    >>> float(huber(jnp.array([1.0, 3.0]), batch))  # (0.5 + 2.5) / 2
    1.5
    >>> float(Huber(delta=3.0)(jnp.array([1.0, 3.0]), batch))  # still the parabola
    2.5
    """

    delta: Number = eqx.field(default=1.0, converter=number)

    def __check_init__(self) -> None:
        require_positive(self, "delta", self.delta)

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        residual = prediction - b
        # With t the residual r clipped to [-delta, delta], t (r - t/2) is the Huber function, and
        # its derivative t has no branch that could overflow.
        clipped = jnp.clip(residual, -self.delta, self.delta)
        return sum_of_outputs(clipped * (residual - 0.5 * clipped))

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless the targets are finite numbers, one for each row of A."""
        checked_target("huber", batch, x, several=True)


class Quantile(Predictive):
    """Mean of the smoothed pinball loss, whose minimiser is the conditional quantile.

    The pinball loss of `r = b_i - a_i'x` is the maximum of `s r` over `tau - 1 <= s <= tau`. Here
    `s^2 delta / 2` is taken off, which makes it a parabola for r between `delta (tau - 1)` and
    `delta tau`.

    Parameters
    ----------
    tau : float
        The order of the quantile, between 0 and 1; 0.5 is the median.
    delta : float
        The width of the parabola; smaller is closer to the pinball loss, and harder.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.losses import Quantile
    >>> batch = (jnp.eye(2), jnp.array([2.0, -2.0]))
    >>> float(Quantile(tau=0.75, delta=0.0625)(jnp.zeros(2), batch))  # near (1.5 + 0.5) / 2
    0.990234375
    """

    tau: Number = eqx.field(default=0.5, converter=number)
    delta: Number = eqx.field(default=0.1, converter=number)

    def __check_init__(self) -> None:
        needs = "tau between 0 and 1"
        require(self, "tau", self.tau, needs, lambda tau: (tau > 0) & (tau < 1), several=True)
        require_positive(self, "delta", self.delta)

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        r = b - prediction
        s = jnp.clip(r / self.delta, self.tau - 1, self.tau)
        return sum_of_outputs(s * (r - 0.5 * self.delta * s))

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless the targets are finite numbers, one for each row of A."""
        checked_target("quantile", batch, x, several=True)
