"""What a method is: what it needs, a state, one step from one mini-batch, and a witness."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax

from mossp._base.module import Module
from mossp._base.printing import shown
from mossp._base.types import Vector
from mossp._base.validation import Holds, is_choice, require
from mossp.certificates.certificate import Witness
from mossp.estimators import GradientEstimator, Kind
from mossp.methods import following, tracking
from mossp.methods.penalty import GrowingPenalty, Penalty
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class About(NamedTuple):
    """What a method's article claims, and what it needs of a problem.

    Attributes
    ----------
    reference : str
        Authors.
    year : int
        Of the article.
    constraints : {"any", "inequalities", "linear", "none"}
        What it takes; "linear" are equalities. With "none" it runs on the penalty problem.
    concave : {"any", "smooth", "zero"}
        What g may be; for "smooth" a nonsmooth g is replaced by its Moreau envelope.
    single_loop : bool
        Whether it has no inner loop.
    assumption : {"L-smooth", "mean-sq.", "Hölder", "bounded", "full"}
        On the samples: f is smooth, the samples are in mean square (Assumption 3.1 of the paper),
        gradients are Hölder continuous, second moments are bounded; "full" for a deterministic
        method.
    complexity : str
        Claimed, to an eps-critical (eps-KKT) point; "-" without a claim.
    """

    reference: str
    year: int
    constraints: str
    concave: str
    single_loop: bool
    assumption: str
    complexity: str


def assumption(momentum: GradientEstimator) -> str:
    """What an estimator needs of the samples, in the words of `About.assumption`.

    Differences of two gradients on one mini-batch are small only if the samples are smooth.
    """
    if momentum.full:
        return "full"
    differences = momentum.kind in (Kind.RECURSIVE, Kind.ANCHORED)
    return "mean-sq." if differences else "L-smooth"


def ours(momentum: GradientEstimator) -> About:
    """Of a method of this library that takes every problem and has no article."""
    return About(
        "mossp",
        2026,
        constraints="any",
        concave="any",
        single_loop=True,
        assumption=assumption(momentum),
        complexity="-",
    )


class Method(Module):
    """What every method is: what it needs, a state, one step from one mini-batch, and a witness.

    One step costs one mini-batch; double loops count inner steps. A method of your own has the
    abstract members: `about`, `init`, `step` and `witness`.

    Attributes
    ----------
    momentum : GradientEstimator
        How the gradient of f is estimated.
    mu_end : float
        The part of mu that is left at the end of a tuned run, for methods whose answer depends on
        mu.
    parameter_free : bool
        Whether it finds its step sizes by itself.
    samples_constraints : bool
        Whether it takes constraints that are means over rows, of which a step sees samples.
    samples_concave : bool
        Whether it takes a concave part -E[g(x, xi)] by subgradients on rows.
    needs_jacobian : bool
        Whether it asks for J itself, not for products J q.
    """

    momentum: eqx.AbstractVar[GradientEstimator]
    mu_end: ClassVar[float] = 1.0
    samples_constraints: ClassVar[bool] = False
    samples_concave: ClassVar[bool] = False
    needs_jacobian: ClassVar[bool] = False
    parameter_free: ClassVar[bool] = False

    def __check_init__(self) -> None:
        if not isinstance(self.momentum, GradientEstimator):
            raise TypeError(
                "momentum must be an estimator such as mossp.Polyak() or mossp.Recursive(), but "
                f"{shown(self.momentum)} was given."
            )

    @property
    @abc.abstractmethod
    def about(self) -> About:
        """Where the method comes from and what it can take."""

    @property
    def penalty(self) -> Penalty:
        """How large a penalty on the constraints it needs."""
        return GrowingPenalty()

    @property
    def subgradient_of_h(self) -> bool:
        """Whether h enters by subgradients, so that steps may leave its domain."""
        return getattr(self, "h", "prox") == "subgradient"

    @property
    def exact(self) -> bool:
        """Whether it converges to a KKT point itself, not only to the neighbourhood of one."""
        return not isinstance(self.penalty, GrowingPenalty) and self.momentum.vanishing

    def form(self, oracles: Oracles) -> str:
        """How it is applied where the problem is not of its article's own class; else empty."""
        forms = []
        if self.about.constraints == "none" and oracles.m:
            forms.append("on the penalty problem f + rho/2 ||c||^2 + h - g")
        if self.about.concave == "smooth" and not oracles.regularizer.smooth:
            forms.append("with the Moreau envelope of g in place of g")
        return " and ".join(forms)

    def sizes(self, L: Any, step: Any) -> tuple[Any, Any]:
        """(mu, eta) from the smoothness L of f and the stable step 1 / L_rho on Q_rho."""
        return step, step

    def weights(self, state: Any) -> Any:
        """What multiplies rho, one weight a constraint: 1 unless the method balances them."""
        return 1.0

    def gradient(self, oracles: Oracles, batch: Any) -> Callable[[Vector], Vector]:
        """x -> the gradient of f there that a step may ask for."""
        return tracking.gradient(self.momentum, oracles, batch)

    def memory(self, oracles: Oracles, x0: Vector, d0: Vector) -> Any:
        """What the estimators remember before the first step."""
        return tracking.init(self.momentum, oracles, x0, d0, self.needs_jacobian)

    def with_anchor(self, oracles: Oracles, state: Any) -> Any:
        """The state with the anchors of its estimators at x, by means over all rows."""
        memory = tracking.refreshed(
            self.momentum, oracles, state.memory, state.x, self.needs_jacobian
        )
        state = state._replace(memory=memory)
        if oracles.concave is None:
            return state
        anchored = following.refreshed(
            self.follower, oracles, state.concave, self.linearised_at(state)
        )
        return state._replace(concave=anchored)

    @property
    def follower(self) -> GradientEstimator:
        """How a subgradient of E[g] is estimated, for a concave part -E[g(x, xi)]."""
        return self.momentum.of_subgradients

    def linearised_at(self, state: Any) -> Vector:
        """Where a step takes subgradients of E[g]."""
        return state.y

    def subgradient(self, state: Any) -> Vector:
        """The estimate of a subgradient of E[g] after a step."""
        return state.concave.d

    @abc.abstractmethod
    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> Any:
        """The state before the first step; it has the fields x and memory."""

    @abc.abstractmethod
    def step(self, oracles: Oracles, parameters: Parameters, state: Any, batch: Any) -> Any:
        """The state after one step on one mini-batch."""

    def lean(self, oracles: Oracles, state: Any) -> Any:
        """The state without what no step looks at; `recorded` puts it in after the last one.

        A vector that is written in each step costs as much as one that is read.
        """
        return state

    def recorded(self, oracles: Oracles, parameters: Parameters, before: Any, state: Any) -> Any:
        """The whole state after a step from the lean state `before` to the lean state `state`."""
        return state

    @abc.abstractmethod
    def witness(self, oracles: Oracles, parameters: Parameters, state: Any) -> Witness:
        """What the last step, taken with these parameters, proves about its x."""

    def rescale(self, state: Any, ratio: Any) -> Any:
        """The state when mu is multiplied by `ratio`, with the subgradients it stands for kept."""
        return state


