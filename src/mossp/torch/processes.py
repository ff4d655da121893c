"""Training in several processes: what each of them has seen, averaged over all of them."""

from __future__ import annotations

import torch

from mossp.torch.vectors import Tensor, joined, split


def several_processes() -> bool:
    dist = torch.distributed
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def total(t: Tensor) -> Tensor:
    """The sum of t over the processes, the same bits on all of them."""
    if not several_processes():
        return t
    t = t.clone()
    torch.distributed.all_reduce(t)
    return t


def averaged(t: Tensor) -> Tensor:
    """The mean of t over the processes."""
    return total(t) / torch.distributed.get_world_size() if several_processes() else t


def averaged_all(tensors: list[Tensor]) -> list[Tensor]:
    """The mean of every tensor, by one message for all of them."""
    return split(averaged(joined(tensors)), tensors) if several_processes() else tensors
