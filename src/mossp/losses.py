"""Ready losses: f(x) as a mean over the rows of a batch (A, b).

Each loss is an equinox module, called as `loss(x, (A, b))`. It uses A only through `A @ x`, so that
dense arrays and sparse rows serve alike, and it compares equal to any other instance with the same
parameters, so that a second solve does not compile again. The parameters are leaves of the pytree.

    logistic    log(1 + exp(-b a'x))                     b in {-1, +1}
    squared     (a'x - b)^2 / 2
    huber       (a'x - b)^2 / 2, linear beyond delta
    softmax     log sum_c exp(a'x_c) - a'x_b             b in {0, ..., C - 1}, x of shape (n, C)
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "Huber",
    "Logistic",
    "Loss",
    "Softmax",
    "Squared",
    "huber",
    "logistic",
    "softmax",
    "squared",
]

# How many distinct labels an error message shows before it stops.
_LABELS_SHOWN = 4


class Loss(eqx.Module):
    """What a ready loss is: a mean over rows, and a check of the data it is given.

    A subclass states `__call__`; it may state `check` as well. A plain function
    `loss(x, batch) -> scalar` serves just as well where no check is wanted.

    >>> import jax.numpy as jnp
    >>> from mossp.losses import Loss
    >>> class Absolute(Loss):
    ...     def __call__(self, x, batch):
    ...         A, b = batch
    ...         return jnp.mean(jnp.abs(A @ x - b))
    >>> float(Absolute()(jnp.array([1.0, 2.0]), (jnp.eye(2), jnp.zeros(2))))
    1.5
    """

    @abc.abstractmethod
    def __call__(self, x: Any, batch: Any) -> jax.Array:
        """Return the mean of the loss over the rows of `batch`."""

    def check(self, batch: Any, x: Any = None) -> None:
        """Raise ValueError if the full data, in NumPy, cannot belong to this loss.

        Args:
            batch: all of the data, before anything is compiled; A may be a scipy.sparse matrix.
            x: the start, if known; its shape tells how many features and classes there are.
        """


@jax.custom_jvp
def softplus(t: jax.Array) -> jax.Array:
    """log(1 + exp(t)) without overflow."""
    return jnp.logaddexp(t, 0.0)


@softplus.defjvp
def _softplus_jvp(primals: Any, tangents: Any) -> Any:
    # The derivative is the sigmoid; what differentiation makes of logaddexp takes twice as long.
    return softplus(primals[0]), jax.nn.sigmoid(primals[0]) * tangents[0]


class Logistic(Loss):
    """Logistic loss: the mean of log(1 + exp(-b_i a_i'x)) for labels b_i of -1 and +1.

    >>> import jax.numpy as jnp
    >>> from mossp.losses import Logistic, logistic
    >>> A, b = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([1.0, -1.0])
    >>> round(float(logistic(jnp.zeros(2), (A, b))), 4)  # log 2
    0.6931
    >>> logistic == Logistic()
    True
    """

    def __call__(self, x: jax.Array, batch: Any) -> jax.Array:
        prediction, b = _prediction_and_target(x, batch)
        return jnp.mean(softplus(-b * prediction))

    def check(self, batch: Any, x: Any = None) -> None:
        """Raise ValueError unless every label is -1 or +1."""
        b = _checked_target("logistic", batch, x)
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
            f"The logistic loss needs labels -1 and +1, but the data hold {_shown(labels)}: "
            f"{remedy}."
        )


class Squared(Loss):
    """Squared loss: the mean of (a_i'x - b_i)^2 / 2.

    With x of shape (n, k) and b of shape (rows, k), the k squares of a row are summed.

    >>> import jax.numpy as jnp
    >>> from mossp.losses import squared
    >>> float(squared(jnp.array([1.0, 3.0]), (jnp.eye(2), jnp.zeros(2))))
    2.5
    """

    def __call__(self, x: jax.Array, batch: Any) -> jax.Array:
        prediction, b = _prediction_and_target(x, batch)
        residual = prediction - b
        return _mean_over_rows(0.5 * residual * residual)

    def check(self, batch: Any, x: Any = None) -> None:
        """Raise ValueError unless the targets are finite numbers, one for each row of A."""
        _checked_target("squared", batch, x, several=True)


def _number(value: Any) -> Any:
    """Return a scalar as a Python float, which takes the precision of the arrays it meets."""
    if isinstance(value, jax.core.Tracer) or np.ndim(value) > 0:
        return value
    return float(value)


class Huber(Loss):
    """Huber loss: (a_i'x - b_i)^2 / 2 up to |a_i'x - b_i| = delta, linear beyond; its mean.

    Args:
        delta: where the parabola goes over into the straight lines; positive.

    >>> import jax.numpy as jnp
    >>> from mossp.losses import Huber, huber
    >>> batch = (jnp.eye(2), jnp.zeros(2))
    >>> float(huber(jnp.array([1.0, 3.0]), batch))  # (0.5 + 2.5) / 2
    1.5
    >>> float(Huber(delta=3.0)(jnp.array([1.0, 3.0]), batch))  # still the parabola
    2.5
    """

    delta: Any = eqx.field(default=1.0, converter=_number)

    def __check_init__(self) -> None:
        if isinstance(self.delta, jax.core.Tracer):
            return
        if not np.all(np.isfinite(self.delta)) or not np.all(np.asarray(self.delta) > 0):
            raise ValueError(f"Huber needs a positive, finite delta, but delta = {self.delta}.")

    def __call__(self, x: jax.Array, batch: Any) -> jax.Array:
        prediction, b = _prediction_and_target(x, batch)
        residual = prediction - b
        # With t the residual r clipped to [-delta, delta], t (r - t/2) is the Huber function, and
        # its derivative t has no branch that could overflow.
        clipped = jnp.clip(residual, -self.delta, self.delta)
        return _mean_over_rows(clipped * (residual - 0.5 * clipped))

    def check(self, batch: Any, x: Any = None) -> None:
        """Raise ValueError unless the targets are finite numbers, one for each row of A."""
        _checked_target("huber", batch, x, several=True)


class Softmax(Loss):
    """Softmax cross-entropy: the mean of log sum_c exp(a_i'x_c) - a_i'x_{b_i}.

    x has shape (n, C), one column for each class; the labels are 0, ..., C - 1. A label without a
    column makes the value NaN instead of a wrong number.

    >>> import jax.numpy as jnp
    >>> from mossp.losses import softmax
    >>> A, b = jnp.eye(2), jnp.array([0, 2])
    >>> round(float(softmax(jnp.zeros((2, 3)), (A, b))), 4)  # log 3
    1.0986
    """

    def __call__(self, x: jax.Array, batch: Any) -> jax.Array:
        A, b = _pair(batch)
        scores, b = A @ x, jnp.asarray(b)
        if jnp.ndim(x) != 2 or scores.shape[:-1] != b.shape:
            raise ValueError(
                "The softmax loss needs x of shape (features, classes) and one label for each row "
                f"of A, but x has shape {jnp.shape(x)}, A @ x {scores.shape} and b {b.shape}."
            )
        own = jnp.arange(scores.shape[-1]) == b[..., None]
        # Selecting by comparison is faster on a CPU than a gather, whose gradient is a scatter.
        target = jnp.sum(jnp.where(own, scores, 0), axis=-1, keepdims=True)
        # Subtracting first keeps small losses exact where the scores are large.
        losses = jax.nn.logsumexp(scores - target, axis=-1)
        # A factor, not a constant, so that the gradient is NaN as well.
        return jnp.mean(losses * jnp.where(own.any(axis=-1), 1.0, jnp.nan).astype(losses.dtype))

    def check(self, batch: Any, x: Any = None) -> None:
        """Raise ValueError unless every label is a whole number with a column of x."""
        b = _checked_target("softmax", batch, x)
        labels = np.unique(b)
        remedy = "use numpy.unique(y, return_inverse=True)[1]"
        if (labels != np.round(labels)).any() or (labels < 0).any():
            raise ValueError(
                "The softmax loss needs whole numbers 0, 1, ..., C - 1 as labels, but the data "
                f"hold {_shown(labels)}: {remedy}."
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
                f"needs labels 0 to {classes - 1}, but the data hold {_shown(labels)}: {remedy}, "
                "or give x more columns."
            )


logistic = Logistic()
squared = Squared()
huber = Huber()
softmax = Softmax()


def _pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        given = f"{len(batch)} parts" if isinstance(batch, tuple | list) else type(batch).__name__
        raise ValueError(
            f"A ready loss needs data = (A, b), features and labels, but it was given {given}: "
            "pass a pair, or write your own loss(x, batch)."
        )
    return batch[0], batch[1]


def _prediction_and_target(x: jax.Array, batch: Any) -> tuple[jax.Array, jax.Array]:
    A, b = _pair(batch)
    prediction, b = A @ x, jnp.asarray(b)
    # (rows,) against (rows, 1) would broadcast to (rows, rows) without a word.
    if prediction.shape != b.shape:
        raise ValueError(
            f"The predictions A @ x and the labels b must have the same shape, but A @ x has shape "
            f"{prediction.shape} (x has shape {jnp.shape(x)}) and b has shape {b.shape}."
        )
    return prediction, b


def _mean_over_rows(losses: jax.Array) -> jax.Array:
    """Sum the outputs of a row, if there are several, and average over the rows."""
    return jnp.mean(losses if losses.ndim <= 1 else jnp.sum(losses, axis=-1))


def _checked_target(name: str, batch: Any, x: Any, several: bool = False) -> np.ndarray:
    """Return b as NumPy after the checks that every loss shares."""
    A, b = _pair(batch)
    b = np.asarray(b)
    if b.dtype.kind not in "biuf":
        raise ValueError(
            f"The {name} loss needs real numbers as labels, but b has dtype {b.dtype}: encode the "
            "labels as numbers first."
        )
    shape = np.shape(A) if getattr(A, "shape", None) is None else tuple(A.shape)
    if len(shape) != 2:
        raise ValueError(
            f"The {name} loss needs A of shape (rows, features), but A has shape {shape}."
        )
    if b.ndim != 1 and not (several and b.ndim == 2):
        remedy = ": use y.ravel()" if b.size == shape[0] else ""
        raise ValueError(
            f"The {name} loss needs one label for each row of A, but b has shape {b.shape}{remedy}."
        )
    if b.shape[0] != shape[0]:
        raise ValueError(
            f"The {name} loss needs one label for each row of A, but A has {shape[0]} rows and b "
            f"has {b.shape[0]}."
        )
    bad = ~np.isfinite(b)
    if bad.any():
        row = int(np.argwhere(bad)[0, 0])
        raise ValueError(
            f"The {name} loss needs finite labels, but {int(bad.sum())} of {b.size} are NaN or "
            f"infinite, the first in row {row}: remove or repair those rows."
        )
    if x is not None and np.ndim(x) > 0 and np.shape(x)[0] != shape[1]:
        raise ValueError(
            f"A has {shape[1]} features, but x has shape {np.shape(x)}: the first axis of x must "
            f"have length {shape[1]}."
        )
    return b


def _shown(labels: np.ndarray) -> str:
    """Write a few distinct labels for a person: `0 and 1`, `1, 2, 3, 4 and 6 others`."""
    texts = [f"{float(label):g}" for label in labels[:_LABELS_SHOWN]]
    rest = labels.size - len(texts)
    if rest:
        return f"{', '.join(texts)} and {rest} other{'s' if rest > 1 else ''}"
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
