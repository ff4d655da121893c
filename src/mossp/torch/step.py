"""A step of the optimizer: what it looks at, what it refuses, and how it moves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from mossp.torch.concave import Concave, Slope
from mossp.torch.constraints import Constraints, Pulls
from mossp.torch.damping import AFTER_FAILURE, damped
from mossp.torch.finite import (
    NonFiniteError,
    Numbers,
    culprit,
    number,
    parameter_names,
    sentence,
    suspicious,
)
from mossp.torch.parameters import checked, now
from mossp.torch.processes import several_processes
from mossp.torch.vectors import (
    Pull,
    Tensor,
    Vector,
    assign,
    entries,
    random_state,
    set_random_state,
    shared_out,
)


class Stepping(torch.optim.Optimizer):
    """What `MoSSP` does in a step; it gives the numbers and functions, and keeps the state."""

    rho: float
    alpha: float
    eta: float | None  # None: mu itself
    damping: float
    _given: dict[str, Any]
    _recursive: bool
    _constraints: Constraints
    _concave: Concave | None
    _k: int
    _vectors: dict[int, Vector]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; the loss at the current point, as the closure returns it.

        The closure computes the loss, calls backward on it and returns it. If it raises, the
        parameters and the state are as before.

        Raises
        ------
        NonFiniteError
            Where the loss, a constraint, the concave part or a gradient is not finite; parameters
            and state are then as before the last step.
        """
        if closure is None and self._recursive:
            raise ValueError(
                "Recursive momentum needs the gradient at two points, so step(closure) needs a "
                "closure that computes the loss, calls backward and returns the loss; "
                'momentum="polyak" does without.'
            )
        vectors = [self._vector(group) for group in self.param_groups]
        self._set_parameters()
        self._constraints.look()
        if self._concave is not None:
            self._concave.look()
        old = self._look_back(vectors, closure)
        loss = self._loss(closure)
        params = [p for v in vectors for p in v.params]
        pulls = self._constraints.now(params, self.rho, self.alpha)
        slope = self._look_aside(vectors, params)
        self._check_finite(
            vectors,
            Numbers(
                params=params,
                fresh=[p for v in vectors for p in v.fresh()],
                constraints=entries([pulls.c, pulls.exact, pulls.sampled]),
                before=entries([pulls.before]),
                gradients=[g for v in vectors for g in v.gradients()],
                old=entries(old),
                loss=number(loss),
                concave=[] if slope is None else [slope.value, *slope.gradient],
            ),
        )
        self._constraints.accept()
        if self._concave is not None:
            self._concave.advance()
        self._move(vectors, old, pulls, slope)
        self._constraints.ascend(self.rho, self.alpha)
        self._k += 1
        return loss

    def _move(
        self, vectors: list[Vector], old: list[Pull | None], pulls: Pulls, slope: Slope | None
    ) -> None:
        """d, S, v, and the proximal steps of every group."""
        work = []
        pulled = *pulls[1:], None if slope is None else slope.gradient
        parts = (shared_out(pull, vectors) for pull in pulled)
        for group, vector, change, exact, sampled, before, of_g in zip(
            self.param_groups, vectors, old, *parts, strict=True
        ):
            if vector.params:
                vector.estimate(self.alpha, change, sampled, before)
                if of_g is not None:
                    vector.follow(self.alpha, of_g)
                work.append((group, vector, vector.direction(exact)))
        last = self.damping
        self.damping = damped(
            last,
            [v.compare(S, group["lr"], group["beta"]) for group, v, S in work if group["damped"]],
        )
        for group, vector, S in work:
            mu = group["lr"] * (self.damping if group["damped"] else 1.0)
            if slope is None:
                vector.move(S, group["regularizer"], mu, group["beta"])
            else:
                if group["damped"]:
                    vector.rescale(self.damping / last)
                vector.move_both(S, group["regularizer"], mu, self.eta, group["beta"])
            vector.record(self.state)

    def _vector(self, group: dict[str, Any]) -> Vector:
        """The group's vector, from the last step if parameters and state are still the same."""
        params = [p for p in group["params"] if p.requires_grad]
        kept = self._vectors.get(id(group))
        if kept is None or not kept.holds(params, self.state):
            concave = self._concave is not None
            kept = Vector(params, self.state, group["damped"], concave)
            self._vectors[id(group)] = kept
        return kept

    def _set_parameters(self) -> None:
        for name in ("rho", "alpha", "eta"):
            if callable(self._given[name]):
                setattr(self, name, now(name, self._given[name], self._k))
        for group in self.param_groups:
            if callable(group["mu"]):
                group["lr"] = now("mu", group["mu"], self._k)
            checked("lr", group["lr"])

    def _loss(self, closure: Callable[[], Any] | None) -> Any:
        """The closure's value, its gradients in p.grad."""
        params = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        loss = None
        if closure is not None:
            self.zero_grad()
            with torch.enable_grad():
                loss = closure()
        if params and all(p.grad is None for p in params):
            raise ValueError("No parameter has a gradient: was backward called on the loss?")
        return loss

    def _look_back(self, vectors: list[Vector], closure: Any) -> list[Pull | None]:
        """d - gf(x_before; B), for recursive momentum; the parameters are left at x."""
        if not self._recursive or all(len(v.new) == len(v.params) for v in vectors):
            return [None] * len(vectors)
        numbers = random_state()
        with parameters_at("before", vectors):
            self._loss(closure)
            changes: list[Pull | None] = [v.change() for v in vectors]
            self._constraints.look_back([p for v in vectors for p in v.params])
        set_random_state(numbers)
        return changes

    def _look_aside(self, vectors: list[Vector], params: list[Tensor]) -> Slope | None:
        """A subgradient of g at y; the parameters are left at x."""
        if self._concave is None or not params:
            return None
        with parameters_at("y", vectors):
            return self._concave.slope(params)

    # Numbers that are not finite --------------------------------------------------------------

    def _check_finite(self, vectors: list[Vector], numbers: Numbers) -> None:
        """Raise NonFiniteError, with all as before the last step, if a number is not finite."""
        # A process that stops for a loss that it alone has seen would leave the others waiting.
        if not suspicious(numbers._replace(loss=[]) if several_processes() else numbers):
            return
        constraints = self._constraints
        what = culprit(
            numbers,
            parameter_names(self.param_groups),
            constraints.named(),
            constraints.named_rows(numbers.params),
        )
        if what is None:
            return
        moved = [v.undo() for v in vectors]
        constraints.undo()
        if self._concave is not None:
            self._concave.advance()
        if any(moved):
            self.damping *= AFTER_FAILURE
        by_itself = all(group["damped"] for group in self.param_groups)
        raise NonFiniteError(sentence(self._k, what, any(moved), by_itself))


@contextlib.contextmanager
def parameters_at(name: str, vectors: list[Vector]) -> Iterator[None]:
    """The parameters are at another point of their vectors for a while, and then at x again."""
    here = [[p.clone() for p in v.params] for v in vectors]
    try:
        for v in vectors:
            assign(v.params, v.views[name])
        yield
    finally:
        for v, x in zip(vectors, here, strict=True):
            assign(v.params, x)
