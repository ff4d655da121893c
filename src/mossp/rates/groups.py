"""Which rows a rate is over: columns, values and classes found by the text that names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mossp._base import naming
from mossp._base.printing import short
from mossp._base.types import AnyArray, HostArray
from mossp.rates.algebra import Condition, Elementary, value_text

UNNAMED = "sensitive"  # the column of an attribute that came without a name
MOST_LISTED = 8  # values in a message


class Chosen(NamedTuple):
    """The rows of a group, and the class in question, if one was named."""

    mask: HostArray
    class_number: int | None


class Attributes:
    """Columns by name, from which groups are made, and the classes of the target.

    Parameters
    ----------
    columns : mapping
        From the name of a column to its values, one a row.
    classes : array, optional
        Of a classifier, sorted.
    rows : int
        How many rows there are.
    """

    def __init__(
        self, columns: Mapping[str, AnyArray], classes: Sequence[object] | None, rows: int
    ) -> None:
        self.columns, self.rows = columns, rows
        self.classes = None if classes is None else [value_text(c) for c in classes]
        self.numbered: dict[str, tuple[list[str], HostArray]] = {}  # values and their numbers
        self.named_so: str | None = None  # what the rates call the attribute without a name

    def chosen(self, rate: Elementary) -> Chosen:
        """The rows that meet the conditions of a rate; ValueError where one means nothing."""
        mask, class_number = np.ones(self.rows, bool), None
        for condition in rate.conditions:
            column, value = self.meant(rate, condition)
            if column == "class":
                if class_number is not None:
                    raise ValueError(f"`{short(rate)}` names two classes: give two bounds.")
                class_number = self.class_number(rate, value)
            else:
                mask &= self.has(rate, column, value)
        return Chosen(mask, class_number)

    def meant(self, rate: Elementary, condition: Condition) -> tuple[str, str]:
        """(column, value): a value alone is a class, or a value of the attribute without a name."""
        column, value = condition
        if column is not None:
            return column, value
        is_class = self.classes is not None and position(value, self.classes) is not None
        known = self.values(UNNAMED)[0] if UNNAMED in self.columns else []
        is_value = position(value, known) is not None
        if is_class and is_value:
            raise ValueError(
                f"`{short(value)}` in `{short(rate)}` is both a class and a value of {UNNAMED}: "
                f"write class={value} or {UNNAMED}={value}."
            )
        if is_value or (self.classes is None and known):
            return UNNAMED, value
        if self.classes is None:
            raise ValueError(
                f"`{short(rate)}` names the class `{short(value)}`, but the target is a number: "
                "name a column and its value, as in mean loss[sex=F]."
            )
        return "class", value

    def class_number(self, rate: Elementary, value: str) -> int:
        if self.classes is None:
            raise ValueError(f"`{short(rate)}` names a class, but the target is a number.")
        found = position(value, self.classes)
        if found is None:
            raise ValueError(
                f"`{short(rate)}` names the class `{short(value)}`, but {hint(value, self.classes)}"
            )
        return found

    def has(self, rate: Elementary, column: str, value: str) -> HostArray:
        """Whether a row has the value."""
        known_values, numbers = self.values(self.placed(rate, column))
        found = position(value, known_values)
        if found is None:
            raise ValueError(
                f"`{short(rate)}` asks for {short(column)}={short(value)}, but "
                f"{hint(value, known_values)}"
            )
        return numbers == found

    def placed(self, rate: Elementary, column: str) -> str:
        """The column that a name means: an attribute without a name has the one nothing else has.

        Examples
        --------
        >>> from mossp.rates import tpr
        >>> groups = Attributes({"sensitive": np.array(["F", "M"])}, None, 2)
        >>> groups.placed(tpr(sex="F").terms[0][0], "sex")
        'sensitive'
        """
        if column in self.columns:
            return column
        near = naming.closest(column, list(self.columns)[:5000])
        if near is None and UNNAMED in self.columns:
            if self.named_so in (None, column):
                self.named_so = column
                return UNNAMED
            known = (
                f"sensitive is one array without a name, which `{short(self.named_so)}` stands "
                "for. Give a data frame, or a dict of columns."
            )
        elif near is None and self.columns:
            some = [short(c) for c in list(self.columns)[:MOST_LISTED]]
            known = f"there {'is' if len(some) == 1 else 'are'} {', '.join(some)}."
        elif near is None:
            known = "there are none: give fit(..., sensitive=...)."
        else:
            known = f"did you mean `{short(near)}`?"
        raise ValueError(
            f"`{short(rate)}` names the column `{short(column)}`, which is not there: {known}"
        )

    def values(self, column: str) -> tuple[list[str], HostArray]:
        """The values of a column as text, and for every row the number of its own."""
        if column not in self.numbered:
            given = self.columns[column]
            given = given.toarray() if hasattr(given, "toarray") else given
            array = np.ravel(np.asarray(given))
            if len(array) != self.rows:
                raise ValueError(
                    f"The column `{short(column)}` must have one value for each of the "
                    f"{self.rows} rows, but it has {len(array)}."
                )
            if array.dtype.kind not in "biufU":
                array = np.array([value_text(value) for value in array.tolist()])
            values, numbers = np.unique(array, return_inverse=True)
            self.numbered[column] = [value_text(v) for v in values.tolist()], numbers.ravel()
        return self.numbered[column]


def position(value: str, known: Sequence[str]) -> int | None:
    """Where a value stands among the known ones: as text, else as a number, 1.0 for 1."""
    if value in known:
        return known.index(value)
    try:
        number = float(value)
        return [float(k) if k not in ("True", "False") else None for k in known].index(number)
    except ValueError:
        lowered = [k.lower() for k in known if k in ("True", "False")]
        return lowered.index(value) if value in lowered and len(lowered) == len(known) else None


def hint(value: str, known: Sequence[str]) -> str:
    """The values that there are, or the one that was perhaps meant."""
    some_known = list(known)[:5000]
    alike = [k for k in some_known if k.lower() == value.lower()]
    near = alike[0] if alike else naming.closest(value, some_known)
    some = ", ".join(short(k) for k in known[:MOST_LISTED])
    more = ", ..." if len(known) > MOST_LISTED else ""
    meant = f": did you mean `{short(near)}`?" if near else "."
    return f"there are {some}{more}{meant}"
