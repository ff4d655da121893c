"""Constraints over all of the data, with standard errors, between steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from mossp.torch.batches import count_rows, undisturbed
from mossp.torch.constraints import Constraints
from mossp.torch.expected import Sampled
from mossp.torch.processes import total
from mossp.torch.vectors import Tensor, joined, leaves, norm, random_state, set_random_state


class Evaluation(NamedTuple):
    """Constraints at a point, in double precision, under the names that the user gave.

    Attributes
    ----------
    values : dict
        c_E and c_I, "equality" and "inequality".
    errors : dict
        Their standard errors, as estimates of means over all rows there might be; 0 for functions
        that do not look at data, NaN where there was one batch only.
    violation : float
        `||(c_E, [c_I]_+)||`.

    Examples
    --------
    A mean over batches of three rows and of one:

    >>> import torch
    >>> from mossp.torch import Expected, MoSSP
    >>> x = torch.nn.Parameter(torch.ones(1))
    >>> batches = [torch.tensor([8.0, 10.0, 12.0]), torch.tensor([14.0])]
    >>> given = Expected(lambda rows: (rows * x).mean() - 4.0, batches)
    >>> found = MoSSP([x], inequality={"mean": given}).evaluate()
    >>> found.values["inequality"]["mean"].item(), found.violation
    (7.0, 7.0)
    >>> round(found.errors["inequality"]["mean"].item(), 3)
    1.732
    """

    values: dict[str, Any]
    errors: dict[str, Any]
    violation: float


def evaluated(constraints: Constraints, given: Any, draws: int) -> Evaluation:
    """Every Expected over its data, or over the loader that is given for it."""
    found = []
    for _, key, source in constraints.entries:
        if isinstance(source, Sampled):
            loader = given.get(key, given.get(source.name)) if isinstance(given, Mapping) else given
            found.append(mean_and_error(*batch_means(source, loader, draws)))
        else:
            c = joined(leaves(source.value())).double()
            found.append((c, torch.zeros_like(c)))
    c, errors = (torch.cat(part) for part in zip(*found, strict=True))
    constraints.lay_out([len(value) for value, _ in found])
    return Evaluation(
        constraints.arranged(c),
        constraints.arranged(errors),
        float(norm(constraints.positive_part(c))),
    )


def batch_means(source: Sampled, loader: Iterable[Any] | None, draws: int) -> tuple[Tensor, Tensor]:
    """The values on every batch, and how many rows each of them is the mean of."""
    if not source.batches:
        numbers = random_state()
        values = [joined(leaves(source.on())) for _ in range(draws)]
        set_random_state(numbers)
        return torch.stack(values).double(), torch.ones(draws).to(values[0]).double()
    own = loader is None
    if loader is None:
        loader = list(source.batches.values())[-1].loader
    if own and getattr(loader, "persistent_workers", False):
        raise ValueError(
            f"The loader of {source.name} has persistent workers, which can be in one place of it "
            "only, that of training: give evaluate a loader of its own."
        )
    numbers, values, rows = random_state(), [], []
    with undisturbed(loader):
        for batch in loader:
            n = count_rows(batch)
            if n is None:
                raise ValueError(
                    f"The rows in a batch of {source.name} cannot be counted: the tensors in it "
                    "must have a common first axis."
                )
            values.append(joined(leaves(source.on(batch))))
            rows.append(n)
    set_random_state(numbers)
    if not values:
        raise ValueError(f"The loader of {source.name} has no batches.")
    return torch.stack(values).double(), torch.tensor(rows).to(values[0]).double()


def mean_and_error(means: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over all rows of all processes, and its standard error.

    A mean m_b over n_b rows has the variance s^2 / n_b, so that with N rows in G batches

        m = sum_b n_b m_b / N,    s^2 = sum_b n_b (m_b - m)^2 / (G - 1),    error = s / sqrt(N)
    """
    batches, N = total(torch.stack([torch.ones_like(rows).sum(), rows.sum()]))
    m = total(rows @ means) / N
    squares = total(rows @ (means - m).square())
    return m, (squares / (batches - 1) / N).sqrt()
