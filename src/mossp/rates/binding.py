"""From bounds of rates and rows of data to linear inequalities of means: `Bounded`.

precision >= p      mean over the group of (p - y_i) d_i <= 0
|a - b| <= c        a - b <= c  and  b - a <= c
r = c               c - grain <= r <= c + grain, the grain what one row of the group changes
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mossp._base.printing import short
from mossp._base.types import AnyArray, HostArray
from mossp.rates.algebra import Bound, Elementary, Rate
from mossp.rates.bounded import LOSS, ONE, OWN, Bounded, Linear, Ratio, Row, grain_of
from mossp.rates.consistency import check_consistent
from mossp.rates.groups import Attributes


def bind(
    bounds: Sequence[Bound],
    labels: AnyArray | None,
    classes: Sequence[object] | None,
    weights: AnyArray,
    columns: Mapping[str, AnyArray] | None = None,
    *,
    check: bool = True,
) -> Bounded:
    """The bounds on these rows; what they cannot mean or reach there is a ValueError.

    Parameters
    ----------
    bounds : sequence of Bound
        Of which rates.
    labels : array of shape (rows,) or None
        The number of every row's class; None for a target that is a number.
    classes : sequence or None
        The classes, in the order of their numbers.
    weights : array of shape (rows,)
        Of the rows; one without weight does not count.
    columns : mapping, optional
        The columns that groups are made of, by name.
    check : bool
        Whether bounds that contradict one another are an error, and groups without rows; left out
        for rows that the bounds need not hold on, where such a rate is NaN.

    Examples
    --------
    >>> from mossp import rates
    >>> y, decided = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    >>> bound = bind([rates.fpr() <= 0.4], y, ["no", "yes"], np.ones(4))
    >>> bound.values(decided), np.round(bound.excess(decided), 6).tolist()
    ({'fpr <= 0.4': 0.5}, [0.1])
    """
    w, numbers = np.asarray(weights, np.float64), None if labels is None else np.asarray(labels)
    made = _Columns(Attributes(columns or {}, classes, len(w)), numbers, w, strict=check)
    bounded = _bounded(bounds, made)
    if check:
        check_consistent(bounded)
    return bounded


class Unshared(NamedTuple):
    """Bounds on some rows of many, whose groups' shares are not those of these rows.

    Attributes
    ----------
    bounded : Bounded
        On these rows alone; its columns are the same ones for any rows.
    counted : array of shape (rows, columns)
        W times the share of each column's group.
    members : array of shape (rows, columns)
        The weights of the group's rows, whose mean is its share.
    attributes : set of str
        The columns that groups are made of.
    """

    bounded: Bounded
    counted: HostArray
    members: HostArray
    attributes: set[str]

    def at(self, rows: HostArray) -> Unshared:
        """Some of the rows."""
        labels, counted = self.bounded.labels, self.bounded.counted[rows]
        bounded = dataclasses.replace(
            self.bounded, weights=self.bounded.weights[rows], counted=counted,
            labels=None if labels is None else labels[rows],
        )  # fmt: skip
        return Unshared(bounded, self.counted[rows], self.members[rows], self.attributes)


def unshared(
    bounds: Sequence[Bound], labels: AnyArray | None, classes: Sequence[object] | None,
    weights: AnyArray, columns: Mapping[str, AnyArray] | None = None, *, strict: bool = False,
) -> Unshared:  # fmt: skip
    """`bind` for a part of the rows; with `strict`, every group must have some among them.

    Examples
    --------
    >>> from mossp import rates
    >>> found = unshared([rates.fpr() <= 0.4], np.array([0, 0, 1]), ["no", "yes"], np.ones(3))
    >>> found.counted.ravel().tolist(), float(found.members.mean())
    ([1.0, 1.0, 0.0], 0.6666666666666666)
    """
    w, numbers = np.asarray(weights, np.float64), None if labels is None else np.asarray(labels)
    attributes = Attributes(columns or {}, classes, len(w))
    made = _Columns(attributes, numbers, w, strict=strict, apart=True)
    bounded = _bounded(bounds, made)
    members = np.stack([np.where(c.mask, w, 0.0) for c in made.columns], axis=1)
    signs = [1.0 if c.signs is None else c.signs for c in made.columns]
    counted = np.stack([m * s for m, s in zip(members.T, signs, strict=True)], axis=1)
    return Unshared(bounded, counted, members, set(attributes.numbered))


def _bounded(bounds: Sequence[Bound], made: _Columns) -> Bounded:
    parts = {term: made.part(term) for bound in bounds for term in bound.elementary}
    matrix, constant, rows = [], [], []
    for number, bound in enumerate(bounds):
        grain = grain_of(bound.rate, parts) if bound.lower == bound.upper else 0.0
        for sign, end in ((1.0, bound.upper), (-1.0, bound.lower)):
            if end is None:
                continue
            for signs in itertools.product((1.0, -1.0), repeat=len(bound.rate.absolutes)):
                factors, shift = _flat(bound.rate, signs, sign, parts, end)
                matrix.append([factors.get(k, 0.0) for k in range(len(made.columns))])
                constant.append(shift - sign * end * (not _is_ratio(bound, parts)) - grain)
                rows.append(Row(number, sign, signs, end))
    return Bounded(
        bounds=tuple(bounds),
        weights=made.weights(),
        kinds=tuple(column.kind for column in made.columns),
        matrix=np.reshape(matrix, (len(rows), len(made.columns))),
        constant=np.array(constant),
        rows=tuple(rows),
        parts=parts,
        labels=made.labels,
        counted=made.w,
    )


def _is_ratio(bound: Bound, parts: Mapping[Elementary, Linear | Ratio]) -> bool:
    return any(isinstance(parts[term], Ratio) for term in bound.elementary)


def _flat(
    rate: Rate,
    signs: Sequence[float],
    sign: float,
    parts: Mapping[Elementary, Linear | Ratio],
    end: float,
) -> tuple[dict[int, float], float]:
    """(factors by column, constant) of sign * rate, with these signs in place of |...|."""
    factors: dict[int, float] = {}
    constant = sign * rate.constant
    inner = [(t, sign * f) for t, f in rate.terms]
    for (inside, factor), chosen in zip(rate.absolutes, signs, strict=True):
        inner += [(t, sign * factor * chosen * f) for t, f in inside.terms]
        constant += sign * factor * chosen * inside.constant
    for term, factor in inner:
        part = parts[term]
        if isinstance(part, Ratio):  # above / below <= end, times below
            factors = {part.above: factor, part.below: -factor * end}
            continue
        constant += factor * part.constant
        for column, own in part.factors.items():
            factors[column] = factors.get(column, 0.0) + factor * own
    return factors, constant


class Column(NamedTuple):
    """One column of W: its rows, and the class whose decisions are averaged."""

    mask: HostArray
    kind: int  # a class, OWN or LOSS
    signs: HostArray | None = None  # of the rows, where not all count alike


class _Columns:
    """The columns of W that rates by name need, each once; or, `apart`, as many for any rows."""

    def __init__(
        self, attributes: Attributes, labels: HostArray | None, weights: HostArray, strict: bool,
        apart: bool = False,
    ) -> None:  # fmt: skip
        self.attributes, self.labels, self.w, self.strict = attributes, labels, weights, strict
        self.apart = apart
        self.columns: list[Column] = []
        self.known: dict[tuple[bytes, int, bytes], int] = {}
        self.classes = 0 if attributes.classes is None else len(attributes.classes)

    def part(self, term: Elementary) -> Linear | Ratio:
        if term.name != "mean loss" and self.labels is None:
            raise ValueError(
                f"`{short(term)}` is about decisions, but the target is a number: a regressor "
                'takes bounds such as "mean loss[sex=F] <= 0.4".'
            )
        try:
            mask, chosen = self.attributes.chosen(term)
        except ValueError:
            if self.strict:
                raise
            mask, chosen = np.zeros(len(self.w), bool), None  # NaN
        mask = mask & (self.w > 0)
        if not mask.any():
            self.missing(term, "no row with a weight has all of this")
        if term.name == "mean loss":
            if chosen is not None:
                mask = mask & (self.labels == chosen)
                if not mask.any():
                    self.missing(term, "none of its rows is of that class")
            return self.linear({self.column(mask, LOSS): 1.0}, 0.0, mask)
        return self.decided(term, mask, chosen)

    def decided(self, term: Elementary, mask: HostArray, chosen: int | None) -> Linear | Ratio:
        """A rate of decisions, over a group."""
        assert self.labels is not None
        if chosen is None:
            if term.name == "accuracy":
                return self.linear({self.column(mask, OWN): 1.0}, 0.0, mask)
            if self.classes > 2 and self.strict:
                some = self.attributes.classes or []
                raise ValueError(
                    f"`{short(term)}` is of one class against the rest, and there are "
                    f"{self.classes}: name it, as in {term.name}[{some[-1]}]."
                )
            chosen = 1
        own = self.labels == chosen
        match term.name:
            case "selection":
                return self.linear({self.column(mask, chosen): 1.0}, 0.0, mask)
            case "precision":
                above = self.column(mask, chosen, own.astype(float))
                return Ratio(above, self.column(mask, chosen), int(mask.sum()))
            case "accuracy" if self.classes > 2:  # mean of (2y - 1) d + (1 - y)
                signs = np.where(own, 1.0, -1.0)
                if self.apart:  # the mean of 1 - y is not that of these rows
                    rest = self.column(mask, ONE, (~own).astype(float))
                    factors = {self.column(mask, chosen, signs): 1.0, rest: 1.0}
                    return self.linear(factors, 0.0, mask)
                others = float(self.w[mask & ~own].sum() / self.w[mask].sum())
                return self.linear({self.column(mask, chosen, signs): 1.0}, others, mask)
            case "accuracy":
                return self.linear({self.column(mask, OWN): 1.0}, 0.0, mask)
            case "tpr" | "fnr":
                over = mask & own
            case _:
                over = mask & ~own
        if not over.any():
            which = "is" if term.name in ("tpr", "fnr") else "is not"
            named = (self.attributes.classes or [])[chosen]
            self.missing(term, f"no row of its group {which} of the class {short(named)}")
        column = self.column(over, chosen)
        if term.name in ("fnr", "tnr"):
            return self.linear({column: -1.0}, 1.0, over)
        return self.linear({column: 1.0}, 0.0, over)

    def missing(self, term: Elementary, why: str) -> None:
        if self.strict:
            raise ValueError(f"`{short(term)}` has no rows: {why}.")

    def column(self, mask: HostArray, kind: int, signs: HostArray | None = None) -> int:
        """The number of a column of W, a new one if it is not there yet."""
        key = (np.packbits(mask).tobytes(), kind, b"" if signs is None else signs.tobytes())
        if self.apart:
            key = (b"", len(self.columns), b"")
        if key not in self.known:
            self.known[key] = len(self.columns)
            self.columns.append(Column(mask, kind, signs))
        return self.known[key]

    def linear(self, factors: dict[int, float], constant: float, mask: HostArray) -> Linear:
        total = float(self.w[mask].sum())
        grain = float(self.w[mask].max()) / total if total > 0 else 0.0
        if any(self.columns[k].kind == LOSS for k in factors):
            grain = 0.0  # a loss has no steps
        return Linear(factors, constant, int(mask.sum()), grain)

    def weights(self) -> HostArray:
        found = np.zeros((len(self.w), len(self.columns)))
        for k, (mask, _, signs) in enumerate(self.columns):
            w = np.where(mask, self.w, 0.0)
            total = w.sum()
            share = len(w) / total if total > 0 else np.nan  # a group without rows has no rate
            found[:, k] = share * (w if signs is None else w * signs)
        return found
