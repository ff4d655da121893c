"""MoSSP as an optimiser of PyTorch: sparse networks, with constraints on their weights.

    min_x  E[f(x; B)] + h(x) - g(x)   subject to  c_E(x) = 0,  c_I(x) <= 0

f is the loss that the closure computes on a mini-batch B, h - g any regulariser of
`mossp.regularizers`, and x the entries of the parameters. A step is

    d  = (1 - alpha) d + alpha gf(x; B)                   "polyak"
    d  = gf(x; B) + (1 - alpha) (d - gf(x_before; B))     "recursive"
    q  = lam + rho c(x)                                   (inequalities: [.]_+)
    S  = d + J(x) q
    x+ = prox_{mu h}(z - mu S)
    z+ = z - beta (prox_{mu g}(z) - x+)

with d = gf(x; B) the first time. mu is the learning rate, `lr` in the parameter groups, so that
the schedulers of torch.optim.lr_scheduler act on it. The zeros of prox_{mu h} are exact. lam is 0
unless multipliers are asked for: then, as in `mossp.MoSSPAL`,

    lam+ = lam + dual rho w c(x+), kept within +-bound    (inequalities: [.]_+)

and w multiplies rho in q too: w = max_i ||J_i||^2 / ||J_j||^2 makes the rows of J equally long at
the first step, which costs a backward pass a constraint, once.

>>> import torch
>>> from mossp.torch import MoSSP
>>> _ = torch.manual_seed(0)
>>> X = torch.randn(500, 20)
>>> y = X[:, :3].sum(1, keepdim=True)
>>> model = torch.nn.Linear(20, 1)
>>> optimizer = MoSSP(
...     [{"params": [model.weight], "regularizer": "mcp:0.2"}, {"params": [model.bias]}],
...     equality=lambda: model.weight.square().sum() - 3.0,
... )
>>> for _ in range(300):
...     rows = torch.randint(500, (32,))
...     def closure():
...         loss = torch.nn.functional.mse_loss(model(X[rows]), y[rows])
...         loss.backward()
...         return loss
...     loss = optimizer.step(closure)
>>> int((model.weight != 0).sum()), optimizer.violation() < 0.01
(3, True)
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from mossp import regularizers
from mossp.schedules import Schedule

try:
    import torch
except ImportError:
    raise ImportError("mossp.torch needs PyTorch: pip install 'mossp[torch]'") from None

Tensor = Any  # a torch.Tensor
Constraint = Callable[[], Any]  # the values of constraints: a tensor, or a dict of tensors

DEFAULTS = {"mu": 1e-2, "rho": 10.0, "alpha": 0.1}
RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "mu": ("a number mu > 0 (the learning rate)", lambda mu: 0 < mu < math.inf),
    "lr": ("a number lr >= 0", lambda lr: 0 <= lr < math.inf),  # schedulers may end at 0
    "rho": ("a number rho >= 0", lambda rho: 0 <= rho < math.inf),
    "alpha": ("0 < alpha <= 1, the weight of the new gradient", lambda alpha: 0 < alpha <= 1),
    "beta": ("0 < beta <= 1", lambda beta: 0 < beta <= 1),
    "dual": ("0 < dual <= 1", lambda dual: 0 < dual <= 1),
    "bound": ("bound > 0", lambda bound: bound > 0),
}
KEYS = "params", "regularizer", "mu", "lr", "beta"  # of a group, as the user writes it
ALSO = "param_names", "name", "initial_lr"  # what torch and its schedulers know of
OWN = (  # what a copy needs besides what torch copies
    "rho", "alpha", "_given", "_recursive", "_constraints", "_dual", "_bound", "_lam", "_weights",
    "_k",
)  # fmt: skip
UNSAVED = "regularizer", "mu"  # kept from the optimiser that loads a state: they are no numbers


class MoSSP(torch.optim.Optimizer):
    """Momentum-based single-loop stochastic penalty method for the parameters of a network.

    params          parameters, or groups of them: dicts with "params" and, where they differ,
                    "regularizer", "mu" (or "lr") and "beta"
    regularizer     of all entries of a group together as one vector: a regulariser or its name
                    ("l1:0.01"); None for nothing, as suits biases
    equality        closures without arguments that return c_E and c_I: a tensor or a dict of
    inequality      them, equal on all processes (call ddp.module in them, not ddp)
    momentum        "recursive": two calls of the closure a step, on the same random numbers;
                    "polyak": one call, or gradients that are there already and no closure
    mu, rho, alpha  numbers or functions of the step k = 0, 1, ...; left out: 0.01, 10 and 0.1;
                    lr is another name for mu
    beta            of the last line of a step, 0 < beta <= 1
    schedule        a mossp.schedules.Schedule, in place of mu, rho and alpha
    multipliers     whether lam is updated: the constraints then hold in the limit for any rho
    dual, bound     of that update

    Parameters in half precision have z and d in single precision. A frozen parameter is left
    alone and no part of its group's vector; one that a mini-batch does not use has the gradient
    0 there. Losses that are NaN are not looked for: the parameters become NaN. A deep copy has the
    same constraints as functions, which look at the model that they were written for.
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
        self._constraints = {"equality": equality, "inequality": inequality}
        self._dual = checked("dual", dual) if multipliers else None
        self._bound = checked("bound", bound)
        self._lam: Tensor = None  # the multipliers and the weights w, from the first step on
        self._weights: Tensor = None
        self._k = 0
        self._vectors: dict[int, Vector] = {}
        super().__init__(params, {"regularizer": regularizer, "beta": beta})
        for name, constraint in self._constraints.items():
            check_constraint(name, constraint)

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
        """
        if closure is None and self._recursive:
            raise ValueError(
                "Recursive momentum needs the gradient at two points, so step(closure) needs a "
                "closure that computes the loss, calls backward and returns the loss; "
                'momentum="polyak" does without.'
            )
        vectors = [self._vector(group) for group in self.param_groups]
        self._set_parameters()
        old = self._old_gradients(vectors, closure)
        loss = self._loss(closure)
        pulls = self._pulls(vectors)
        for group, vector, before, pull in zip(self.param_groups, vectors, old, pulls, strict=True):
            if vector.params:
                vector.estimate(self.alpha, before)
                vector.move(group["regularizer"], group["lr"], group["beta"], pull)
                vector.record(self.state)
        if self._dual is not None and self._lam is not None:
            lam = self._lam + self._dual * self.rho * self._weights * self._c()
            self._lam = self._active(lam).clamp(-self._bound, self._bound)
        self._k += 1
        return loss

    def _vector(self, group: dict[str, Any]) -> Vector:
        """The group's vector, from the last step if parameters and state are still the same."""
        params = [p for p in group["params"] if p.requires_grad]
        kept = self._vectors.get(id(group))
        if kept is None or not kept.holds(params, self.state):
            kept = self._vectors[id(group)] = Vector(params, self.state, self._recursive)
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

    def _old_gradients(self, vectors: list[Vector], closure: Any) -> list[list[Tensor] | None]:
        """d - gf(x_before; B), for recursive momentum; the parameters are left at x."""
        if not self._recursive or all(len(v.new) == len(v.params) for v in vectors):
            return [None] * len(vectors)
        here = [[p.clone() for p in v.params] for v in vectors]
        numbers = random_state()
        try:
            for v in vectors:
                assign(v.params, v.before)
            self._loss(closure)
            changes: list[list[Tensor] | None] = [v.change() for v in vectors]
        finally:
            for v, x in zip(vectors, here, strict=True):
                assign(v.params, x)
        set_random_state(numbers)
        return changes

    # Constraints ------------------------------------------------------------------------------

    def _values(self) -> dict[str, Any]:
        return {name: c() for name, c in self._constraints.items() if c is not None}

    def _c(self) -> Tensor:
        """(c_E(x), c_I(x)) as one vector."""
        parts = {name: leaves(value) for name, value in self._values().items()}
        self._m_E = sum(leaf.numel() for leaf in parts.get("equality", []))
        return joined([t for part in parts.values() for t in part])

    def _active(self, c: Tensor) -> Tensor:
        """(c_E, [c_I]_+), and likewise for multipliers, which are nonnegative on c_I."""
        return torch.cat([c[: self._m_E], c[self._m_E :].clamp(min=0.0)])

    def _q(self, c: Tensor) -> Tensor:
        if self._dual is None or self._lam is None:
            return self._active(self.rho * c)
        return self._active(self._lam + self.rho * self._weights * c)

    def _pulls(self, vectors: list[Vector]) -> list[list[Tensor] | None]:
        """J(x) q by one backward pass, which fires no hooks of DistributedDataParallel."""
        params = [p for v in vectors for p in v.params]
        if not any(self._constraints.values()) or not params:
            return [None] * len(vectors)
        with torch.enable_grad():
            c = self._c()
        if self._dual is not None and self._lam is None:
            self._lam, self._weights = torch.zeros_like(c), equal_rows(c, params)
        pulls = iter(gradient(c, params, self._q(c.detach())))
        return [[next(pulls) for _ in v.params] for v in vectors]

    @torch.no_grad()
    def violation(self) -> float:
        """||(c_E(x), [c_I(x)]_+)|| at the current point."""
        return float(torch.linalg.vector_norm(self._active(self._c())))

    @property
    def multipliers(self) -> dict[str, Any]:
        """q = lam + rho c(x) at the current point, under the names that the closures use."""
        with torch.no_grad():
            values, c = self._values(), self._c()
        like = [leaf for value in values.values() for leaf in leaves(value)]
        parts = iter(split(self._q(c), like))
        return {
            name: {key: next(parts) for key in value} if isinstance(value, Mapping) else next(parts)
            for name, value in values.items()
        }

    # The state --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything but functions and regularisers, which the constructor gets again."""
        saved = super().state_dict()
        for group in saved["param_groups"]:
            for key in UNSAVED:
                del group[key]
        own = {name: getattr(self, f"_{name}") for name in ("k", "lam", "weights")}
        return {**saved, "mossp": {**own, "rho": self.rho, "alpha": self.alpha}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if "mossp" not in state_dict:
            raise ValueError("This is not the state of a mossp.torch.MoSSP.")
        unsaved = [{key: group[key] for key in UNSAVED} for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, own in zip(self.param_groups, unsaved, strict=True):
            group.update(own)
        # torch has made the dtype of the state that of the parameters; ours may be finer.
        ids = itertools.chain.from_iterable(g["params"] for g in state_dict["param_groups"])
        params = (p for group in self.param_groups for p in group["params"])
        for i, p in zip(ids, params, strict=True):
            if i in state_dict["state"]:
                self.state[p] = {
                    name: value.to(p.device, working(p).dtype, copy=True)
                    for name, value in state_dict["state"][i].items()
                }
        own = state_dict["mossp"]
        self._k, self.rho, self.alpha = own["k"], own["rho"], own["alpha"]
        self._lam, self._weights = (
            None if own[name] is None else own[name].clone() for name in ("lam", "weights")
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in OWN}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._vectors = {}


class Vector:
    """x, z and d of a group: its parameters, and one flat buffer each, with views of them.

    The views are what `state` holds for every parameter.
    """

    def __init__(self, params: list[Tensor], state: Mapping[Any, Any], recursive: bool) -> None:
        self.params = params
        self.new = [i for i, p in enumerate(params) if not state.get(p)]  # no d yet
        kept = [state.get(p) or {"z": p, "d": torch.zeros_like(p), "before": p} for p in params]
        names = ("z", "d", "before") if recursive else ("z", "d")
        flat = {name: joined([entry[name] for entry in kept]) for name in names}
        views = {name: split(buffer, params) for name, buffer in flat.items()}
        self.z, self.z_views, self.d, self.d_views = flat["z"], views["z"], flat["d"], views["d"]
        self.before = views.get("before", [])
        self.room = torch.empty_like(self.z)  # for one more vector

    def holds(self, params: list[Tensor], state: Mapping[Any, Any]) -> bool:
        """Whether the state is still that of these buffers."""
        same = len(params) == len(self.params) and all(map(operator.is_, params, self.params))
        return same and all(
            state.get(p, {}).get("z") is z for p, z in zip(params, self.z_views, strict=True)
        )

    def record(self, state: dict[Any, Any]) -> None:
        for i, p in enumerate(self.params):
            state[p] = {"z": self.z_views[i], "d": self.d_views[i]}
            if self.before:
                state[p]["before"] = self.before[i]
        self.new = []

    def gradients(self) -> list[Tensor]:
        """What backward left; 0 where a mini-batch does not use a parameter."""
        if any(p.grad is not None and p.grad.is_sparse for p in self.params):
            raise ValueError("MoSSP takes dense gradients only: build the layer with sparse=False.")
        return [working(torch.zeros_like(p) if p.grad is None else p.grad) for p in self.params]

    def change(self) -> list[Tensor]:
        """d - gradient; 0 for parameters that have no d yet, whose first d is the gradient."""
        if not self.params:
            return []
        change = torch._foreach_sub(self.d_views, self.gradients())
        for i in self.new:
            change[i].zero_()
        return list(change)

    def estimate(self, alpha: float, change: list[Tensor] | None) -> None:
        """The new d, from the gradients at x and, if recursive, the change of d before."""
        gradients = self.gradients()
        if change is not None:
            assign(self.d_views, gradients)
            torch._foreach_add_(self.d_views, change, alpha=1 - alpha)
            return
        for i in self.new:
            self.d_views[i].copy_(gradients[i])
        torch._foreach_lerp_(self.d_views, gradients, alpha)

    def move(self, reg: Any, mu: float, beta: float, pull: list[Tensor] | None) -> None:
        """The proximal steps, from d and J(x) q."""
        v = torch.sub(self.z, self.d, alpha=mu, out=self.room)
        if pull is not None:
            torch._foreach_sub_(split(v, self.params), pull, alpha=mu)
        if self.before:
            assign(self.before, self.params)
        x, y = proximal(reg, v, self.z, mu)
        if y is self.z and beta == 1:  # g = 0
            self.z.copy_(x)
        else:
            self.z.sub_(y - x, alpha=beta)
        assign(self.params, split(x, self.params))


# Tensors --------------------------------------------------------------------------------------


def working(t: Tensor) -> Tensor:
    """t in at least single precision."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def joined(tensors: list[Tensor]) -> Tensor:
    """All entries as one new vector."""
    return torch.cat([working(t).reshape(-1) for t in tensors] or [torch.empty(0)])


def split(flat: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Views of a vector in the shapes of `like`."""
    parts = flat.split([p.numel() for p in like])
    return [part.view(p.shape) for part, p in zip(parts, like, strict=True)]


def assign(to: list[Tensor], values: list[Tensor]) -> None:
    if to:
        torch._foreach_copy_(to, values)


def proximal(reg: Any, v: Tensor, z: Tensor, mu: float) -> tuple[Tensor, Tensor]:
    """prox_{mu h}(v) and prox_{mu g}(z)."""
    if reg is None:
        return v, z
    # Some prox_g ask whether mu is 0 by `where`, to which torch wants a tensor.
    return reg.prox_h(v, mu), reg.prox_g(z, torch.full((), mu, dtype=z.dtype, device=z.device))


def gradient(c: Tensor, params: list[Tensor], q: Tensor, **keep: Any) -> list[Tensor]:
    """J q in the shapes of the parameters."""
    parts = torch.autograd.grad(c, params, q, allow_unused=True, **keep)
    pairs = zip(parts, params, strict=True)
    return [working(torch.zeros_like(p) if part is None else part) for part, p in pairs]


def equal_rows(c: Tensor, params: list[Tensor]) -> Tensor:
    """max_i ||J_i||^2 / ||J_j||^2; 1 where a row vanishes."""
    rows = (gradient(c, params, e, retain_graph=True) for e in torch.eye(len(c)).to(c))
    squares = torch.stack([sum(part.square().sum() for part in row) for row in rows])
    return torch.where(squares > 1e-16 * squares.max(), squares.max() / squares, 1.0)


def leaves(value: Any) -> list[Tensor]:
    """The tensors of a tensor or of a dict of them."""
    return list(value.values()) if isinstance(value, Mapping) else [value]


def random_state() -> list[Tensor]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *cuda]


def set_random_state(numbers: list[Tensor]) -> None:
    torch.set_rng_state(numbers[0])
    if numbers[1:]:
        torch.cuda.set_rng_state_all(numbers[1:])


# Parameters of the method ---------------------------------------------------------------------


def checked(name: str, value: Any) -> float:
    needs, inside = RANGES[name]
    try:
        number = math.nan if isinstance(value, (str, bool)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not inside(number):
        raise ValueError(f"MoSSP needs {needs}, but {name} = {value!r} was given.")
    return number


def now(name: str, given: Any, k: int) -> float:
    """A number, or the value of a function at the step k."""
    return checked(name, given(k) if callable(given) else given)


def one_of(mu: Any, lr: Any) -> Any:
    if mu is not None and lr is not None:
        raise ValueError("lr is another name for mu: give one of them.")
    return lr if mu is None else mu


def chosen(given: dict[str, Any], schedule: Any) -> dict[str, Any]:
    """mu, rho and alpha: what is given, or defaults, or the functions of a schedule."""
    if schedule is None:
        return {name: DEFAULTS[name] if it is None else it for name, it in given.items()}
    if not isinstance(schedule, Schedule):
        raise ValueError(
            "schedule must be a mossp.schedules.Schedule, which a rule makes by "
            f"rule.schedule(momentum, K, constants), but {schedule!r} was given."
        )
    both = [name for name, it in given.items() if it is not None]
    if both:
        raise ValueError(f"The schedule says what {both[0]} is: leave {both[0]} out.")
    return {name: Table(schedule, name) for name in given}


class Table:
    """One parameter of a schedule, which JAX computes for many steps at once."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.schedule, self.name, self.block, self.values = schedule, name, -1, np.zeros(0)

    def __call__(self, k: int) -> float:
        block, i = divmod(k, 1024)  # a resumed run computes the same blocks
        if block != self.block:
            with jax.enable_x64(True):
                at = self.schedule.at(1024 * block + np.arange(1024))
            self.block, self.values = block, np.asarray(getattr(at, self.name))
        return float(self.values[i])


# What is checked before any step --------------------------------------------------------------


def found(regularizer: Any) -> Any:
    if isinstance(regularizer, str):
        return regularizers.named(regularizer)
    if regularizer is not None and not isinstance(regularizer, regularizers.Regularizer):
        raise ValueError(
            "regularizer must be a regulariser, a name such as 'mcp:0.01' or None, but "
            f"{regularizer!r} was given."
        )
    return regularizer


def check_group(group: dict[str, Any]) -> None:
    """One kind of numbers in a group, and a regulariser that suits their vector."""
    params = [p for p in group["params"] if p.requires_grad]
    kinds = sorted({f"{p.dtype} on {p.device}" for p in params})
    if len(kinds) > 1 or any(not p.is_floating_point() for p in params):
        raise ValueError(
            "The parameters of a group must be real and share a dtype and a device, but there are "
            f"{' and '.join(kinds)}: make groups of them."
        )
    if params and group["regularizer"] is not None:
        v = torch.zeros_like(joined(params))
        for p in proximal(group["regularizer"], v, v, group["lr"]):
            if not isinstance(p, torch.Tensor) or p.shape != v.shape or p.dtype != v.dtype:
                raise ValueError(
                    f"{group['regularizer']!r} does not fit: its proximal maps must turn a "
                    f"{v.dtype} tensor of {len(v)} entries into another one."
                )


def check_constraint(name: str, constraint: Any) -> None:
    if constraint is None:
        return
    if not callable(constraint):
        raise ValueError(f"{name} must be a function without arguments, but it is {constraint!r}.")
    with torch.enable_grad():
        values = leaves(constraint())
    if not all(isinstance(value, torch.Tensor) for value in values):
        raise ValueError(f"{name} must return a tensor or a dict of tensors.")
    if not any(value.requires_grad for value in values):
        raise ValueError(f"{name} depends on no parameter that is trained.")
