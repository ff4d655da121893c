"""Whether a function of a batch is the mean over its rows: tried on parts of one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from mossp.torch.batches import count_rows, only_tensors, some_rows
from mossp.torch.vectors import Tensor, joined, leaves

FEWEST = 4  # rows, of which two parts have two each: one row is too few for some layers


def check_mean(name: str, function: Callable[[Any], Any], batch: Any) -> None:
    """Refuse a function whose value on a batch is not the mean of those on its parts.

    What differs when it is computed again, as by dropout, and what takes batches of one size only,
    cannot be judged.
    """
    n = count_rows(batch) if only_tensors(batch) else None
    if n is None or n < FEWEST:
        return

    def value(part: Any) -> Tensor:
        return joined(leaves(function(part))).detach()

    whole = value(batch)
    if not whole.isfinite().all() or differ(whole, value(batch)):
        return
    for first in groupings(n):
        try:
            parts = [value(some_rows(batch, which)) for which in (first, ~first)]
        except Exception:
            return
        if parts[0].shape != whole.shape:
            raise ValueError(
                f"{name} must be the mean over the rows of a batch, but it has {len(whole)} "
                f"entries on {n} rows and {len(parts[0])} on {int(first.sum())}: take the mean."
            )
        share = first.sum().item() / n
        mean = share * parts[0] + (1 - share) * parts[1]
        if differ(mean, whole, *parts):
            i = int((mean - whole).abs().nan_to_num(torch.inf).argmax())
            raise ValueError(
                f"{name} must be the mean over the rows of a batch, but on {n} rows it is "
                f"{whole[i].item():.4g}, while the mean over two parts of them is "
                f"{mean[i].item():.4g}: divide a sum by the number of rows in the batch, what "
                "concerns a group by its share of all data, and let layers that mix rows "
                "(BatchNorm) be in eval mode; or give check=False."
            )


def check_repeated(name: str, once: Tensor, again: Tensor) -> None:
    """Recursive momentum compares two points, which must see the same rows."""
    if differ(once.detach(), again):
        raise ValueError(
            f"{name} must be the same when it is called twice at a point with the same random "
            "numbers, since recursive momentum calls it at two points of a step: draw its rows by "
            'torch.randint without a generator of its own, give a loader, or use momentum="polyak".'
        )


def groupings(n: int) -> Iterator[Tensor]:
    """Rows in two parts, by a mask of the first: halves, a third and the rest, every other one."""
    rows = torch.arange(n)
    yield rows < n // 2
    yield rows < max(n // 3, 2)
    yield rows % 2 == 0


def differ(a: Tensor, b: Tensor, *sizes: Tensor) -> bool:
    """Whether a and b differ by more than rounding, in numbers of such sizes."""
    size = torch.stack([t.abs().nan_to_num() for t in (a, b, *sizes)]).amax()
    return not bool(((a - b).abs() <= torch.finfo(a.dtype).eps ** 0.5 * size).all())
