"""Gradient estimators: d_k estimates grad f(x_k) from mini-batches.

Where constraints are means over rows, the same estimators serve c(x_k) and J(x_k) q_k: whatever is
a mean over rows of a function of a point, which for the latter is the pair (x, q). And where the
objective has a part -E[g(x, xi)], they serve a subgradient of it.

    Plain       d_k = gf(x_k; B_k)
    Polyak      d_k = (1 - alpha) d_{k-1} + alpha gf(x_k; B_k)
    Recursive   d_k = gf(x_k; B_k) + (1 - alpha) (d_{k-1} - gf(x_{k-1}; B_k))      (STORM)
    Truncated   any of these, projected on the ball ||d|| <= radius
    Full        d_k = grad f(x_k)
    SVRG        d_k = gf(x_k; B_k) - gf(w; B_k) + grad f(w), w an anchor refreshed now and then

At k = 0 the paper takes the mean over b0 samples. That is what Polyak's formula and the recursive
one give with x_{-1} = x_0, d_{-1} the mean over b0 - B samples and alpha = B / b0, so that the
first step needs no special case.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from mossp._base.module import Module
from mossp._base.printing import shown
from mossp._base.types import Vector
from mossp._base.validation import is_weight, require

Gradient = Callable[[Any], Any]  # x -> the gradient at x on the step's mini-batch


class Kind(enum.Enum):
    """How an estimator deals with noise: what results and step sizes depend on."""

    PLAIN = "plain"  # not at all: a mini-batch's gradient
    POLYAK = "Polyak"  # a mean over the last steps' gradients, where they were taken
    RECURSIVE = "recursive"  # the same, carried along with x by differences on one mini-batch
    ANCHORED = "anchored"  # differences to a point at which the full gradient is known
    FULL = "full"  # there is none


class GradientEstimator(Module):
    """What all estimators share: a memory, and an update of it from one mini-batch.

    An estimator of your own says its `kind`, how many `gradients` a step takes, and how it starts
    (`init`) and goes on (`update`).
    """

    kind: ClassVar[Kind]
    gradients: ClassVar[int]  # gradients a step, in mini-batches

    @property
    def anchored(self) -> bool:
        """Whether full gradients are taken now and then: `refresh`."""
        return self.kind is Kind.ANCHORED

    @property
    def full(self) -> bool:
        """Whether every gradient is a full one."""
        return self.kind is Kind.FULL

    @property
    def averages(self) -> bool:
        """Whether noise is damped over the steps."""
        return self.kind in (Kind.POLYAK, Kind.RECURSIVE, Kind.ANCHORED)

    @property
    def vanishing(self) -> bool:
        """Whether its noise vanishes at a standstill."""
        return self.kind in (Kind.FULL, Kind.ANCHORED)

    @abc.abstractmethod
    def init(self, d: Vector, x: Any) -> Any:
        """The memory before the first step: d estimates grad f(x)."""

    @abc.abstractmethod
    def update(self, gradient: Gradient, memory: Any, x: Any, alpha: Any) -> tuple[Any, Any]:
        """(d_k, the new memory)."""

    def refresh(self, full: Gradient, memory: Any, x: Any) -> Any:
        """The memory with its anchor at x, by the full gradient there; only where there is one."""
        return memory

    @property
    def tracker(self) -> GradientEstimator:
        """The same for J q, which is no gradient of f."""
        return self

    @property
    def of_values(self) -> GradientEstimator:
        """The same for c, whose values cost a forward pass only: two of them cost little."""
        return Recursive() if self.kind is Kind.POLYAK else self.tracker

    @property
    def of_subgradients(self) -> GradientEstimator:
        """The same for subgradients of a function with kinks, whose differences do not vanish."""
        return Polyak() if self.kind is Kind.RECURSIVE else self.tracker


class Estimate(NamedTuple):
    d: Vector


class Trail(NamedTuple):
    d: Vector
    x: Vector  # where d was last updated


class Anchor(NamedTuple):
    d: Vector
    w: Vector  # the anchor
    G: Vector  # grad f(w)


class Plain(GradientEstimator):
    """The mini-batch gradient itself.

    Examples
    --------
    >>> import mossp
    >>> mossp.MoSSP(momentum=mossp.Plain()).momentum
    Plain()
    """

    kind: ClassVar[Kind] = Kind.PLAIN
    gradients: ClassVar[int] = 1

    def init(self, d: Vector, x: Vector) -> Estimate:
        return Estimate(d)

    def update(self, gradient: Gradient, memory: Estimate, x: Vector, alpha: Any) -> Any:
        d = gradient(x)
        return d, Estimate(d)


class Full(Plain):
    """The full gradient, for finite sums and deterministic losses: a step costs N samples.

    Examples
    --------
    >>> import mossp
    >>> mossp.MoSSP(momentum=mossp.Full()).momentum.full
    True
    """

    kind: ClassVar[Kind] = Kind.FULL


class Polyak(GradientEstimator):
    """Polyak momentum: a weighted mean of the gradients of the steps so far.

    Parameters
    ----------
    alpha : float, optional
        The weight of the new gradient; left to the schedule if left out.

    Examples
    --------
    >>> import mossp
    >>> mossp.MoSSP(momentum=mossp.Polyak(0.1)).momentum
    Polyak(alpha=0.1)
    """

    alpha: Any = None
    kind: ClassVar[Kind] = Kind.POLYAK
    gradients: ClassVar[int] = 1

    def __check_init__(self) -> None:
        check_alpha(self)

    def init(self, d: Vector, x: Vector) -> Estimate:
        return Estimate(d)

    def update(self, gradient: Gradient, memory: Estimate, x: Vector, alpha: Any) -> Any:
        d = (1 - alpha) * memory.d + alpha * gradient(x)
        return d, Estimate(d)


class Recursive(GradientEstimator):
    """Recursive momentum (STORM): two gradients on the same mini-batch.

    Parameters
    ----------
    alpha : float, optional
        The weight of the new gradient; left to the schedule if left out.

    Examples
    --------
    >>> import mossp
    >>> mossp.MoSSP(momentum=mossp.Recursive()).momentum
    Recursive()
    """

    alpha: Any = None
    kind: ClassVar[Kind] = Kind.RECURSIVE
    gradients: ClassVar[int] = 2

    def __check_init__(self) -> None:
        check_alpha(self)

    def init(self, d: Vector, x: Vector) -> Trail:
        return Trail(d, x)

    def update(self, gradient: Gradient, memory: Trail, x: Vector, alpha: Any) -> Any:
        d = gradient(x) + (1 - alpha) * (memory.d - gradient(memory.x))
        return d, Trail(d, x)


class Truncated(GradientEstimator):
    """An estimator kept in the ball `||d|| <= radius` (Lu, Mei, Xiao 2024).

    Parameters
    ----------
    inner : GradientEstimator
        The estimator.
    radius : float
        A bound on `||grad f||`.

    Examples
    --------
    >>> import mossp
    >>> mossp.Truncated(mossp.Recursive(), radius=10.0).gradients
    2
    """

    inner: GradientEstimator
    radius: Any

    def __check_init__(self) -> None:
        if not isinstance(self.inner, GradientEstimator):
            raise TypeError(f"Truncated needs an estimator inside, but got {shown(self.inner)}.")
        require(
            self, "radius", self.radius, "radius > 0", lambda radius: radius > 0,
            several=True, finite=False,
        )  # fmt: skip

    # All but the length of d is the inner estimator's.

    @property
    def alpha(self) -> Any:
        return getattr(self.inner, "alpha", None)

    @property
    def epoch(self) -> Any:
        return getattr(self.inner, "epoch", None)

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return self.inner.kind

    @property
    def gradients(self) -> int:  # type: ignore[override]
        return self.inner.gradients

    def refresh(self, full: Gradient, memory: Any, x: Vector) -> Any:
        return self.inner.refresh(full, memory, x)

    @property
    def tracker(self) -> GradientEstimator:
        return self.inner.tracker

    def init(self, d: Vector, x: Vector) -> Any:
        return self.inner.init(d, x)

    def update(self, gradient: Gradient, memory: Any, x: Vector, alpha: Any) -> Any:
        d, memory = self.inner.update(gradient, memory, x, alpha)
        length = jnp.sqrt(jnp.sum(d * d))
        d = d * jnp.minimum(1.0, self.radius / jnp.maximum(length, jnp.finfo(d.dtype).tiny))
        return d, memory._replace(d=d)


class SVRG(GradientEstimator):
    """Variance-reduced gradients around an anchor, for finite sums: without noise in the limit.

    The anchor is refreshed by a full gradient, between compiled chunks, at step numbers that depend
    on nothing but `epoch`.

    Parameters
    ----------
    epoch : int, optional
        Steps between two refreshes: one pass over the data if left out.

    Examples
    --------
    >>> import mossp
    >>> mossp.SVRG(epoch=500).gradients
    2
    """

    epoch: int | None = eqx.field(default=None, static=True)
    kind: ClassVar[Kind] = Kind.ANCHORED
    gradients: ClassVar[int] = 2

    def __check_init__(self) -> None:
        if self.epoch is not None and not (isinstance(self.epoch, int) and self.epoch > 0):
            raise ValueError(
                f"SVRG needs epoch >= 1 steps, but epoch = {shown(self.epoch)} was given."
            )

    def init(self, d: Vector, x: Vector) -> Anchor:
        return Anchor(d, x, d)

    def update(self, gradient: Gradient, memory: Anchor, x: Vector, alpha: Any) -> Any:
        d = gradient(x) - gradient(memory.w) + memory.G
        return d, memory._replace(d=d)

    def refresh(self, full: Gradient, memory: Anchor, x: Vector) -> Anchor:
        return memory._replace(w=x, G=full(x))


def check_alpha(momentum: Polyak | Recursive) -> None:
    alpha = momentum.alpha
    if alpha is not None:
        needs = "0 < alpha <= 1, the weight of the new gradient"
        require(momentum, "alpha", alpha, needs, is_weight, several=True)


def keeps_estimate(momentum: GradientEstimator) -> bool:
    """Whether the memory that `update` returns has the estimate that it returns, as `d`.

    Those of this file do; an update of somebody's own may do anything.
    """
    own = (Plain.update, Polyak.update, Recursive.update, Truncated.update, SVRG.update)
    return type(momentum).update in own
