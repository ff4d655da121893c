"""A loader that is gone through again and again, and the place in it, which can be saved."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree


class Place(NamedTuple):
    """After so many batches of an epoch, which began with these random numbers."""

    epoch: int = 0
    taken: int = 0
    began: dict[str, Any] | None = None


class Batches:
    """The mini-batches of a loader, one epoch after another.

    A batch is `ahead` until `advance` says that a step has used it, so that a step which fails sees
    it again. The order of an epoch follows from the random numbers at its beginning: those of the
    loader's own generator, or torch's.
    """

    def __init__(self, name: str, loader: Iterable[Any]) -> None:
        self.name, self.loader = name, loader
        self._reader = Place()  # after what was read, which includes the batch ahead
        self._iterator: Iterator[Any] | None = None
        self._ahead: list[Any] = []  # one batch, or none

    def ahead(self) -> Any:
        if not self._ahead:
            self._ahead = [self._next()]
        return self._ahead[0]

    def advance(self) -> None:
        self._ahead = []

    def _next(self) -> Any:
        if self._iterator is None:
            self._iterator = self._begun(self._reader.epoch)
        epoch, taken, began = self._reader
        for batch in self._iterator:
            self._reader = Place(epoch, taken + 1, began)
            return batch
        if not taken:
            after = f" in epoch {epoch}: an iterator ends for good, a list or a DataLoader does not"
            raise ValueError(f"The loader of {self.name} has no batches{after if epoch else ''}.")
        self._iterator = self._begun(epoch + 1)
        return self._next()

    def _begun(self, epoch: int) -> Iterator[Any]:
        sampler: Any = getattr(self.loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):  # of a DistributedSampler, whose order depends on it
            sampler.set_epoch(epoch)
        own = [generator.get_state() for generator in generators(self.loader)]
        self._reader = Place(epoch, 0, {"torch": torch.get_rng_state(), "own": own})
        return iter(self.loader)

    # Saving the place -------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {
            **self._reader._replace(taken=self._reader.taken - len(self._ahead))._asdict(),
            "looked": bool(self._ahead),  # a generator may have drawn for it
            "now": [generator.get_state() for generator in generators(self.loader)],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Find the place again, by going through the epoch to it."""
        epoch, taken, began = (state[name] for name in Place._fields)
        self._ahead = []
        if isinstance(self.loader, Iterator):  # which is where it is
            self._reader = Place(epoch, taken, began)
            return
        self._reader, self._iterator = Place(), None
        own = generators(self.loader)
        if len(own) != len(state["now"]):
            raise ValueError(
                f"The loader of {self.name} must have a generator if and only if it had one when "
                "the state was saved: its order is not known otherwise."
            )
        with undisturbed(self.loader):
            if began is not None:
                torch.set_rng_state(began["torch"])
                for generator, numbers in zip(own, began["own"], strict=True):
                    generator.set_state(numbers)
                self._iterator = self._begun(epoch)
            for _ in range(taken):
                self._next()
            if self._reader.epoch != epoch:
                raise ValueError(
                    f"The loader of {self.name} has fewer batches than the {taken} that had been "
                    "taken when the state was saved."
                )
            if state["looked"]:
                self.ahead()
        for generator, numbers in zip(own, state["now"], strict=True):
            generator.set_state(numbers)

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "loader": self.loader, "place": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Batches.__init__(self, state["name"], state["loader"])
        self.load_state_dict(state["place"])


def generators(loader: Any) -> list[torch.Generator]:
    """The generators of a DataLoader, of its sampler and of samplers in that one, each once."""
    found = []
    while loader is not None:
        found.append(getattr(loader, "generator", None))
        loader = getattr(loader, "sampler", None)
    return list(dict.fromkeys(g for g in found if isinstance(g, torch.Generator)))


@contextlib.contextmanager
def undisturbed(loader: Any) -> Iterator[None]:
    """The random numbers to come are afterwards as if the loader had not been looked at."""
    numbers, own = torch.get_rng_state(), generators(loader)
    states = [generator.get_state() for generator in own]
    try:
        yield
    finally:
        torch.set_rng_state(numbers)
        for generator, state in zip(own, states, strict=True):
            generator.set_state(state)


# Rows of a batch ------------------------------------------------------------------------------


def count_rows(batch: Any) -> int | None:
    """The length that the tensors of a batch share; None where they share none."""
    tensors = [t for t in _pytree.tree_leaves(batch) if isinstance(t, torch.Tensor)]
    lengths = {len(t) if t.ndim else None for t in tensors}
    return lengths.pop() if len(lengths) == 1 else None


def only_tensors(batch: Any) -> bool:
    return all(isinstance(leaf, torch.Tensor) for leaf in _pytree.tree_leaves(batch))


def some_rows(batch: Any, which: torch.Tensor) -> Any:
    return _pytree.tree_map(lambda t: t[which.to(t.device)], batch)
