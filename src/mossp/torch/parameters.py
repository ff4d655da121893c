"""mu, rho, alpha and their like, and what is checked before any step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch

from mossp import regularizers
from mossp.schedules import Schedule
from mossp.torch.vectors import joined, proximal

DEFAULTS = {"mu": 1e-2, "rho": 10.0, "alpha": 0.1}
RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "mu": ("a number mu > 0 (the learning rate)", lambda mu: 0 < mu < math.inf),
    "lr": ("a number lr >= 0", lambda lr: 0 <= lr < math.inf),  # schedulers may end at 0
    "rho": ("a number rho >= 0", lambda rho: 0 <= rho < math.inf),
    "alpha": ("0 < alpha <= 1, the weight of the new gradient", lambda alpha: 0 < alpha <= 1),
    "eta": ("eta > 0", lambda eta: eta > 0),
    "beta": ("0 < beta <= 1", lambda beta: 0 < beta <= 1),
    "dual": ("0 < dual <= 1", lambda dual: 0 < dual <= 1),
    "bound": ("bound > 0", lambda bound: bound > 0),
}


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
    """mu, rho, alpha and eta: what is given, or defaults, or the functions of a schedule.

    A mu that is left out stays None: every group then has the default, damped. So does an eta,
    which is mu then.
    """
    if schedule is None:
        rest = {name: it for name, it in DEFAULTS.items() if name != "mu"}
        return {name: rest.get(name) if it is None else it for name, it in given.items()}
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