def gradient_of_g(oracles: Oracles, x: Vector, nu: Any) -> tuple[Vector, Vector]:
    """(v, y) with v in dg(y): y = x for a smooth g, else v = grad M_{nu g}(x), y = prox_{nu g}(x).

    For methods whose theory needs a smooth g.
    """
    reg = oracles.regularizer
    if reg.smooth:
        return reg.subgradient_g(x), x
    y = reg.prox_g(x, nu)
    return (x - y) / nu, y


def nearest_witness(
    oracles: Oracles, x: Vector, d: Vector, y: Vector, s_g: Vector, lam: Vector, rho: Any
) -> Witness:
    """For methods whose x is no value of prox_h: the element of dh(x) that makes u shortest."""
    pull = oracles.constraint_gradient(x, rho, lam)
    s_h = oracles.regularizer.nearest_h(x, s_g - d - pull)
    return Witness(x, y, s_h, s_g, lam, rho)


def check_number(method: Any, name: str, needs: str, inside: Holds, optional: bool = False) -> None:
    """Raise ValueError unless `inside` holds for the field: a number, or one per replica."""
    value = getattr(method, name)
    if not (optional and value is None):
        require(method, name, value, needs, inside, several=True, finite=False)


def check_choice(method: Any, name: str, choices: tuple[str, ...]) -> None:
    if not is_choice(getattr(method, name), choices):
        raise ValueError(
            f"{type(method).__name__} needs {name} to be {' or '.join(map(repr, choices))}, but "
            f"{shown(getattr(method, name))} was given."
        )


def choose(condition: Any, new: Any, old: Any) -> Any:
    """A whole tree of values, by one condition: how a double loop ends a stage."""
    return jax.tree.map(lambda a, b: jax.numpy.where(condition, a, b), new, old)
