"""An intercept, weights and offsets around a loss of predictions."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from mossp._base.types import Batch, PyTree, Scalar
from mossp.losses.base import Linear, Loss, Predictive


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
