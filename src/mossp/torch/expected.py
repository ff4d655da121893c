"""Constraints that are means over data, of which a step sees a mini-batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils import _pytree

from mossp._base.printing import shown
from mossp.torch.batches import Batches
from mossp.torch.rowwise import check_mean, check_repeated
from mossp.torch.vectors import joined, leaves, named_leaves, random_state, set_random_state


@dataclasses.dataclass(frozen=True, eq=False)
class Expected:
    """A constraint on the mean over data: E[c(x; rows)] <= 0, or = 0.

    Parameters
    ----------
    function : callable
        The mean of c over the rows of a mini-batch: a tensor, or a dict of tensors.
        `function(batch)` where there is a loader; `function()` otherwise, which looks at rows of
        its own choice, the same ones as long as torch's random numbers and the step are the same.
    loader : iterable, optional
        Of mini-batches, such as a DataLoader or a list; begun again when it ends.
    values : iterable, optional
        Of the mini-batches on which values are estimated, independent of the others and perhaps
        larger: they cost no backward pass. Left out, those of `loader`.
    check : bool
        Whether the value of a batch is compared with those of its parts, at the start: a sum over
        rows, or a mean over those of a group in the batch, is then refused.

    Notes
    -----
    The values are tracked, with the alpha of the momentum and C the mini-batch of values ::

        u = c(x; C) + (1 - alpha) (u - c(x_before; C))    "recursive"
        u = (1 - alpha) u + alpha c(x; C)                 "polyak"

    beginning with u = c(x; C), and stand for c(x) in `q = lam + rho u`. J(x; B) q is differentiated
    on the mini-batch B of `loader`, and added to the gradient of the loss before its momentum is
    taken. The update of lam is ::

        lam+ = lam + alpha dual rho u    (inequalities: at least (1 - alpha dual) lam)

    Where B and C are the same, J(x; B) q is biased by the covariance of J and c over their rows:
    with Polyak momentum by alpha rho times that, with recursive momentum by rho times. `values`,
    in an order of their own, take this away.

    A mean over the rows of a group G, such as the loss of a class, is not a mean over the rows of a
    batch that is divided by how many of them are in G, but by their share of all data::

        (loss_of_row * in_group).mean() / share_of_group

    which is right on average, and for a batch without any of them.

    Examples
    --------
    A classifier that finds 9 of 10 positive rows, by the mean of a sigmoid:

    >>> import torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> from mossp.torch import Expected, MoSSP
    >>> _ = torch.manual_seed(0)
    >>> X, y = torch.randn(400, 2), (torch.rand(400) < 0.3).float()
    >>> X[:, 0] += y
    >>> model = torch.nn.Linear(2, 1)
    >>> def missed(batch):
    ...     rows, labels = batch
    ...     recall = (labels * torch.sigmoid(4 * model(rows)[:, 0])).mean() / y.mean()
    ...     return {"recall": 0.9 - recall}
    >>> draws = torch.Generator().manual_seed(0)
    >>> loader = DataLoader(TensorDataset(X, y), batch_size=100, shuffle=True, generator=draws)
    >>> optimizer = MoSSP(
    ...     model.parameters(), inequality=Expected(missed, loader), multipliers=True, mu=0.1
    ... )
    >>> loss = torch.nn.BCEWithLogitsLoss()
    >>> for _ in range(300):
    ...     rows = torch.randint(400, (50,))
    ...     value = optimizer.step(lambda: loss(model(X[rows])[:, 0], y[rows]).backward())
    >>> found = optimizer.evaluate()
    >>> bool(abs(found.values["inequality"]["recall"]) < 0.02), found.violation < 0.02
    (True, True)
    """

    function: Callable[..., Any]
    loader: Iterable[Any] | None = None
    values: Iterable[Any] | None = None
    check: bool = True

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(
                "Expected needs a function that returns the mean over the rows of a batch, but "
                f"{shown(self.function)} was given."
            )
        for name in ("loader", "values"):
            loader = getattr(self, name)
            # A tensor is iterated row by row, a mapping by its names.
            whole = isinstance(loader, (torch.Tensor, Mapping, str))
            if loader is not None and (whole or not isinstance(loader, Iterable)):
                given = f"a {type(loader).__name__}" if whole else shown(loader)
                raise TypeError(
                    f"{name} must be an iterable of batches, such as a DataLoader or a list, but "
                    f"{given} was given."
                )
        if self.values is not None and self.loader is None:
            raise ValueError("values are batches for function(batch): give a loader, too.")


class Sampled:
    """An Expected in a run: the place in its loaders, and the shapes of its values."""

    def __init__(self, name: str, expected: Expected) -> None:
        self.name, self.expected = name, expected
        loaders = {"loader": expected.loader, "values": expected.values}
        self.batches = {
            which: Batches(name, loader) for which, loader in loaders.items() if loader is not None
        }
        self.like: Any = None  # what the function returned first: names and shapes
        self.judged = False

    def value(self, which: str = "loader") -> Any:
        """The constraint on the mini-batch ahead, as the function returns it."""
        return self.on(*([self.batches[which].ahead()] if self.batches else []))

    def on(self, *batch: Any) -> Any:
        value = self.expected.function(*batch)
        parts = leaves(value)
        wrong = [part for part in parts if not isinstance(part, torch.Tensor)]
        if wrong or not parts:
            raise TypeError(
                f"{self.name} must return a tensor or a dict of tensors, but it returned "
                f"{shown(wrong[0] if wrong else value)}."
            )
        if self.like is None:
            self.like = _pytree.tree_map(torch.Tensor.detach, value)
        first, now = shapes(self.name, self.like), shapes(self.name, value)
        if now != first:
            raise ValueError(
                f"{self.name} must have the same shape on every batch, but it was "
                f"{shown(first)} at first and is {shown(now)} now."
            )
        return value

    @property
    def size(self) -> int:
        return sum(leaf.numel() for leaf in leaves(self.like))

    def look(self, recursive: bool) -> None:
        """Draw what the next step looks at; the first time, judge the function by it."""
        for batches in self.batches.values():
            batches.ahead()
        if self.judged:
            return
        numbers = random_state()
        with torch.enable_grad():
            first = self.value()
        if not any(leaf.requires_grad for leaf in leaves(first)):
            raise ValueError(f"{self.name} depends on no parameter that is trained.")
        with torch.no_grad():
            if not self.batches:
                set_random_state(numbers)
                if recursive:
                    check_repeated(self.name, joined(leaves(first)), joined(leaves(self.value())))
            elif self.expected.check:
                check_mean(self.name, self.expected.function, self.batches["loader"].ahead())
        set_random_state(numbers)
        self.judged = True

    def advance(self) -> None:
        for batches in self.batches.values():
            batches.advance()


def shapes(name: str, value: Any) -> dict[str, tuple[int, ...]]:
    return {key: tuple(leaf.shape) for key, leaf in named_leaves(name, value)}
