"""The surrogate of a partial AUC, over all rows or over mini-batches of pairs.

Let m_i be the scores of positives, n_j those of negatives, and

    G_j(w) = mean_i (1 - m_i + n_j)_+^2        how far negative j is above the positives

A partial AUC up to the rate b looks at the share b of negatives with the highest scores. G_j grows
with n_j, so that these have the largest G_j whatever the positives are: the surrogate is the mean
of the largest G_j, one sort of the scores. A range [a, b] is a difference of two such sums,

    ( T_b(G) - T_a(G) ) / (b - a),    T_s(G) = max over 0 <= q_j <= 1/N, sum_j q_j = s of q'G

which is a difference of convex functions of w: T_a is the concave part. A range alone looks at few
of the negatives, and what it says of w has a large variance. With a little bias, and less of that,

    ( T_b(G) / b + T_2b(G) / (2 b) ) / 2

looks at more of them; and it is convex. Both are sums of T_s with factors. All G_j take O(N log N)
by sums over the sorted positives. T_s has kinks where scores are tied; it is smoothed by

    min_t  s t + mean_j delta log(1 + exp((G_j - t) / delta)).

Where labels follow a logistic model, no estimate of w has a smaller variance than the most likely
one, of all rows; where they do not, its scores are not those of the best partial AUC. A part of the
surrogate may therefore be the likelihood of the labels,

    L(w) = min_c  s ( mean_i log(1 + exp(-k m_i - c)) + r mean_j log(1 + exp(k n_j + c)) ),

    s = 2 (1 + 1/r) / k

for r negatives per positive. At w = 0 its gradient is that of T_1, and k says how steep a logistic
model is whose scores a squared hinge keeps a margin of 1 apart.

A mini-batch is a block of some positives and some negatives, drawn by their weights, and all pairs
between them; what is minimised is then the mean of the same surrogate over all blocks. It is a
little smaller than that of all rows, since T_s is concave in how the G_j are distributed, by terms
of order 1 / (s times the negatives of a block).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mossp._base.module import Module
from mossp._base.types import Array, Batch, HostArray, Number, PyTree, Scalar
from mossp.smoothing import HALVINGS

WIDER = 2  # times the range that was asked for
STEEP = 12.0  # k, and
LIKELIHOOD = 0.8  # the part of L in a mixed surrogate: both were chosen by experiment


class Range(NamedTuple):
    """What is minimised for a range of rates: sum_k factor_k T_{share_k}(G) + likelihood L."""

    shares: HostArray
    factors: HostArray
    likelihood: float = 0.0

    @classmethod
    def alone(cls, low: float, high: float) -> Range:
        """The range as it is: (T_high - T_low) / (high - low)."""
        signs = [1.0, -1.0] if low else [1.0]
        return cls(capped([high, low][: len(signs)]), np.array(signs) / (high - low))

    @classmethod
    def wide(cls, high: float) -> Range:
        """Half of it up to `high`, and half up to twice as much."""
        shares = np.minimum([high, WIDER * high], 1.0)
        return cls(capped(shares), 1 / (2 * shares))

    @classmethod
    def mixed(cls, high: float) -> Range:
        """A part of that, and for the rest the likelihood of the labels."""
        shares, factors, _ = cls.wide(high)
        return cls(shares, (1 - LIKELIHOOD) * factors, LIKELIHOOD)

    @property
    def length(self) -> float:
        """Of one range that has as much variance for as many negatives."""
        return float(1 / (self.factors[self.factors > 0].sum() + self.likelihood))

    def parts(self) -> tuple[Range, Range | None]:
        """What is added, and what is taken away: the convex and the concave part."""
        added = self.factors > 0
        if added.all():
            return self, None
        return self.only(added), Range(self.shares[~added], -self.factors[~added])

    def only(self, some: HostArray) -> Range:
        return self._replace(shares=self.shares[some], factors=self.factors[some])


def capped(shares: Any) -> HostArray:
    """Short of all negatives, of which smoothing has nothing to choose."""
    return np.minimum(shares, 1 - 1e-9)


class Ranked(Module):
    """The surrogate, of the scores of positives and of negatives."""

    shares: Any
    factors: Any
    delta: Number
    likelihood: float = eqx.field(static=True)  # 0 leaves L out

    @classmethod
    def of(cls, part: Range, delta: float) -> Ranked:
        return cls(part.shares, part.factors, np.array(delta), part.likelihood)

    def __call__(self, m: Array, n: Array, u: Array, v: Array, ratio: Number) -> Scalar:
        tops = smoothed_tops(above(m, n, u), v, self.shares, self.factors, self.delta)
        if not self.likelihood:
            return tops
        return tops + self.likelihood * unlikely(m, n, u, v, ratio)


class TopShare(Module):
    """sum_k factor_k T_{share_k}(G) + likelihood L, of x = {"coef"} and all rows."""

    positives: Any  # rows
    negatives: Any
    u: Any  # weights of the positives, with sum 1
    v: Any  # and of the negatives
    ratio: Number  # r
    of: Ranked

    def __call__(self, x: PyTree) -> Any:
        m, n = self.positives @ x["coef"], self.negatives @ x["coef"]
        return self.of(m, n, self.u, self.v, self.ratio)


def above(m: Array, n: Array, u: Array) -> Array:
    """G: for each negative the mean of (1 - m_i + n_j)_+^2 over positives with weights u.

    Examples
    --------
    >>> above(jnp.array([1.0, 3.0]), jnp.array([0.0, 1.0]), jnp.array([0.5, 0.5])).tolist()
    [0.0, 0.5]
    """
    order = jnp.argsort(m)
    m, u = m[order], u[order]
    zero = jnp.zeros(1, m.dtype)
    # Sums over the positives below each place, from which the square is put together.
    sums = [jnp.concatenate([zero, jnp.cumsum(u * m**power)]) for power in (0, 1, 2)]
    t = 1 + n
    below = jnp.searchsorted(lax.stop_gradient(m), lax.stop_gradient(t))
    weight, first, second = (each[below] for each in sums)
    return jnp.maximum(t * t * weight - 2 * t * first + second, 0.0)


def smoothed_tops(G: Array, v: Array, shares: Any, factors: Any, delta: Number) -> Scalar:
    """sum_k factor_k T_{share_k}(G), smoothed."""
    tops = [smoothed_top(G, v, shares[k], delta) for k in range(len(shares))]
    return sum((factors[k] * top for k, top in enumerate(tops)), start=jnp.zeros((), G.dtype))


def smoothed_top(G: Array, v: Array, share: Number, delta: Number) -> Scalar:
    """min_t share t + sum_j v_j delta log(1 + exp((G_j - t) / delta)), twice differentiable."""
    wide = jnp.abs(jnp.log(share / (1 - share)))
    scaled = G / delta
    ends = jnp.min(scaled) - wide, jnp.max(scaled) + wide
    t = jnp.multiply(delta, level_of(scaled, v, share, ends))
    return jnp.multiply(share, t) + jnp.sum(v * delta * jax.nn.softplus((G - t) / delta))


def unlikely(m: Array, n: Array, u: Array, v: Array, ratio: Number) -> Scalar:
    """L: minus the log likelihood of the labels, scaled such that at 0 its gradient is T_1's.

    Examples
    --------
    >>> m, n, half = jnp.array([0.1, 0.3]), jnp.array([-0.3, -0.1]), jnp.array([0.5, 0.5])
    >>> k = STEEP
    >>> by_hand = 4 / k * (np.log1p(np.exp(-0.1 * k)) + np.log1p(np.exp(-0.3 * k)))
    >>> bool(np.isclose(unlikely(m, n, half, half, 1.0), by_hand))  # c is 0 by symmetry
    True
    """
    scores, weights = STEEP * jnp.concatenate([m, n]), jnp.concatenate([u, ratio * v])
    even = jnp.log(ratio)  # -c if all scores were 0
    t = level_of(scores, weights, 1.0, (jnp.min(scores) + even, jnp.max(scores) + even))
    losses = jnp.sum(u * jax.nn.softplus(t - STEEP * m))
    losses = losses + ratio * jnp.sum(v * jax.nn.softplus(STEEP * n - t))
    return jnp.multiply(2 * (1 + 1 / ratio) / STEEP, losses)


def level_of(s: Array, weights: Array, total: Number, ends: tuple[Scalar, Scalar]) -> Scalar:
    """The t with sum_i weights_i sigmoid(s_i - t) = total between two ends, differentiable in s."""
    fixed = lax.stop_gradient(s)

    def halve(_: Any, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = (low + high) / 2
        more = jnp.sum(weights * jax.nn.sigmoid(fixed - middle)) > total
        return jnp.where(more, middle, low), jnp.where(more, high, middle)

    low, high = lax.fori_loop(0, HALVINGS, halve, lax.stop_gradient(ends))
    t = (low + high) / 2
    each = jax.nn.sigmoid(fixed - t)
    slope = jnp.maximum(jnp.sum(weights * each * (1 - each)), jnp.finfo(s.dtype).tiny ** 0.5)
    # One Newton step changes nothing, but has the derivative of t.
    return t + (jnp.sum(weights * jax.nn.sigmoid(s - t)) - total) / slope


class Blocks(Module):
    """Draws blocks of pairs: places of positives and of negatives, as `mossp.Sampler` wants them.

    Examples
    --------
    >>> blocks = Blocks.of(np.full(10, 0.1), np.full(90, 1 / 90), positives=4, negatives=20)
    >>> i, j = blocks(jax.random.key(0), 3)
    >>> i.shape, j.shape
    ((3, 4), (3, 20))
    """

    u: Any  # weights of the positives, summed up
    v: Any  # and of the negatives
    positives: int = eqx.field(static=True)
    negatives: int = eqx.field(static=True)

    @classmethod
    def of(cls, u: Any, v: Any, positives: int, negatives: int) -> Blocks:
        """With weights of the positives and of the negatives that have the sum 1."""
        return cls(np.cumsum(u), np.cumsum(v), positives, negatives)

    def __call__(self, key: Any, size: int) -> tuple[Array, Array]:
        def places(key: Any, sums: Array, count: int) -> Array:
            drawn = jax.random.uniform(key, (size, count), jnp.asarray(sums).dtype)
            return jnp.minimum(jnp.searchsorted(sums, drawn, side="right"), len(sums) - 1)

        one, other = jax.random.split(key)
        return places(one, self.u, self.positives), places(other, self.v, self.negatives)


class BlockLoss(Module):
    """The surrogate, its mean over the blocks of a batch."""

    positives: Any  # rows
    negatives: Any
    ratio: Number
    of: Ranked

    def __call__(self, x: PyTree, batch: Batch) -> Scalar:
        def surrogate(m: Array, n: Array) -> Scalar:
            u, v = (jnp.full(len(each), 1 / len(each), each.dtype) for each in (m, n))
            return self.of(m, n, u, v, self.ratio)

        m, n = (
            (rows[places.ravel()] @ x["coef"]).reshape(places.shape)
            for rows, places in zip((self.positives, self.negatives), batch, strict=True)
        )
        return jnp.mean(jax.vmap(surrogate)(m, n))


def block_shape(size: int, share: float) -> tuple[int, int]:
    """(positives, negatives) of a block of so many rows.

    The variance of a block's mean is about 1/positives + 1/(share negatives), smallest for
    positives = share^{1/2} negatives.

    Examples
    --------
    >>> block_shape(512, 0.1)
    (123, 389)
    """
    negatives = min(max(round(size / (1 + share**0.5)), 1), size - 1)
    return size - negatives, negatives
