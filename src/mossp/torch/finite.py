"""Numbers that are NaN or infinite: found by one check a step, then named."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from mossp._base.printing import shown
from mossp.torch.vectors import Pull, Tensor, working


class NonFiniteError(FloatingPointError):
    """The loss, a constraint, the concave part, a gradient or a parameter is NaN or infinite.

    The sentence says which one, and where the parameters are now.

    Examples
    --------
    >>> import torch
    >>> from mossp.torch import MoSSP, NonFiniteError
    >>> x = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = MoSSP([x], inequality=lambda: {"log": torch.log(x - 1.5)}, mu=0.1)
    >>> try:
    ...     optimizer.step(lambda: x.sum().backward())
    ... except NonFiniteError as error:
    ...     print(str(error).split(":")[0])
    At step 0 inequality['log'][0] is nan
    """


class Numbers(NamedTuple):
    """What a step has computed before it changes anything."""

    params: list[Tensor]
    fresh: list[Tensor]  # those of params that no step has made, or a step has rounded
    constraints: list[Tensor]  # c(x) and J(x) q
    before: list[Tensor]  # J(x_before; B) q_before
    gradients: list[Tensor]
    old: list[Tensor]  # d - gf(x_before; B)
    loss: list[Tensor]
    concave: list[Tensor]  # g(y; B), and then its gradient; empty without a concave part


def suspicious(numbers: Numbers) -> bool:
    """Whether a number may be NaN or infinite; costs one synchronisation.

    The norm of a tensor with such an entry is not finite either; that of a finite one may
    overflow. Parameters that a step has made from finite numbers are left out.
    """
    by_kind: dict[Any, list[Tensor]] = {}
    for t in itertools.chain.from_iterable(numbers._replace(params=[])):
        by_kind.setdefault((t.dtype, t.device), []).append(working(t.detach()))
    norms = [torch.stack(torch._foreach_norm(same, 2)) for same in by_kind.values()]
    if not norms:
        return False
    total = torch.stack([each.sum().to(norms[0].device, torch.float32) for each in norms]).sum()
    return not total.isfinite().item()


def number(loss: Any) -> list[Tensor]:
    """What a closure returned, if it is a number."""
    if isinstance(loss, float):
        return [torch.tensor(loss)]
    return [loss.detach()] if isinstance(loss, torch.Tensor) and loss.is_floating_point() else []


def parameter_names(groups: list[dict[str, Any]]) -> dict[Tensor, str]:
    return {
        p: f"parameter {shown(name)}"
        for group in groups
        for name, p in zip(group.get("param_names", itertools.count()), group["params"])  # noqa: B905
    }


def culprit(
    numbers: Numbers,
    names: Mapping[Tensor, str],
    constraints: Iterable[tuple[str, Tensor]],
    rows: Iterable[tuple[str, Pull]],
) -> str | None:
    """What is NaN or infinite, by name: first what the rest comes from.

    `constraints` are their values, `rows` their gradients, which are computed only if needed.
    """
    by = [f"the gradient of the loss by {names[p]}" for p in numbers.params]
    value, slope = numbers.concave[:1], numbers.concave[1:]
    sloping = [f"the gradient of the concave part by {names[p]}" for p in numbers.params]
    return (
        not_finite((names[p], p) for p in numbers.params)
        or not_finite(constraints)
        or not_finite(("the loss", value) for value in numbers.loss)
        or not_finite(zip(by, numbers.gradients, strict=True))
        or not_finite(("the gradient of the loss at the point before", t) for t in numbers.old)
        or (not_finite(("", t) for t in numbers.constraints) and row_not_finite(rows))
        or not_finite(("the gradient of a constraint before", t) for t in numbers.before)
        or not_finite(("the concave part", t) for t in value)
        or not_finite(zip(sloping, slope, strict=bool(slope)))
    )


def not_finite(named: Iterable[tuple[str, Tensor]]) -> str | None:
    """The first entry that is NaN or infinite, as "name[i, j] is nan"."""
    for name, t in named:
        bad = (~t.detach().isfinite()).nonzero()
        if len(bad):
            i = bad[0].tolist()
            return f"{name}{i or ''} is {t.detach()[tuple(i)].item()}"
    return None


def row_not_finite(rows: Iterable[tuple[str, Pull]]) -> str:
    """The constraint whose gradient is not finite; if there is none, their sum has overflowed."""
    for name, row in rows:
        if not_finite(("", t) for t in row):
            return f"the gradient of {name} is not finite"
    return "the gradient of the penalty is infinite"


def sentence(step: int, what: str, moved: bool, by_itself: bool) -> str:
    """What a NonFiniteError says; `by_itself` if the steps to come are shorter anyway."""
    if not moved:
        return f"At step {step} {what}: no step was taken."
    remedy = "go on, with shorter steps" if by_itself else "take a smaller lr or rho"
    return (
        f"At step {step} {what}: the parameters are again those of the step before, the last at "
        f"which all was finite. Look for it in this mini-batch, or {remedy}."
    )
