"""The optimizer: what it is given, what it can be asked, and a state that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from mossp.schedules import Schedule
from mossp.torch.concave import Concave, check_place, place_of, restore_place
from mossp.torch.constraints import Constraints
from mossp.torch.evaluation import Evaluation, evaluated
from mossp.torch.expected import Expected
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
from mossp.torch.step import Stepping
from mossp.torch.vectors import in_working_precision

KEYS = "params", "regularizer", "mu", "lr", "beta"  # of a group, as the user writes it
ALSO = "param_names", "name", "initial_lr", "damped"  # of torch, its schedulers and a group of ours
OWN = (  # what a copy needs besides what torch copies
    "rho", "alpha", "eta", "damping", "_given", "_recursive", "_constraints", "_concave", "_k",
)  # fmt: skip
UNSAVED = "regularizer", "mu", "damped"  # kept from the optimiser that loads a state: no numbers


class MoSSP(Stepping):
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
        all processes (call ddp.module in them, not ddp); or means over data, see Expected. None is
        called before the first step.
    concave : callable or Expected, optional
        A closure without arguments that returns the mean of g(x; xi) over a mini-batch, without
        backward: a convex function of the parameters, perhaps with kinks, for the objective
        E f - E g + h - g_r, g_r the regulariser's own g. Or `Expected(function, loader)`, with
        mini-batches of its own. On several processes the mean over all of them.
    momentum : {"recursive", "polyak"}
        "recursive": two calls of the closure a step, on the same random numbers; "polyak": one
        call, or gradients that are there already and no closure. Of the loss and of constraints;
        that of the concave part is always Polyak's.
    mu, rho, alpha : float or callable, optional
        Step size, penalty and momentum: numbers or functions of the step k = 0, 1, ...; left out,
        at most 0.01, 10 and 0.1.
    eta : float or callable, optional
        Of the steps with a concave part; left out, mu.
    beta : float
        Of the last line of a step, 0 < beta <= 1.
    schedule : mossp.schedules.Schedule, optional
        In place of mu, rho, alpha and eta.
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

    A loss, a constraint, a concave part or a gradient that is NaN or infinite raises a
    NonFiniteError, which names it, once the parameters and the state are again those of the last
    step at which all was finite. On several processes the gradients decide, which are equal on all
    of them.

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
        concave: Callable[[], Any] | Expected | None = None,
        momentum: str = "recursive",
        mu: Any = None,
        rho: Any = None,
        alpha: Any = None,
        eta: Any = None,
        beta: float = 1.0,
        schedule: Schedule | None = None,
        multipliers: bool = False,
        dual: float = 0.1,
        bound: float = 1e6,
        lr: Any = None,
    ) -> None:
        if momentum not in ("polyak", "recursive"):
            raise ValueError(f"momentum must be 'polyak' or 'recursive', but it is {momentum!r}.")
        if eta is not None and concave is None:
            raise ValueError("eta is of steps with a concave part: give concave, or leave eta out.")
        given = {"mu": one_of(mu, lr), "rho": rho, "alpha": alpha, "eta": eta}
        self._given = chosen(given, schedule)
        self.rho, self.alpha = (now(name, self._given[name], 0) for name in ("rho", "alpha"))
        eta = self._given["eta"]
        self.eta = None if eta is None else now("eta", eta, 0)
        self._recursive = momentum == "recursive"
        self.damping = 1.0  # of lr, in the groups whose mu is left out
        self._k = 0
        self._vectors = {}
        super().__init__(params, {"regularizer": regularizer, "beta": beta})
        self._constraints = Constraints(
            {"equality": equality, "inequality": inequality},
            self._recursive,
            dual=checked("dual", dual) if multipliers else None,
            bound=checked("bound", bound),
        )
        self._concave = None if concave is None else Concave(concave)

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
        numbers = {name: getattr(self, name) for name in ("rho", "alpha", "eta", "damping")}
        own = {"k": self._k, **numbers, "concave": place_of(self._concave)}
        return {**saved, "mossp": {**own, **self._constraints.state_dict()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if "mossp" not in state_dict:
            raise ValueError("This is not the state of a mossp.torch.MoSSP.")
        own = state_dict["mossp"]
        check_place(self._concave, own.get("concave"))
        unsaved = [{key: group[key] for key in UNSAVED} for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, kept in zip(self.param_groups, unsaved, strict=True):
            group.update(kept)
        self.state.update(in_working_precision(self.param_groups, state_dict))
        self._k, self.rho, self.alpha = own["k"], own["rho"], own["alpha"]
        self.damping = own.get("damping", 1.0)  # states of 0.1.0 have neither this nor eta
        self.eta = own.get("eta", self.eta)
        self._constraints.load_state_dict(own)
        restore_place(self._concave, own.get("concave"))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in OWN}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._vectors = {}
