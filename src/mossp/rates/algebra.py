"""Rates as values: sums, multiples and absolute values of them, and bounds on these.

With d_i = 1 where row i is decided for the class in question, y_i = 1 where it is of that class and
means over the rows of a group:

    selection    mean d                          precision    mean y d / mean d
    tpr, fnr     mean d where y = 1, 1 - tpr     accuracy     mean of d = y
    fpr, tnr     mean d where y = 0, 1 - fpr     mean loss    mean of the loss, of no decision
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import NamedTuple, NoReturn

import numpy as np

from mossp._base.printing import quoted, short, shown

NAMES = ("selection", "tpr", "fpr", "tnr", "fnr", "precision", "accuracy", "mean loss")
PLAIN = re.compile(r"[\w.+-]+")  # what needs no quotes in a condition
MOST_ABSOLUTES = 4  # in one bound: each doubles the number of smooth ones it is made of


class Condition(NamedTuple):
    """One part of [...]: a column has a value. Without a column, the value is that of a class."""

    column: str | None
    value: str

    def __str__(self) -> str:
        value = spelled(self.value)
        return value if self.column is None else f"{spelled(self.column)}={value}"


class Elementary(NamedTuple):
    """One rate by name, over the rows that meet the conditions."""

    name: str
    conditions: tuple[Condition, ...] = ()

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.conditions))
        return f"{self.name}[{inside}]" if inside else self.name


@dataclasses.dataclass(frozen=True, eq=False)
class Rate:
    """A rate, or a sum of multiples of rates and of absolute values: what can be bounded.

    `rate <= 0.05`, `rate >= 0.8` and `rate == 0.5` make a `Bound`; so do comparisons of two rates.

    Examples
    --------
    >>> from mossp import rates
    >>> gap = rates.selection(sex="F") - rates.selection(sex="M")
    >>> print(abs(gap) <= 0.02)
    |selection[sex=F] - selection[sex=M]| <= 0.02
    """

    terms: tuple[tuple[Elementary, float], ...] = ()
    constant: float = 0.0
    absolutes: tuple[tuple[Rate, float], ...] = ()

    # Arithmetic ---------------------------------------------------------------------------------

    def __add__(self, other: Rate | float) -> Rate:
        if (other := rate_of(other)) is NotImplemented:
            return NotImplemented
        terms = dict(self.terms)
        for term, factor in other.terms:
            terms[term] = terms.get(term, 0.0) + factor
        return Rate(
            tuple((term, factor) for term, factor in terms.items() if factor != 0),
            self.constant + other.constant,
            self.absolutes + other.absolutes,
        )

    def __mul__(self, factor: float) -> Rate:
        if isinstance(factor, Rate):
            raise TypeError(
                f"`{self}` times `{factor}` is a product of rates, and only multiples by a number "
                "can be bounded."
            )
        if not is_number(factor):
            return NotImplemented
        factor = float(factor)
        if factor == 0:
            return Rate()
        return Rate(
            tuple((term, factor * own) for term, own in self.terms),
            factor * self.constant,
            tuple((inner, factor * own) for inner, own in self.absolutes),
        )

    def __truediv__(self, divisor: float) -> Rate:
        if isinstance(divisor, Rate):
            raise TypeError(
                f"`{self}` over `{divisor}` is a ratio of rates: bound a difference instead, "
                "as in tpr[sex=F] - 0.8 * tpr[sex=M] >= 0."
            )
        return self * (1 / divisor) if is_number(divisor) and divisor != 0 else NotImplemented

    def __abs__(self) -> Rate:
        if self.absolutes:
            raise TypeError(f"`{self}` has an absolute value inside another one: write it flat.")
        return Rate(absolutes=((self, 1.0),))

    def __neg__(self) -> Rate:
        return self * -1.0

    def __sub__(self, other: Rate | float) -> Rate:
        other = rate_of(other)
        return NotImplemented if other is NotImplemented else self + -other

    def __rsub__(self, other: float) -> Rate:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    # Relations ----------------------------------------------------------------------------------

    def __le__(self, other: Rate | float) -> Bound:
        return related(self, "<=", other)

    def __ge__(self, other: Rate | float) -> Bound:
        return related(self, ">=", other)

    def __eq__(self, other: object) -> Bound:  # type: ignore[override]
        return related(self, "=", other)

    def __ne__(self, other: object) -> NoReturn:
        raise TypeError("`!=` is no constraint: use ==, <= or >=.")

    def __lt__(self, other: object) -> NoReturn:
        raise TypeError("`<` is strict, which no method can promise: use <=.")

    def __gt__(self, other: object) -> NoReturn:
        raise TypeError("`>` is strict, which no method can promise: use >=.")

    __hash__ = object.__hash__

    # What it is ---------------------------------------------------------------------------------

    @property
    def is_number(self) -> bool:
        return not self.terms and not self.absolutes

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value that rates between 0 and 1, and losses >= 0, allow."""
        low = high = self.constant
        for term, factor in self.terms:
            ends = (0.0, factor * (math.inf if term.name == "mean loss" else 1.0))
            low, high = low + min(ends), high + max(ends)
        for inner, factor in self.absolutes:
            a, b = inner.range
            nearest = 0.0 if a <= 0 <= b else min(abs(a), abs(b))
            ends = (factor * nearest, factor * max(abs(a), abs(b)))
            low, high = low + min(ends), high + max(ends)
        return low, high

    def __str__(self) -> str:
        parts = [(str(term), factor) for term, factor in self.terms]
        parts += [(f"|{inner}|", factor) for inner, factor in self.absolutes]
        if self.constant != 0 or not parts:
            parts.append(("", self.constant))
        text = ""
        for name, factor in parts:
            size = abs(factor)
            multiple = number_text(size) if not name else name if size == 1 else None
            shown = f"{number_text(size)} * {name}" if multiple is None else multiple
            sign = "-" if factor < 0 else "+"
            text += f" {sign} {shown}" if text else f"{'-' * (factor < 0)}{shown}"
        return text

    __repr__ = __str__


