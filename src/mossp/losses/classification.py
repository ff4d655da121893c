"""Losses of a label: logistic, huberised hinge, softmax."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.targets import checked_target, listed
from mossp._base.types import (
    AnyArray,
    Array,
    Batch,
    HostArray,
    Number,
    Predictions,
    PyTree,
    RowLosses,
    Targets,
)
from mossp._base.validation import number, require_positive
from mossp.losses.base import HostRows, Predictive, sum_of_outputs


@jax.custom_jvp
def softplus(t: Array) -> Array:
    """log(1 + exp(t)) without overflow."""
    return jnp.logaddexp(t, 0.0)


@softplus.defjvp
def _softplus_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # The derivative is the sigmoid; what differentiation makes of logaddexp takes twice as long.
    return softplus(primals[0]), jax.nn.sigmoid(primals[0]) * tangents[0]


class Logistic(Predictive):
    """Logistic loss: the mean of `log(1 + exp(-b_i a_i'x))` for labels `b_i` of -1 and +1.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.losses import Logistic, logistic
    >>> A, b = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([1.0, -1.0])
    >>> round(float(logistic(jnp.zeros(2), (A, b))), 4)  # log 2
    0.6931
    >>> logistic == Logistic()
    True
    """

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        return softplus(-b * prediction)

    def on_host(self, prediction: HostArray, b: HostArray) -> HostRows | None:
        if type(self) is not Logistic:  # a class of its own may do anything
            return None
        t = -b * prediction
        e = np.exp(-np.abs(t))  # which does not overflow
        values, sigmoid = np.maximum(t, 0) + np.log1p(e), np.where(t > 0, 1, e) / (1 + e)
        return HostRows(values, -b * sigmoid, lambda: b * b * (sigmoid * (1 - sigmoid)))

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless every label is -1 or +1."""
        b = checked_target("logistic", batch, x)
        labels = np.unique(b)
        if np.isin(labels, (-1, 1)).all():
            return
        if np.array_equal(labels, (0, 1)):
            # 2*y - 1 would wrap around to the largest value in an unsigned type.
            y = "y.astype(float)" if b.dtype.kind == "u" else "y"
            remedy = f"use 2*{y} - 1"
        elif labels.size <= 2:
            remedy = f"use numpy.where(y == {labels[-1]:g}, 1, -1)"
        elif (labels == np.round(labels)).all():
            remedy = "for more than two classes use mossp.losses.softmax"
        else:
            remedy = "for a real-valued target use mossp.losses.squared or mossp.losses.huber"
        raise ValueError(
            f"The logistic loss needs labels -1 and +1, but the data hold {listed(labels)}: "
            f"{remedy}."
        )


class HuberizedHinge(Predictive):
    """Mean of the hinge loss `(1 - b_i a_i'x)_+` with a parabola in place of its kink.

    With x of shape (n, C) and labels -1, +1 of shape (rows, C), the C losses of a row are summed:
    one class against the rest.

    Parameters
    ----------
    delta : float
        How far below a margin of 1 the parabola reaches; positive.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.losses import HuberizedHinge
    >>> batch = (jnp.eye(2), jnp.array([1.0, -1.0]))
    >>> float(HuberizedHinge(delta=0.5)(jnp.array([2.0, 1.0]), batch))  # (0 + 1.75) / 2
    0.875
    """

    delta: Number = eqx.field(default=0.5, converter=number)

    def __check_init__(self) -> None:
        require_positive(self, "delta", self.delta)

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        short = 1 - b * prediction
        clipped = jnp.clip(short, 0, self.delta)
        return sum_of_outputs(clipped * (short - 0.5 * clipped) / self.delta)

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless every label is -1 or +1."""
        b = checked_target("huberized hinge", batch, x, several=True)
        if not np.isin(b, (-1, 1)).all():
            raise ValueError(
                "The huberized hinge loss needs labels -1 and +1, but the data hold "
                f"{listed(np.unique(b))}."
            )


class Softmax(Predictive):
    """Softmax cross-entropy: the mean of `log sum_c exp(a_i'x_c) - a_i'x_{b_i}`.

    x has shape (n, C), one column for each class; the labels are 0, ..., C - 1. A label without a
    column makes the value NaN instead of a wrong number.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.losses import softmax
    >>> A, b = jnp.eye(2), jnp.array([0, 2])
    >>> round(float(softmax(jnp.zeros((2, 3)), (A, b))), 4)  # log 3
    1.0986
    """

    def matched(self, prediction: Array, b: AnyArray, x: PyTree) -> tuple[Predictions, Targets]:
        b = jnp.asarray(b)
        if jnp.ndim(x) != 2 or prediction.shape[:-1] != b.shape:
            raise ValueError(
                "The softmax loss needs x of shape (features, classes) and one label for each row "
                f"of A, but x has shape {jnp.shape(x)}, A @ x {prediction.shape} and b {b.shape}."
            )
        return prediction, b

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        scores = prediction
        own = jnp.arange(scores.shape[-1]) == b[..., None]
        # Selecting by comparison is faster on a CPU than a gather, whose gradient is a scatter.
        target = jnp.sum(jnp.where(own, scores, 0), axis=-1, keepdims=True)
        # Subtracting first keeps small losses exact where the scores are large.
        losses = jax.nn.logsumexp(scores - target, axis=-1)
        # A factor, not a constant, so that the gradient is NaN as well.
        return losses * jnp.where(own.any(axis=-1), 1.0, jnp.nan).astype(losses.dtype)

    @property
    def shifts(self) -> bool:
        return type(self) is Softmax  # a class of its own may do anything

    def on_host(self, prediction: HostArray, b: HostArray) -> HostRows | None:
        if type(self) is not Softmax or prediction.ndim != 2:
            return None
        scores = np.ascontiguousarray(prediction.T)  # a row for each class
        own = np.arange(len(scores))[:, None] == b
        scores = scores - np.sum(np.where(own, scores, 0.0), axis=0)
        largest = scores.max(axis=0)  # 0 where the own score is the largest
        e = np.exp(scores - largest)
        others, mine = np.sum(np.where(own, 0.0, e), axis=0), np.exp(-largest)
        total = others + mine
        # 1 - p of the own class without cancellation; the loss is exact where it is small.
        p, rest = e / total, np.where(own, others, total - e) / total
        values = largest + np.log1p(others + (mine - 1))
        values[~own.any(axis=0)] = np.nan

        def curvatures() -> HostArray:
            D = -p[:, None] * p
            D[np.arange(len(p)), np.arange(len(p))] = p * rest
            return np.moveaxis(D, -1, 0)

        return HostRows(values, np.where(own, -rest, p).T, curvatures)

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless every label is a whole number with a column of x."""
        b = checked_target("softmax", batch, x)
        labels = np.unique(b)
        remedy = "use numpy.unique(y, return_inverse=True)[1]"
        if (labels != np.round(labels)).any() or (labels < 0).any():
            raise ValueError(
                "The softmax loss needs whole numbers 0, 1, ..., C - 1 as labels, but the data "
                f"hold {listed(labels)}: {remedy}."
            )
        if x is None:
            return
        if np.ndim(x) != 2:
            raise ValueError(
                "The softmax loss needs x of shape (features, classes), but x has shape "
                f"{np.shape(x)}: start from numpy.zeros((features, classes))."
            )
        classes = np.shape(x)[1]
        if labels.size and labels[-1] >= classes:
            raise ValueError(
                f"The softmax loss has {classes} classes, since x has shape {np.shape(x)}, and "
                f"needs labels 0 to {classes - 1}, but the data hold {listed(labels)}: {remedy}, "
                "or give x more columns."
            )
