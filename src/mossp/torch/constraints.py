"""c_E and c_I in a run: values, tracked where a step sees a mini-batch only, and multipliers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from mossp._base.printing import shown
from mossp.torch.expected import Sampled
from mossp.torch.given import Exact, entries_of
from mossp.torch.processes import averaged, averaged_all
from mossp.torch.vectors import (
    Pull,
    Tensor,
    equal_rows,
    gradient,
    joined,
    leaves,
    named_leaves,
    norm,
    random_state,
    set_random_state,
    split,
)

SAVED = "lam", "lam_before", "weights", "u", "q"


class Pulls(NamedTuple):
    """What a step needs: (c_E, c_I) at x, and J(x) q; None where there is no such constraint."""

    c: list[Tensor]
    exact: Pull | None = None
    sampled: Pull | None = None  # on a mini-batch, and therefore with momentum
    before: Pull | None = None  # the same at the point before, with the q of that point


class Constraints:
    """Functions in the order of their values in one vector: those of c_E, then those of c_I.

    With C and B the mini-batches of an Expected, which a step draws by `look`, and alpha and rho
    those of the optimizer ::

        u = c(x; C) + (1 - alpha) (u - c(x_before; C))    "recursive"
        u = (1 - alpha) u + alpha c(x; C)                 "polyak"
        q = lam + rho w u                                 (inequalities: [.]_+)

    A function that is no Expected has u = c(x). u and q belong to the point before until `accept`.
    """

    def __init__(
        self, given: Mapping[str, Any], recursive: bool, dual: float | None, bound: float
    ) -> None:
        self.entries = [entry for kind, it in given.items() for entry in entries_of(kind, it)]
        self.recursive, self.dual, self.bound = recursive, dual, bound
        self.lam: Tensor = None  # the multipliers and the weights w, from the first step on
        self.lam_before: Tensor = None
        self.weights: Tensor = None
        self.u: Tensor = None  # of Expected ones, and their q
        self.q: Tensor = None
        self._old: Tensor = None  # c(x_before; C), c(x; C), and the u and q that come of it
        self._new: Tensor = None
        self._next: tuple[Tensor, Tensor] = None, None
        self._before: Pull | None = None  # J(x_before; B) q_before

    @property
    def sampled(self) -> list[Sampled]:
        return [e.source for e in self.entries if isinstance(e.source, Sampled)]

    @property
    def exact(self) -> list[Exact]:
        return [e.source for e in self.entries if isinstance(e.source, Exact)]

    # A step -----------------------------------------------------------------------------------

    def look(self) -> None:
        """Draw the mini-batches of a step."""
        self._old = self._new = self._before = None
        for source in self.sampled:
            source.look(self.recursive)

    def look_back(self, params: list[Tensor]) -> None:
        """What recursive momentum needs, the parameters being those of the point before."""
        if self.sampled and self.q is not None:
            c, self._old = self._sample()
            self._before = averaged_all(gradient(c, params, self.q))

    def now(self, params: list[Tensor], rho: float, alpha: float) -> Pulls:
        """Values and J q, by backward passes that fire no hooks of DistributedDataParallel."""
        if not self.entries or not params:
            return Pulls([])
        c_B: Tensor = None
        u: Tensor = None
        if self.sampled:
            c_B, self._new = self._sample()
            u = self._tracked(alpha)
        with torch.enable_grad():
            c_exact = [joined(leaves(source.value())) for source in self.exact]
            c_x = joined(c_exact)
        c = self._ordered([part.detach() for part in c_exact], u)
        if self.dual is not None and self.lam is None:
            # 1 for sampled ones: the rows of one mini-batch are as long as it has rows of a group.
            w = equal_rows(self._rows(c_x, params)).split([len(part) for part in c_exact])
            ones = torch.ones_like(u) if self.sampled else None
            self.lam, self.weights = torch.zeros_like(c), self._ordered(list(w), ones)
        q_exact, q_sampled = self._shared_out(self.multiplied(c, rho))
        self._next = u, q_sampled
        return Pulls(
            [c],
            gradient(c_x, params, q_exact) if c_exact else None,
            averaged_all(gradient(c_B, params, q_sampled)) if self.sampled else None,
            self._before,
        )

    def accept(self) -> None:
        """The step is taken: u and q belong to its point, and its mini-batches are used up."""
        self.u, self.q = self._next
        for source in self.sampled:
            source.advance()

    def ascend(self, rho: float, alpha: float) -> None:
        """The update of lam, from c(x+) where it is exact and u(x) where it is tracked.

        u is the mean of some 1 / alpha mini-batches, and therefore counts alpha times: lam would
        otherwise follow its noise, and swing where Polyak momentum lags behind.
        """
        if self.dual is None or self.lam is None:
            return
        moves = (rho * self.weights * self._current()).split(self._sizes)
        new = []
        for e, lam, move in zip(self.entries, self.lam.split(self._sizes), moves, strict=True):
            sampled = isinstance(e.source, Sampled)
            dual = self.dual * (alpha if sampled else 1.0)
            lowest = (1 - dual) * lam if sampled else torch.zeros_like(lam)
            lam = lam + dual * move
            new.append(torch.maximum(lam, lowest) if e.kind == "inequality" else lam)
        self.lam_before, self.lam = self.lam, joined(new).clamp(-self.bound, self.bound)

    def undo(self) -> None:
        """The point is again the one before; the mini-batch that led here is left out."""
        self.lam = self.lam_before
        for source in self.sampled:
            source.advance()

    def _sample(self) -> tuple[Tensor, Tensor]:
        """c(x; B), to be differentiated, and c(x; C), averaged over the processes."""
        with torch.enable_grad():
            on_B = [joined(leaves(source.value())) for source in self.sampled]
            c = joined(on_B)
        on_C = [
            joined(leaves(source.value("values"))) if "values" in source.batches else part.detach()
            for source, part in zip(self.sampled, on_B, strict=True)
        ]
        return c, averaged(joined(on_C))

    def _tracked(self, alpha: float) -> Tensor:
        if self.u is None:
            return self._new
        if self.recursive:
            return (
                self._new if self._old is None else self._new + (1 - alpha) * (self.u - self._old)
            )
        return torch.lerp(self.u, self._new, alpha)

    # One vector -------------------------------------------------------------------------------

    def _ordered(self, exact: list[Tensor], sampled: Tensor) -> Tensor:
        """(c_E, c_I), from the values of each exact function and of all the others."""
        sizes = [source.size for source in self.sampled]
        parts = iter(exact), iter(sampled.split(sizes) if sizes else [])
        c = [next(parts[isinstance(e.source, Sampled)]) for e in self.entries]
        self.lay_out([len(part) for part in c])
        return joined(c)

    def lay_out(self, sizes: list[int]) -> None:
        """How many values every function has."""
        kinds = [e.kind for e in self.entries]
        self._sizes, self._m_E = sizes, sum(sizes[: kinds.count("equality")])

    def _shared_out(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """The entries of q that belong to exact functions, and to the others."""
        parts: tuple[list[Tensor], list[Tensor]] = [], []
        for e, part in zip(self.entries, q.split(self._sizes), strict=True):
            parts[isinstance(e.source, Sampled)].append(part)
        return joined(parts[0]), joined(parts[1])

    def _current(self) -> Tensor:
        """(c_E, c_I) at the current point, as far as it is known.

        u is that of the last step's point; before the first one, of this process's mini-batch.
        """
        u = self.u
        numbers = random_state()
        if any(source.like is None for source in self.sampled):  # no step yet, or none since a load
            self.look()
        if self.sampled and u is None:
            last = [source.value([*source.batches, "loader"][-1]) for source in self.sampled]
            u = joined([leaf for value in last for leaf in leaves(value)])
        set_random_state(numbers)
        return self._ordered([joined(leaves(source.value())) for source in self.exact], u)

    def positive_part(self, c: Tensor) -> Tensor:
        """(c_E, [c_I]_+), and likewise for multipliers, which are nonnegative on c_I."""
        return torch.cat([c[: self._m_E], c[self._m_E :].clamp(min=0.0)])

    def multiplied(self, c: Tensor, rho: float) -> Tensor:
        """The multipliers q."""
        if self.dual is None or self.lam is None:
            return self.positive_part(rho * c)
        return self.positive_part(self.lam + rho * self.weights * c)

    def violation(self) -> float:
        return float(norm(self.positive_part(self._current())))

    def multipliers(self, rho: float) -> dict[str, Any]:
        return self.arranged(self.multiplied(self._current(), rho))

    def arranged(self, vector: Tensor) -> dict[str, Any]:
        """The parts of a vector under the names that the user gave."""
        out: dict[str, Any] = {}
        for (kind, key, source), part in zip(self.entries, vector.split(self._sizes), strict=True):
            like = source.like if isinstance(source, Sampled) else source.value()
            parts = split(part, leaves(like))
            value = dict(zip(like, parts, strict=True)) if isinstance(like, Mapping) else parts[0]
            if key is None:
                out[kind] = value
            else:
                out.setdefault(kind, {})[key] = value
        return out

    # Numbers that are not finite --------------------------------------------------------------

    def named(self) -> list[tuple[str, Tensor]]:
        """What the step has computed, under the names by which the user would find it."""
        exact = [pair for s in self.exact for pair in named_leaves(s.name, s.value())]
        return exact + self._named(self._new, "") + self._named(self._old, " at the point before")

    def _named(self, values: Tensor, where: str) -> list[tuple[str, Tensor]]:
        if values is None:
            return []
        pairs = [pair for s in self.sampled for pair in named_leaves(s.name, s.like)]
        parts = split(values, [leaf for _, leaf in pairs])
        return [(name + where, part) for (name, _), part in zip(pairs, parts, strict=True)]

    def named_rows(self, params: list[Tensor]) -> Iterator[tuple[str, Pull]]:
        """The gradient of every constraint."""
        for _, _, source in self.entries:
            with torch.enable_grad():
                named = named_leaves(source.name, source.value())
                flat = [(name, leaf.shape, leaf.reshape(-1)) for name, leaf in named]
            for name, shape, c in flat:  # one by one: 0 times an infinite gradient is NaN
                places = itertools.product(*map(range, shape))
                for at, row in zip(places, self._rows(c, params), strict=True):
                    seen = averaged_all(row) if isinstance(source, Sampled) else row
                    yield f"{name}{list(at) or ''}", seen

    def _rows(self, c: Tensor, params: list[Tensor]) -> Iterator[Pull]:
        for e in torch.eye(len(c)).to(c):
            yield gradient(c, params, e, retain_graph=True)

    # The state --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        loaders = {
            source.name: {which: it.state_dict() for which, it in source.batches.items()}
            for source in self.sampled
        }
        return {**{name: getattr(self, name) for name in SAVED}, "loaders": loaders}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        loaders = state.get("loaders", {})
        here = {source.name: sorted(source.batches) for source in self.sampled}
        if here != {name: sorted(places) for name, places in loaders.items()}:
            raise ValueError(
                f"This is the state of a run in which {shown(sorted(loaders))} were Expected, each "
                f"with its loaders, but here these are {shown(sorted(here))}."
            )
        for name in SAVED:  # states of 0.1.0 have no lam before, nor u and q
            value = state.get(name, state["lam"] if name == "lam_before" else None)
            setattr(self, name, None if value is None else value.clone())
        for source in self.sampled:
            for which, batches in source.batches.items():
                batches.load_state_dict(loaders[source.name][which])