@dataclasses.dataclass(frozen=True)
class Bound:
    """lower <= rate <= upper; equal ends are an equality, which is meant up to one row.

    Attributes
    ----------
    rate : Rate
        What is bounded.
    lower, upper : float or None
        At least one of them.
    text : str
        As it was written, or as it would be.

    Examples
    --------
    >>> from mossp import rates
    >>> bound = rates.tpr(sex="F") >= 0.8
    >>> bound.lower, bound.upper, bound.text
    (0.8, None, 'tpr[sex=F] >= 0.8')
    """

    rate: Rate = dataclasses.field(compare=False)
    lower: float | None = None
    upper: float | None = None
    text: str = dataclasses.field(default="", compare=False)
    meaning: str = dataclasses.field(init=False, repr=False)  # what is compared

    def __post_init__(self) -> None:
        object.__setattr__(self, "meaning", str(self.rate))
        if not self.text:
            object.__setattr__(self, "text", str(self))
        self._check()

    def _check(self) -> None:
        what = f"`{short(self.rate)}`"
        if self.rate.is_number:
            raise ValueError(f"No rate is in `{short(self.text)}`: it constrains nothing.")
        low, high = self.rate.range
        for end in (self.lower, self.upper):
            if end is None or low <= end <= high:
                continue
            if not math.isfinite(end):
                raise ValueError(f"The bound of {what} must be a finite number, but it is {end}.")
            within = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
            percent = f": for {end:g} % write {end / 100:g}" if 1 < end <= 100 else ""
            raise ValueError(f"{what} lies {within}, but its bound is {end:g}{percent}.")
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ValueError(
                f"{what} cannot be at least {self.lower:g} and at most {self.upper:g} at once."
            )
        alone = len(self.rate.terms) == 1 and not self.rate.absolutes
        names = [t.name for r in self.rates for t, _ in r.terms]
        if "precision" in names and not (
            alone and self.rate.terms[0][1] == 1 and self.rate.constant == 0
        ):
            raise ValueError(
                f"`precision` stands with others in `{short(self.text)}`, but it is a ratio and "
                "can only be bounded alone, by a number, as in precision >= 0.9."
            )
        factors = [factor for _, factor in self.rate.absolutes]
        above = self.lower is None or all(factor < 0 for factor in factors)
        below = self.upper is None or all(factor > 0 for factor in factors)
        if factors and not (above and below):
            raise ValueError(
                f"`{short(self.text)}` asks for an absolute value to be large, which is not one "
                "smooth constraint: bound the difference itself, from the side you mean."
            )
        if len(factors) > MOST_ABSOLUTES:
            raise ValueError(
                f"`{short(self.text)}` has {len(factors)} absolute values, of {MOST_ABSOLUTES} at "
                "most: give several bounds."
            )

    @property
    def rates(self) -> list[Rate]:
        """The rate, and those inside of its absolute values."""
        return [self.rate, *(inner for inner, _ in self.rate.absolutes)]

    @property
    def elementary(self) -> list[Elementary]:
        """The rates by name that it speaks of, each once."""
        return list(dict.fromkeys(term for rate in self.rates for term, _ in rate.terms))

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "A bound of rates is neither true nor false. For a <= rate <= b give two bounds, or "
            'text, "0.2 <= selection <= 0.4".'
        )

    def __str__(self) -> str:
        lower, upper = (None if e is None else number_text(e) for e in (self.lower, self.upper))
        if lower is None:
            return f"{self.rate} <= {upper}"
        if upper is None:
            return f"{self.rate} >= {lower}"
        if self.lower == self.upper:
            return f"{self.rate} = {upper}"
        return f"{lower} <= {self.rate} <= {upper}"


def related(left: Rate, sign: str, right: object, text: str = "") -> Bound:
    """The bound that a relation states: rates to the left, a number to the right."""
    other = rate_of(right)
    if other is NotImplemented:
        raise TypeError(
            f"A rate is compared with a number or another rate, but {shown(right)} was given."
        )
    if left.is_number and not other.is_number:
        flipped = {"<=": ">=", ">=": "<=", "=": "="}[sign]
        return related(other, flipped, left, text)
    if not other.is_number:
        left = left - other
        other = Rate(constant=-left.constant)
        left = dataclasses.replace(left, constant=0.0)
    end = other.constant
    lower = end if sign in (">=", "=") else None
    upper = end if sign in ("<=", "=") else None
    return Bound(left, lower, upper, text)


def rate_of(value: object) -> Rate:
    """A number as a rate that is constant; NotImplemented for anything else."""
    if isinstance(value, Rate):
        return value
    return Rate(constant=float(value)) if is_number(value) else NotImplemented  # type: ignore[arg-type]


def is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def number_text(value: float) -> str:
    """A number as it is read again: the shortest text that gives it back."""
    whole = abs(value) < 1e15 and value == int(value)
    return str(int(value)) if whole else repr(float(value))


def spelled(name: str) -> str:
    """A column or a value as it is written in a text."""
    return name if PLAIN.fullmatch(name) else quoted(name, longest=max(len(name), 1))


def value_text(value: object) -> str:
    """A value of a column as text, by which it is found again."""
    value = value.item() if isinstance(value, np.generic) else value
    if is_number(value):
        return number_text(value)  # type: ignore[arg-type]
    return str(value)
