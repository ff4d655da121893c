"""A group of parameters as one vector, and what is done with tensors."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from mossp._base.printing import shown
from mossp.torch.damping import Seen

Tensor = Any  # a torch.Tensor
Pull = list[Tensor]  # J q, in the shapes of the parameters


class Vector:
    """x, z and d of a group: its parameters, and one flat buffer each, with views of them.

    The point before is there to go back to, and S before (`damped`) to compare with; y and v are
    there where a part of the objective is `concave`. The views are what `state` holds for every
    parameter.
    """

    def __init__(
        self, params: list[Tensor], state: Mapping[Any, Any], damped: bool, concave: bool
    ) -> None:
        self.params = params
        self.new = [i for i, p in enumerate(params) if not state.get(p)]  # no d yet
        zeros = [torch.zeros_like(p) for p in params]
        first = [
            {"z": p, "d": o, "before": p, "S": o, "y": p, "v": o}
            for p, o in zip(params, zeros, strict=True)
        ]
        kept = [start | state.get(p, {}) for p, start in zip(params, first, strict=True)]
        names = "z", "d", "before", *(("S",) if damped else ()), *(("y", "v") if concave else ())
        flat = {name: joined([entry[name] for entry in kept]) for name in names}
        self.views = {name: split(buffer, params) for name, buffer in flat.items()}
        self.z, self.d, self.x_before = flat["z"], flat["d"], flat["before"]
        self.S_before: Tensor = flat.get("S")
        self.y: Tensor = flat.get("y")
        self.v: Tensor = flat.get("v")
        self.before, self.d_views = self.views["before"], self.views["d"]
        self.room = torch.empty_like(self.z)  # for one more vector

    def holds(self, params: list[Tensor], state: Mapping[Any, Any]) -> bool:
        """Whether the state is still that of these buffers."""
        same = len(params) == len(self.params) and all(map(operator.is_, params, self.params))
        return same and all(
            state.get(p, {}).get("z") is z for p, z in zip(params, self.views["z"], strict=True)
        )

    def record(self, state: dict[Any, Any]) -> None:
        for i, p in enumerate(self.params):
            state[p] = {name: views[i] for name, views in self.views.items()}
        self.new = []

    def undo(self) -> bool:
        """x, y and z at the point before, which d belongs to; whether that is another point."""
        if len(self.new) == len(self.params):
            return False
        moved = not torch.equal(joined(self.params), self.x_before)
        assign(self.params, self.before)
        self.z.copy_(self.x_before)
        if self.y is not None:
            self.y.copy_(self.x_before)
        return moved

    def fresh(self) -> list[Tensor]:
        """Parameters that may be infinite though z is not: new ones, and half precision."""
        narrow = self.params[:1] and self.params[0].dtype != self.z.dtype
        return self.params if narrow else [self.params[i] for i in self.new]

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

    def estimate(
        self, alpha: float, change: list[Tensor] | None, pull: Pull | None, before: Pull | None
    ) -> None:
        """The new d, from the gradients at x and, if recursive, the change of d before.

        J q of expected constraints, at x and at the point before, is part of the gradients.
        """
        gradients = self.gradients()
        if pull is not None:
            gradients = list(torch._foreach_add(gradients, pull))
        if change is not None:
            if before is not None:
                torch._foreach_sub_(change, before)
                for i in self.new:
                    change[i].zero_()
            assign(self.d_views, gradients)
            torch._foreach_add_(self.d_views, change, alpha=1 - alpha)
            return
        for i in self.new:
            self.d_views[i].copy_(gradients[i])
        torch._foreach_lerp_(self.d_views, gradients, alpha)

    def follow(self, alpha: float, slope: Pull) -> None:
        """The new v, from a subgradient of g at y."""
        views = self.views["v"]
        for i in self.new:
            views[i].copy_(slope[i])
        torch._foreach_lerp_(views, slope, alpha)

    def direction(self, pull: Pull | None) -> Tensor:
        """S = d + J(x) q."""
        if pull is None:
            return self.d
        self.room.copy_(self.d)
        torch._foreach_add_(split(self.room, self.params), pull)
        return self.room

    def compare(self, S: Tensor, lr: float, beta: float) -> Seen:
        """What the last step says of the next, whose S is kept for the one after it."""
        x = joined(self.params)
        s = x - self.x_before
        moved = s.dot(s) / lr
        turned = s.dot(self.S_before.neg_().add_(S))
        self.S_before.copy_(S)
        pull = lr * norm(S)
        return Seen(turned, (1 + beta / 2) * moved, moved, pull.square(), norm(x).square())

    def move(self, S: Tensor, reg: Any, mu: float, beta: float) -> None:
        """The proximal steps."""
        v = torch.sub(self.z, S, alpha=mu, out=self.room)
        assign(self.before, self.params)
        x, y = proximal(reg, v, self.z, mu)
        assign(self.params, split(x, self.params))
        if y is self.z and beta == 1:  # g = 0: x is the new z, without a copy
            if x.data_ptr() == self.room.data_ptr():
                self.room = self.z
            self.z = x
            self.views["z"] = split(x, self.params)
        else:
            self.z.sub_(y - x, alpha=beta)

    def move_both(self, S: Tensor, reg: Any, mu: float, eta: float | None, beta: float) -> None:
        """The proximal steps of x and y, with a concave part.

        tau = mu eta / (mu + eta) = a mu, and tau / eta = 1 - a: nothing is divided by mu, which
        schedulers may let end at 0, nor by an infinite eta.
        """
        a = 1 / (1 + (1.0 if eta is None else mu / eta))
        tau = a * mu
        x = joined(self.params)
        v_x = torch.lerp(x, self.z, a).sub_(S, alpha=tau)
        v_y = torch.lerp(self.y, self.z, a).sub_(self.v, alpha=tau)
        assign(self.before, self.params)
        x, y = proximal(reg, v_x, v_y, tau)
        assign(self.params, split(x, self.params))
        self.y.copy_(y)
        self.z.sub_(y - x, alpha=beta)

    def rescale(self, ratio: float) -> None:
        """z = x + mu s, with s a subgradient of g: the same s for a mu `ratio` times as long."""
        x = joined(self.params)
        self.z.sub_(x).mul_(ratio).add_(x)


def shared_out(pull: Pull | None, vectors: list[Vector]) -> list[Pull | None]:
    """The parts of J q that belong to the parameters of each vector."""
    parts = iter(pull or [])
    return [None if pull is None else [next(parts) for _ in v.params] for v in vectors]


def in_working_precision(groups: list[dict[str, Any]], saved: dict[str, Any]) -> dict[Any, Any]:
    """The state of every parameter as it was saved, of which torch changes the dtype."""
    ids = itertools.chain.from_iterable(group["params"] for group in saved["param_groups"])
    params = (p for group in groups for p in group["params"])
    return {
        p: {
            name: value.to(p.device, working(p).dtype, copy=True)
            for name, value in saved["state"][i].items()
        }
        for i, p in zip(ids, params, strict=True)
        if i in saved["state"]
    }


# Tensors --------------------------------------------------------------------------------------


def working(t: Tensor) -> Tensor:
    """t in at least single precision."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def norm(t: Tensor) -> Tensor:
    """||t||, in double precision where the device has it: squares overflow in single precision."""
    fine = t.dtype if t.device.type == "mps" else torch.float64
    return torch.linalg.vector_norm(t, dtype=fine)


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
    if not c.requires_grad:  # what a mini-batch says does not depend on them
        return [working(torch.zeros_like(p)) for p in params]
    parts = torch.autograd.grad(c, params, q, allow_unused=True, **keep)
    pairs = zip(parts, params, strict=True)
    return [working(torch.zeros_like(p) if part is None else part) for part, p in pairs]


def equal_rows(rows: Iterable[list[Tensor]]) -> Tensor:
    """max_i ||J_i||^2 / ||J_j||^2; 1 where a row vanishes."""
    squares = joined([sum(part.square().sum() for part in row) for row in rows])
    if not len(squares):
        return squares
    return torch.where(squares > 1e-16 * squares.max(), squares.max() / squares, 1.0)


def entries(parts: list[list[Tensor] | None]) -> list[Tensor]:
    return [t for part in parts if part is not None for t in part]


def leaves(value: Any) -> list[Tensor]:
    """The tensors of a tensor or of a dict of them."""
    return list(value.values()) if isinstance(value, Mapping) else [value]


def named_leaves(name: str, value: Any) -> list[tuple[str, Tensor]]:
    """The same, under the names by which the user would find them."""
    if not isinstance(value, Mapping):
        return [(name, value)]
    return [(f"{name}[{shown(key)}]", leaf) for key, leaf in value.items()]


def random_state() -> list[Tensor]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *cuda]


def set_random_state(numbers: list[Tensor]) -> None:
    torch.set_rng_state(numbers[0])
    if numbers[1:]:
        torch.cuda.set_rng_state_all(numbers[1:])
