"""Bounds of rates on given rows, each as one or more linear inequalities of means.

    excess_j = sum_k matrix_jk mean_k + constant_j <= 0,      mean_k = mean_i W_ik d_ik

d_ik is the decision on row i (1 or 0) for the class of column k, or the loss of row i. W has the
rows of column k's group, their weights over the group's share, and zeros elsewhere. An excess is
linear in decisions: with the smooth ones of `mossp.rates.proxies` in their place the same rows are
constraints that have gradients.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from mossp._base.types import HostArray
from mossp.rates.algebra import Bound, Elementary, Rate

# In place of a class: the row's own one; the loss instead of a decision; 1 for every row.
OWN, LOSS, ONE = -1, -2, -3


class Linear(NamedTuple):
    """A rate as a sum of means: factors by column, and a constant."""

    factors: dict[int, float]
    constant: float
    rows: int  # of the set that it is a share of
    grain: float  # what one of them changes, the heaviest


class Ratio(NamedTuple):
    """A precision: the mean of one column over that of another, its group's selection."""

    above: int
    below: int
    rows: int


class Row(NamedTuple):
    """One row excess_j <= 0."""

    bound: int  # its number among the bounds
    sign: float  # of the rate in it: +1 for an upper bound
    signs: tuple[float, ...]  # of each absolute value
    end: float  # the number that the rate is bounded by


@dataclasses.dataclass(frozen=True, eq=False)
class Bounded:
    """Bounds on given rows, as made by `bind`.

    Attributes
    ----------
    bounds : tuple of Bound
        What was asked.
    weights : array of shape (rows, columns)
        W: a constraint's mean over rows is linear in its columns.
    kinds : tuple of int
        Of each column: the class whose decisions are averaged, OWN for each row's own class, LOSS
        for the loss, ONE for 1.
    matrix, constant : arrays of shape (m, columns) and (m,)
        The rows `matrix @ means + constant <= 0`.
    rows : tuple of Row
        Which bound each of them is of.
    parts : dict
        Every rate by name as sums of means.
    """

    bounds: tuple[Bound, ...]
    weights: HostArray
    kinds: tuple[int, ...]
    matrix: HostArray
    constant: HostArray
    rows: tuple[Row, ...]
    parts: dict[Elementary, Linear | Ratio]
    labels: HostArray | None
    counted: HostArray  # weight of each row

    # True values --------------------------------------------------------------------------------

    def means(self, decisions: HostArray | None, losses: HostArray | None = None) -> HostArray:
        """The mean of every column of W, with decisions as numbers of classes."""
        seen = self.seen(decisions, losses)
        return np.array([w @ column for w, column in zip(self.weights.T, seen, strict=True)]) / len(
            self.weights
        )

    def seen(self, decisions: HostArray | None, losses: HostArray | None = None) -> list[HostArray]:
        """For each column of W what it is a mean of, one number a row."""
        columns: list[HostArray] = []
        for kind in self.kinds:
            if kind == LOSS:
                if losses is None:
                    raise ValueError("A bound on a mean loss needs the loss of every row.")
                columns.append(losses)
            elif decisions is None:
                raise ValueError("A bound on a rate needs the decision on every row.")
            elif kind == ONE:
                columns.append(np.ones(len(decisions)))
            else:
                own = decisions == (self.labels if kind == OWN else kind)
                columns.append(own.astype(np.float64))
        return columns

    def value(self, rate: Rate, means: HostArray) -> float:
        """A rate where the columns have these means; NaN for a precision of no rows."""
        found = rate.constant
        for term, factor in rate.terms:
            found += factor * self._elementary(term, means)
        return found + sum(factor * abs(self.value(r, means)) for r, factor in rate.absolutes)

    def _elementary(self, term: Elementary, means: HostArray) -> float:
        part = self.parts[term]
        if isinstance(part, Ratio):
            return float(means[part.above] / means[part.below]) if means[part.below] > 0 else np.nan
        return part.constant + float(sum(f * means[k] for k, f in part.factors.items()))

    def values(
        self, decisions: HostArray | None, losses: HostArray | None = None
    ) -> dict[str, float]:
        """The true rates by the text that asked for them."""
        means = self.means(decisions, losses)
        return {bound.text: self.value(bound.rate, means) for bound in self.bounds}

    def excess(self, decisions: HostArray | None, losses: HostArray | None = None) -> HostArray:
        """By how much each row's rate is beyond its bound, in units of the rate; <= 0 is met.

        For a precision it is that of the ratio, and -inf where nothing was decided for.
        """
        means = self.means(decisions, losses)
        found = self.matrix @ means + self.constant
        for j, ratio in self.ratios.items():
            below = means[ratio.below]
            found[j] = found[j] / below if below > 0 else -np.inf
        return found

    @property
    def ratios(self) -> dict[int, Ratio]:
        """The rows that are about a precision."""
        found = {}
        for j, row in enumerate(self.rows):
            terms = self.bounds[row.bound].rate.terms
            part = self.parts[terms[0][0]] if len(terms) == 1 else None
            if isinstance(part, Ratio):
                found[j] = part
        return found

    def grains(self, decisions: HostArray | None) -> HostArray:
        """What one row of data changes in each row's rate, about: 1 over the rows of its group."""
        found = np.array([grain_of(self.bounds[row.bound].rate, self.parts) for row in self.rows])
        for j, ratio in self.ratios.items():
            found[j] = 1 / max(0 if decisions is None else self.selected(ratio, decisions), 1)
        return found

    def selected(self, ratio: Ratio, decisions: HostArray) -> int:
        """How many rows of a precision's group are decided for its class."""
        decided = decisions == self.kinds[ratio.below]
        return int(((self.weights[:, ratio.below] > 0) & decided).sum())


def grain_of(rate: Rate, parts: dict[Elementary, Linear | Ratio]) -> float:
    """What one row changes in a rate, the most; a precision's rows are not known before."""
    found = [0.0]
    for inner, outer in [(rate, 1.0), *rate.absolutes]:
        for term, factor in inner.terms:
            part = parts[term]
            found.append(abs(outer * factor) * part.grain if isinstance(part, Linear) else 0.0)
    return max(found)
