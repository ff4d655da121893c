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

import abc
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp._base import naming
from mossp._base.module import Module
from mossp._base.targets import checked_target, listed, pair
from mossp._base.types import (
    AnyArray,
    Array,
    Batch,
    HostArray,
    Number,
    Predictions,
    PyTree,
    RowLosses,
    Scalar,
    Targets,
)
from mossp._base.validation import number, require, require_positive

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


class Linear(NamedTuple):
    """A loss of predictions A B + intercept + offset: the mean of w_i l(row i of them, b_i).

    B is x, or what x calls "coef"; the vector of x is B row by row, and then the intercept.
    """

    loss: Predictive  # l
    A: AnyArray
    b: AnyArray
    w: AnyArray | None  # 1 where there are none
    offset: AnyArray | None  # added to the predictions
    intercept: bool


class Loss(Module):
    """A mean over the rows of a batch, and a check of the data.

    A subclass defines `__call__`; it may define `check` as well. A plain function
    `loss(x, batch) -> scalar` serves just as well where no check is wanted.

    Examples
    --------
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
    def __call__(self, x: PyTree, batch: Batch) -> Scalar:
        """Return the mean of the loss over the rows of `batch`."""

    @property
    def convex(self) -> bool:
        """Whether it is convex in x, so that Newton's method need not wait for a good start."""
        return False

    def linear(self, batch: Batch, paths: tuple[str, ...]) -> Linear | None:
        """What it is made of, if it is a loss of predictions that are linear in x; else None.

        Parameters
        ----------
        batch
            The data.
        paths : tuple of str
            Of the leaves of x; the one leaf of an array is "".
        """
        return None

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError if the full data, in NumPy, cannot belong to this loss.

        Parameters
        ----------
        batch
            All of the data, before anything is compiled; A may be a scipy.sparse matrix.
        x : optional
            The start, if known; its shape tells how many features and classes there are.
        """


class HostRows(NamedTuple):
    """The loss of every row, and its first and second derivative in the prediction."""

    values: HostArray
    slopes: HostArray
    curvatures: HostArray


class Predictive(Loss):
    """A loss of predictions `A @ x` against targets b, row by row, convex in the predictions."""

    @abc.abstractmethod
    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        """Return the loss of every row."""

    def __call__(self, x: PyTree, batch: Batch) -> Scalar:
        A, b = pair(batch)
        return jnp.mean(self.rows(*_matching(A @ x, b)))

    def linear(self, batch: Batch, paths: tuple[str, ...]) -> Linear | None:
        own = type(self).__call__ not in (Predictive.__call__, Softmax.__call__)
        if own or paths != ("",):  # a class of its own may do anything
            return None
        return Linear(self, *pair(batch), None, None, intercept=False)

    def on_host(self, prediction: HostArray, b: HostArray) -> HostRows | None:
        """Return the loss of every row and its derivatives in NumPy; None where JAX has them alone.

        For few rows, to call a compiled program takes ten times as long as the numbers do.
        """
        return None

    def mean(self, prediction: HostArray) -> HostArray:
        """Return the target that is expected where the prediction is this, on the host."""
        return prediction

    def least(self, b: HostArray) -> HostArray:
        """Return the infimum of the loss of every row over its predictions, on the host."""
        return np.zeros(len(b))

    @property
    def convex(self) -> bool:
        return True


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
        return HostRows(values, -b * sigmoid, b * b * (sigmoid * (1 - sigmoid)))

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
        return _sum_of_outputs(0.5 * residual * residual)

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
        return _sum_of_outputs(clipped * (residual - 0.5 * clipped))

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless the targets are finite numbers, one for each row of A."""
        checked_target("huber", batch, x, several=True)


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
        return _sum_of_outputs(clipped * (short - 0.5 * clipped) / self.delta)

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless every label is -1 or +1."""
        b = checked_target("huberized hinge", batch, x, several=True)
        if not np.isin(b, (-1, 1)).all():
            raise ValueError(
                "The huberized hinge loss needs labels -1 and +1, but the data hold "
                f"{listed(np.unique(b))}."
            )


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
        return _sum_of_outputs(s * (r - 0.5 * self.delta * s))

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless the targets are finite numbers, one for each row of A."""
        checked_target("quantile", batch, x, several=True)


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
        return _sum_of_outputs(jnp.exp(prediction) - b * prediction)

    def least(self, b: HostArray) -> HostArray:
        return b - b * np.log(np.where(b > 0, b, 1.0))  # at exp(p) = b

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless the targets are finite numbers that are not negative."""
        _not_negative(
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
        return _sum_of_outputs(jnp.multiply(b, jnp.exp(-prediction)) + prediction)

    def least(self, b: HostArray) -> HostArray:
        return 1 + np.log(b)  # at exp(p) = b

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless the targets are finite and positive."""
        b = checked_target("gamma", batch, x, several=True)
        _not_negative("gamma", "positive numbers", b)
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
        return _sum_of_outputs(
            jnp.exp(above * prediction) / above - b * jnp.exp(below * prediction) / below
        )

    def least(self, b: HostArray) -> HostArray:
        q = float(self.power)
        return b ** (2 - q) / ((q - 1) * (2 - q))  # at exp(p) = b, in the limit for b = 0

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError unless the targets are finite numbers that are not negative."""
        b = checked_target("tweedie", batch, x, several=True)
        _not_negative("tweedie", "numbers, at least 0", b)


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

    def __call__(self, x: PyTree, batch: Batch) -> Scalar:
        A, b = pair(batch)
        scores, b = A @ x, jnp.asarray(b)
        if jnp.ndim(x) != 2 or scores.shape[:-1] != b.shape:
            raise ValueError(
                "The softmax loss needs x of shape (features, classes) and one label for each row "
                f"of A, but x has shape {jnp.shape(x)}, A @ x {scores.shape} and b {b.shape}."
            )
        return jnp.mean(self.rows(scores, b))

    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        scores = prediction
        own = jnp.arange(scores.shape[-1]) == b[..., None]
        # Selecting by comparison is faster on a CPU than a gather, whose gradient is a scatter.
        target = jnp.sum(jnp.where(own, scores, 0), axis=-1, keepdims=True)
        # Subtracting first keeps small losses exact where the scores are large.
        losses = jax.nn.logsumexp(scores - target, axis=-1)
        # A factor, not a constant, so that the gradient is NaN as well.
        return losses * jnp.where(own.any(axis=-1), 1.0, jnp.nan).astype(losses.dtype)

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


class LinearModel(Loss):
    """A loss of predictions `A @ coef + intercept`, with a weight per row and perhaps an offset.

    x is a dict with the entries `coef`, (n,) or (n, C), and `intercept`, () or (C,), which may be
    left out. The data are (A, b, w), and f is the mean of `w_i loss_i`: weights whose mean is 1
    leave the scale of f as it is. What follows them in a batch is for constraints.

    Parameters
    ----------
    loss : Predictive
        Of the predictions.
    offset : bool
        Whether the data are (A, b, w, o), with o of the predictions' shape, (rows,) or (rows, C),
        and the predictions `A @ coef + intercept + o`: the logarithm of an exposure, or what
        another model has predicted.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from mossp.losses import LinearModel, squared
    >>> x = {"coef": jnp.array([1.0]), "intercept": jnp.array(2.0)}
    >>> A, b, w = jnp.array([[1.0], [2.0]]), jnp.array([3.0, 0.0]), jnp.array([1.0, 1.0])
    >>> float(LinearModel(squared)(x, (A, b, w)))  # (0 + 16 / 2) / 2
    4.0
    >>> o = jnp.array([0.0, -4.0])
    >>> float(LinearModel(squared, offset=True)(x, (A, b, w, o)))
    0.0
    """

    loss: Predictive
    offset: bool = eqx.field(default=False, static=True)

    def __call__(self, x: PyTree, batch: Batch) -> Scalar:
        A, b, w = batch[:3]
        prediction = A @ x["coef"] + x.get("intercept", 0.0)
        if self.offset:
            prediction = prediction + batch[3]
        return jnp.mean(w * self.loss.rows(prediction, b))

    def linear(self, batch: Batch, paths: tuple[str, ...]) -> Linear | None:
        offset = batch[3] if self.offset else None
        A, b, w = batch[:3]
        return Linear(self.loss, A, b, w, offset, intercept=paths == ("coef", "intercept"))

    @property
    def convex(self) -> bool:
        return self.loss.convex

    def check(self, batch: Batch, x: PyTree | None = None) -> None:
        """Raise ValueError if the data do not suit the loss."""
        coef = None if x is None else x["coef"]
        self.loss.check(batch[:2], coef)
        if not self.offset:
            return
        if len(batch) < 4:
            raise ValueError(
                "LinearModel(offset=True) needs data (A, b, w, o), with the offset o of every row, "
                f"but {len(batch)} arrays were given."
            )
        need = (np.shape(batch[1])[0], *(() if coef is None else np.shape(coef)[1:]))
        if coef is not None and np.shape(batch[3]) != need:
            raise ValueError(
                f"The offset must have the shape of the predictions, {need}, but its shape is "
                f"{np.shape(batch[3])}."
            )


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


def _matching(prediction: Array, b: AnyArray) -> tuple[Array, Array]:
    b = jnp.asarray(b)
    # (rows,) against (rows, 1) would broadcast to (rows, rows) without a word.
    if prediction.shape != b.shape:
        raise ValueError(
            f"The predictions A @ x and the labels b must have the same shape, but A @ x has shape "
            f"{prediction.shape} and b has shape {b.shape}."
        )
    return prediction, b


def _not_negative(name: str, needs: str, b: HostArray) -> None:
    if (b < 0).any():
        raise ValueError(
            f"The {name} loss needs {needs}, but {int((b < 0).sum())} of {b.size} targets "
            f"are negative, the smallest {b.min():g}: for a target of either sign use "
            "mossp.losses.squared or mossp.losses.huber."
        )


def _sum_of_outputs(losses: Predictions) -> RowLosses:
    """Sum the outputs of a row, if there are several."""
    return losses if losses.ndim <= 1 else jnp.sum(losses, axis=-1)
