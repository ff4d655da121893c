"""What is given as c_E or c_I: one function or a dict of them, each a closure or an Expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from mossp._base.printing import shown
from mossp.torch.expected import Expected, Sampled
from mossp.torch.vectors import leaves

Constraint = Callable[[], Any] | Expected | Mapping[str, Callable[[], Any] | Expected]


class Exact:
    """A closure without arguments, whose values are c(x) itself.

    It is judged when a step first needs it: what it looks at may not be there before.
    """

    def __init__(self, name: str, function: Any) -> None:
        self.name, self.function, self.judged = name, function, False

    def value(self) -> Any:
        """c(x), as the function returns it."""
        value = self.function()
        if self.judged:
            return value
        parts = leaves(value)
        if not all(isinstance(part, torch.Tensor) for part in parts):
            raise ValueError(f"{self.name} must return a tensor or a dict of tensors.")
        if torch.is_grad_enabled():
            if not any(part.requires_grad for part in parts):
                raise ValueError(f"{self.name} depends on no parameter that is trained.")
            self.judged = True
        return value


class Entry(NamedTuple):
    """Where a constraint stands in what the user gave."""

    kind: str  # "equality" or "inequality"
    key: Any  # of a dict of functions; None where there is one function
    source: Exact | Sampled


def entries_of(kind: str, given: Any) -> list[Entry]:
    """One function, or a dict of them, each an Expected or a closure."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        return [Entry(kind, None, source_of(kind, given))]
    if not given:
        raise ValueError(f"{kind} is an empty dict: leave it out, or put functions into it.")
    return [Entry(kind, key, source_of(f"{kind}[{shown(key)}]", it)) for key, it in given.items()]


def source_of(name: str, given: Any) -> Exact | Sampled:
    if isinstance(given, Expected):
        return Sampled(name, given)
    if not callable(given):
        raise ValueError(
            f"{name} must be a function without arguments, a mossp.torch.Expected or a dict of "
            f"these, but it is {shown(given)}."
        )
    return Exact(name, given)
