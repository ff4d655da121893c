"""How much of lr a step takes where mu is left out: what the last step says is stable.

Two consecutive steps measure the curvature that decides, that of the loss, of the penalty and of
the multipliers together: with s = x - x_before and S as in `mossp.torch`,

    kappa = s'(S - S_before) / s's

A mode that grows does so by overshooting: s turns round at every step, S with it, and then

    mu kappa > 1 + beta / 2

whatever the momentum and the regulariser (prox_{mu h} has slopes of at most 1, and prox_{mu g} of
at most 1; with both equal to 1 and beta = 1 the bound would be 2). The step that shows it is
followed by one of 1 / kappa, and quiet steps by longer ones, until mu is lr again. No step is
longer than a tenth of the weights: the first has nothing to compare with, and what a longer one
would meet has not been measured. With a concave part z - x changes with the damping, so that the
subgradient which it stands for stays; modes are then slower to grow, and the bound errs on the safe
side.

On a quadratic with the curvatures 1 and 1e4, where steps of lr = 0.01 would overflow:

>>> import torch
>>> from mossp.torch import MoSSP
>>> x = torch.nn.Parameter(torch.ones(2))
>>> optimizer = MoSSP([x])
>>> def closure():
...     loss = 0.5 * (x[0] ** 2 + 1e4 * x[1] ** 2)
...     loss.backward()
...     return loss
>>> for _ in range(150):
...     loss = optimizer.step(closure)
>>> bool(loss < 0.5)
True
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

LONGEST = 0.1  # a step, as a part of max(||x||, 1)
REGAINED = 1.1  # of the damping, by a quiet step
SMALLEST_CUT = 0.1  # by one overshoot, which a mini-batch may have feigned
AFTER_FAILURE = 0.1  # of the damping, by a step that led to NaN or an infinite number


class Seen(NamedTuple):
    """Of the groups without a mu of their own, each term a sum over them."""

    turned: Any  # s'(S - S_before)
    allowed: Any  # (1 + beta / 2) s's / lr
    moved: Any  # s's / lr
    pull: Any  # ||lr S||^2
    size: Any  # ||x||^2


def damped(damping: float, seen: list[Seen]) -> float:
    """The damping of the step to come, from that of the last one."""
    if not seen:
        return damping
    totals = torch.stack([torch.stack([t.cpu().double() for t in each]) for each in seen]).sum(0)
    turned, allowed, moved, pull, size = totals.tolist()
    # mu = damping * lr, so that mu kappa is damping * turned / moved.
    if damping * turned > allowed:
        new = damping * max(moved / (damping * turned), SMALLEST_CUT)
    else:
        new = min(REGAINED * damping, 1.0)
    longest = LONGEST * max(math.sqrt(size), 1.0)
    return min(new, longest / math.sqrt(pull)) if pull > longest**2 else new
