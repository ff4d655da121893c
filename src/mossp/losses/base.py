"""What a loss is, and a loss of predictions A @ x, row by row."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from mossp._base.module import Module
from mossp._base.targets import pair
from mossp._base.types import (
    AnyArray,
    Array,
    Batch,
    HostArray,
    Predictions,
    PyTree,
    RowLosses,
    Scalar,
    Targets,
)


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
    """The loss of every row, and its first and second derivative in the prediction.

    For predictions (rows, C) the second derivatives are (rows, C, C); they are formed if they are
    called for.
    """

    values: HostArray
    slopes: HostArray
    curvatures: Callable[[], HostArray]


class Predictive(Loss):
    """A loss of predictions `A @ x` against targets b, row by row, convex in the predictions."""

    @abc.abstractmethod
    def rows(self, prediction: Predictions, b: Targets) -> RowLosses:
        """Return the loss of every row."""

    def __call__(self, x: PyTree, batch: Batch) -> Scalar:
        A, b = pair(batch)
        return jnp.mean(self.rows(*self.matched(A @ x, b, x)))

    def matched(self, prediction: Array, b: AnyArray, x: PyTree) -> tuple[Predictions, Targets]:
        """Return the predictions and the targets; ValueError unless they belong together."""
        b = jnp.asarray(b)
        # (rows,) against (rows, 1) would broadcast to (rows, rows) without a word.
        if prediction.shape != b.shape:
            raise ValueError(
                "The predictions A @ x and the labels b must have the same shape, but A @ x has "
                f"shape {prediction.shape} and b has shape {b.shape}."
            )
        return prediction, b

    def linear(self, batch: Batch, paths: tuple[str, ...]) -> Linear | None:
        own = type(self).__call__ is not Predictive.__call__
        if own or paths != ("",):  # a class of its own may do anything
            return None
        return Linear(self, *pair(batch), None, None, intercept=False)

    def on_host(self, prediction: HostArray, b: HostArray) -> HostRows | None:
        """Return the loss of every row and its derivatives in NumPy; None where JAX has them alone.

        For few rows, to call a compiled program takes ten times as long as the numbers do.
        """
        return None

    @property
    def shifts(self) -> bool:
        """Whether predictions of one row may all move by the same amount: its loss stays."""
        return False

    def mean(self, prediction: HostArray) -> HostArray:
        """Return the target that is expected where the prediction is this, on the host."""
        return prediction

    def least(self, b: HostArray) -> HostArray:
        """Return the infimum of the loss of every row over its predictions, on the host."""
        return np.zeros(len(b))

    @property
    def convex(self) -> bool:
        return True


def sum_of_outputs(losses: Predictions) -> RowLosses:
    """Sum the outputs of a row, if there are several."""
    return losses if losses.ndim <= 1 else jnp.sum(losses, axis=-1)
