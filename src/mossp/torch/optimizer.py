"""The optimizer: a step, constraints, and a state that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from mossp.schedules import Schedule
from mossp.torch.constraints import Constraints, Pulls
from mossp.torch.damping import AFTER_FAILURE, damped
from mossp.torch.evaluation import Evaluation, evaluated
from mossp.torch.finite import (
    NonFiniteError,
    Numbers,
    culprit,
    number,
    parameter_names,
    sentence,
    suspicious,
)
from mossp.torch.given import Constraint
from mossp.torch.parameters import (
    DEFAULTS,
    check_group,
    checked,
    chosen,
    found,
    now,
    one_of,
)
from mossp.torch.processes import several_processes
from mossp.torch.vectors import (
    Pull,
    Vector,
    assign,
    entries,
    in_working_precision,
    random_state,
    set_random_state,
    shared_out,
)

KEYS = "params", "regularizer", "mu", "lr", "beta"  # of a group, as the user writes it
ALSO = "param_names", "name", "initial_lr", "damped"  # of torch, its schedulers and a group of ours
OWN = (  # what a copy needs besides what torch copies
    "rho", "alpha", "damping", "_given", "_recursive", "_constraints", "_k",
)  # fmt: skip
UNSAVED = "regularizer", "mu", "damped"  # kept from the optimiser that loads a state: no numbers


class MoSSP(torch.optim.Optimizer):
    """Momentum-based single-loop stochastic penalty method for the parameters of a network.

    Parameters
    ----------
    params : iterable
        Parameters, or groups of them: dicts with "params" and, where they differ, "regularizer",
        "mu" (or "lr") and "beta".
    regularizer : str or Regularizer, optional
        Of all entries of a group together as one vector: a regulariser or its name ("l1:0.01");
        None for nothing, as suits biases.
    equality, inequality : callable, Expected or dict of these, optional
        Closures without arguments that return `c_E` and `c_I`: a tensor or a dict of them, equal on
        all processes (call ddp.module in them, not ddp); or means over data, see Expected.
    momentum : {"recursive", "polyak"}
        "recursive": two calls of the closure a step, on the same random numbers; "polyak": one
        call, or gradients that are there already and no closure.
    mu, rho, alpha : float or callable, optional
        Step size, penalty and momentum: numbers or functions of the step k = 0, 1, ...; left out,
        at most 0.01, 10 and 0.1.
    beta : float
        Of the last line of a step, 0 < beta <= 1.
    schedule : mossp.schedules.Schedule, optional
        In place of mu, rho and alpha.
    multipliers : bool
        Whether lam is updated: the constraints then hold in the limit for any rho.
    dual, bound : float
        Of that update.
    lr : float or callable, optional
        Another name for mu.

    Notes
    -----
    The formulas of a step stand at the top of `mossp.torch`.

    A mu that is given is taken as it is. One that is left out is `damping * lr`, lr = 0.01 unless a
    scheduler changes it, and the damping, at most 1, such that steps neither overshoot nor move the
    weights by more than a tenth: see `mossp.torch.damping`.

    A loss, a constraint or a gradient that is NaN or infinite raises a NonFiniteError, which names
    it, once the parameters and the state are again those of the last step at which all was finite.
    On several processes the gradients decide, which are equal on all of them.

    Parameters in half precision have z and d in single precision. A frozen parameter is left alone
    and no part of its group's vector; one that a mini-batch does not use has the gradient 0 there.
    A deep copy has the same constraints as functions, which look at the model that they were
    written for.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(3, 1)
    >>> optimizer = MoSSP(model.parameters(), "l1:0.01", momentum="polyak", lr=0.1)
    >>> model(torch.ones(2, 3)).square().mean().backward()
    >>> optimizer.step()
    >>> optimizer.violation()
    0.0
    """

    def __init__(
        self,
        params: Iterable[Any],
        regularizer: Any = None,
        equality: Constraint | None = None,
        inequality: Constraint | None = None,
        *,
        momentum: str = "recursive",
        mu: Any = None,
        rho: Any = None,
        alpha: Any = None,
        beta: float = 1.0,
        schedule: Schedule | None = None,
        multipliers: bool = False,
        dual: float = 0.1,
        bound: float = 1e6,
        lr: Any = None,
    ) -> None:
        if momentum not in ("polyak", "recursive"):
            raise ValueError(f"momentum must be 'polyak' or 'recursive', but it is {momentum!r}.")
        given = {"mu": one_of(mu, lr), "rho": rho, "alpha": alpha}
        self._given = chosen(given, schedule)
        self.rho, self.alpha = (now(name, self._given[name], 0) for name in ("rho", "alpha"))
        self._recursive = momentum == "recursive"
        self.damping = 1.0  # of lr, in the groups whose mu is left out
        self._k = 0
        self._vectors: dict[int, Vector] = {}
        super().__init__(params, {"regularizer": regularizer, "beta": beta})
        self._constraints = Constraints(
            {"equality": equality, "inequality": inequality},
            self._recursive,
            dual=checked("dual", dual) if multipliers else None,
            bound=checked("bound", bound),
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group as torch's optimisers do; its d starts at its first step."""
        group = dict(param_group)
        unknown = [key for key in group if key not in KEYS + ALSO]
        if unknown:
            raise ValueError(
                f"A parameter group of MoSSP has {', '.join(KEYS)}, but {unknown[0]!r} was given."
            )
        mu = one_of(group.get("mu"), group.get("lr"))
        mu = self._given["mu"] if mu is None else mu
        group["damped"] = mu is None
        mu = DEFAULTS["mu"] if mu is None else mu
        group["mu"], group["lr"] = mu if callable(mu) else None, now("mu", mu, self._k)
        group["beta"] = checked("beta", group.get("beta", self.defaults["beta"]))
        group["regularizer"] = found(group.get("regularizer", self.defaults["regularizer"]))
        super().add_param_group(group)
        try:
            check_group(group)
        except Exception:
            self.param_groups.pop()
            raise

    # A step -----------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; the loss at the current point, as the closure returns it.

        The closure computes the loss, calls backward on it and returns it. If it raises, the
        parameters and the state are as before.

        Raises
        ------
        NonFiniteError
            Where the loss, a constraint or a gradient is not finite; parameters and state are then
            as before the last step.
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
        old = self._look_back(vectors, closure)
        loss = self._loss(closure)
        params = [p for v in vectors for p in v.params]
        pulls = self._constraints.now(params, self.rho, self.alpha)
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
            ),
        )
        self._constraints.accept()
        self._move(vectors, old, pulls)
        self._constraints.ascend(self.rho, self.alpha)
        self._k += 1
        return loss

    def _move(self, vectors: list[Vector], old: list[Pull | None], pulls: Pulls) -> None:
        """d, S, and the proximal steps of every group."""
        work = []
        parts = (shared_out(pull, vectors) for pull in pulls[1:])
        for group, vector, change, exact, sampled, before in zip(
            self.param_groups, vectors, old, *parts, strict=True
        ):
            if vector.params:
                vector.estimate(self.alpha, change, sampled, before)
                work.append((group, vector, vector.direction(exact)))
        self.damping = damped(
            self.damping,
            [v.compare(S, group["lr"], group["beta"]) for group, v, S in work if group["damped"]],
        )
        for group, vector, S in work:
            mu = group["lr"] * (self.damping if group["damped"] else 1.0)
            vector.move(S, group["regularizer"], mu, group["beta"])
            vector.record(self.state)

    def _vector(self, group: dict[str, Any]) -> Vector:
        """The group's vector, from the last step if parameters and state are still the same."""
        params = [p for p in group["params"] if p.requires_grad]
        kept = self._vectors.get(id(group))
        if kept is None or not kept.holds(params, self.state):
            kept = self._vectors[id(group)] = Vector(params, self.state, group["damped"])
        return kept

    def _set_parameters(self) -> None:
        for name in ("rho", "alpha"):
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
        here = [[p.clone() for p in v.params] for v in vectors]
        numbers = random_state()
        try:
            for v in vectors:
                assign(v.params, v.before)
            self._loss(closure)
            changes: list[Pull | None] = [v.change() for v in vectors]
            self._constraints.look_back([p for v in vectors for p in v.params])
        finally:
            for v, x in zip(vectors, here, strict=True):
                assign(v.params, x)
        set_random_state(numbers)
        return changes

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
        if any(moved):
            self.damping *= AFTER_FAILURE
        by_itself = all(group["damped"] for group in self.param_groups)
        raise NonFiniteError(sentence(self._k, what, any(moved), by_itself))

    # Constraints ------------------------------------------------------------------------------

    @torch.no_grad()
    def violation(self) -> float:
        """`||(c_E(x), [c_I(x)]_+)||` at the current point.

        For an Expected, as its values are tracked: those of the last step's point; `evaluate` looks
        at all of the data.
        """
        return self._constraints.violation()

    @property
    def multipliers(self) -> dict[str, Any]:
        """`q = lam + rho c(x)` at the current point, under the names that the closures use."""
        with torch.no_grad():
            return self._constraints.multipliers(self.rho)

    @torch.no_grad()
    def evaluate(
        self, loader: Iterable[Any] | Mapping[Any, Any] | None = None, *, draws: int = 100
    ) -> Evaluation:
        """The constraints at the current point over all of the data, with standard errors.

        Every batch counts by its rows. The random numbers to come are left as they are, and the
        model in the mode that it is in: call `model.eval()` before, if it has such layers.

        Parameters
        ----------
        loader : iterable or dict, optional
            Of batches such as every Expected takes, perhaps of other data than those of training; a
            dict of them by the names of the constraints. Left out, one epoch of `values`, or of
            their loader.
        draws : int
            How often an Expected without a loader is called.

        Returns
        -------
        Evaluation
            With `values`, `errors` and `violation`. In several processes, all of which must call
            it, over the rows of all of them.
        """
        return evaluated(self._constraints, loader, draws)

    # The state --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything but functions and regularisers, which the constructor gets again."""
        saved = super().state_dict()
        for group in saved["param_groups"]:
            for key in UNSAVED:
                del group[key]
        numbers = {name: getattr(self, name) for name in ("rho", "alpha", "damping")}
        return {**saved, "mossp": {"k": self._k, **numbers, **self._constraints.state_dict()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if "mossp" not in state_dict:
            raise ValueError("This is not the state of a mossp.torch.MoSSP.")
        unsaved = [{key: group[key] for key in UNSAVED} for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, own in zip(self.param_groups, unsaved, strict=True):
            group.update(own)
        self.state.update(in_working_precision(self.param_groups, state_dict))
        own = state_dict["mossp"]
        self._k, self.rho, self.alpha = own["k"], own["rho"], own["alpha"]
        self.damping = own.get("damping", 1.0)  # states of 0.1.0 do not have it
        self._constraints.load_state_dict(own)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in OWN}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._vectors = {}
