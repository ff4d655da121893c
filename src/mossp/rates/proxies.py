"""Rates with smooth decisions in place of steps, as constraints of a linear model.

With margin m_i and temperature t, the decision for the second of two classes is

    1[m_i > 0]   ~   1 / (1 + exp(-m_i / t))

and for class c of more, the c-th entry of softmax(scores / t). The larger t, the smoother and the
further from the step; t, the bounds and their shifts are leaves, so that moving them compiles
nothing.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.module import Module
from mossp._base.types import AnyArray, Array, Batch, ConstraintValues, Number, PyTree
from mossp.rates.bounded import LOSS, ONE, OWN, Bounded


class Proxies(Module):
    """`matrix @ means + constant - shift` with smooth decisions: to be <= 0, one entry a row.

    Called as `proxies(x, batch)` with the x of `mossp.losses.LinearModel`, {"coef", "intercept"},
    and batches (A, b, w, W), or (A, b, w, offset, W), it is a mean over the rows of the batch.

    Parameters
    ----------
    matrix, constant : arrays of shape (m, columns) and (m,)
        Of a `Bounded`.
    shift : array of shape (m,)
        What the bounds are moved by, to make up for the difference from true rates.
    temperature : float
        The width t of the smooth step, in units of the margin.
    loss : Predictive or None
        Of the model, where a mean loss is bounded.
    kinds : tuple of int
        What each column of W is a mean of.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp import rates
    >>> from mossp.rates.binding import bind
    >>> bound = bind([rates.fpr() <= 0.4], np.array([0, 0, 1]), ["no", "yes"], np.ones(3))
    >>> proxies = Proxies.of(bound, temperature=0.01)
    >>> x = {"coef": jnp.array([1.0])}
    >>> A, b = jnp.array([[-1.0], [1.0], [2.0]]), jnp.array([-1.0, -1.0, 1.0])
    >>> np.round(proxies(x, (A, b, jnp.ones(3), jnp.asarray(bound.weights))), 4).tolist()
    [0.1]
    """

    matrix: AnyArray
    constant: AnyArray
    shift: AnyArray
    temperature: Number
    loss: object
    kinds: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        bounded: Bounded,
        temperature: float,
        loss: object = None,
        shift: AnyArray | None = None,
    ) -> Proxies:
        """The smooth version of bounds on rows."""
        shift = np.zeros(len(bounded.rows)) if shift is None else np.asarray(shift, np.float64)
        return cls(
            bounded.matrix,
            bounded.constant,
            shift,
            np.float64(temperature),
            loss if LOSS in bounded.kinds else None,
            bounded.kinds,
        )

    def __call__(self, x: PyTree, batch: Batch) -> ConstraintValues:
        A, b, _, *offset, W = batch
        scores = sum(offset, A @ x["coef"] + x.get("intercept", 0.0))
        means = jnp.mean(W * self.seen(scores, b), axis=0)
        matrix = jnp.asarray(self.matrix, means.dtype)
        return matrix @ means + jnp.asarray(self.constant - self.shift, means.dtype)

    def seen(self, scores: Array, b: AnyArray) -> Array:
        """For every row and column of W, the decision that is averaged, or the loss."""
        b = jnp.asarray(b)
        t = jnp.asarray(self.temperature, scores.dtype)
        columns = []
        if any(kind != LOSS for kind in self.kinds):
            # For class c of two: sigmoid(m / t) or sigmoid(-m / t).
            decided = (
                jax.nn.softmax(scores / t, axis=-1)
                if scores.ndim == 2
                else jax.nn.sigmoid(jnp.stack([-scores, scores], axis=-1) / t)
            )
        for kind in self.kinds:
            if kind == LOSS:
                columns.append(self.loss.rows(scores, b))  # type: ignore[attr-defined]
            elif kind == ONE:
                columns.append(jnp.ones(len(scores), scores.dtype))
            elif kind == OWN:
                columns.append(jnp.sum(jnp.where(own_class(b, decided), decided, 0.0), axis=-1))
            else:
                columns.append(decided[:, kind])
        return jnp.stack(columns, axis=-1)


def own_class(b: Array, decided: Array) -> Array:
    """Which entry of `decided` is of the row's own class, for labels as the losses want them."""
    if b.ndim == 2:  # -1 and +1, one class against the rest
        return b > 0
    number = (b > 0) if decided.shape[-1] == 2 else b
    return jnp.arange(decided.shape[-1]) == number[:, None]
