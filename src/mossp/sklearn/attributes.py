"""Columns that groups of rows are made of: protected attributes, and columns of X by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mossp._base.printing import short, shown
from mossp.rates.groups import UNNAMED


def attributes_of(sensitive: Any, rows: int) -> dict[str, np.ndarray] | None:
    """What was given as `sensitive`, as columns by name.

    Parameters
    ----------
    sensitive : array, data frame, named series, mapping of columns, or None
        An array and a series without a name become the column "sensitive"; an array of two axes
        has no names and is refused.
    rows : int
        How many values each must have.

    Examples
    --------
    >>> attributes_of({"sex": ["F", "M"]}, 2)["sex"].tolist()
    ['F', 'M']
    """
    if sensitive is None:
        return None
    if isinstance(sensitive, Mapping):
        columns = dict(sensitive)
    elif hasattr(sensitive, "columns") and hasattr(sensitive, "shape"):  # of pandas or polars
        columns = {name: sensitive[name] for name in list(sensitive.columns)}
    else:
        name = getattr(sensitive, "name", None)
        columns = {name if isinstance(name, str) and name else UNNAMED: sensitive}
    found = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise TypeError(
                f"The columns of sensitive need names that are text, but {shown(name)} is one."
            )
        found[name] = np.asarray(values)
        if found[name].shape != (rows,):
            which = "" if list(columns) == [UNNAMED] else f" in its column {short(name)}"
            whole = isinstance(sensitive, Mapping)
            advice = " Folds of GridSearchCV do not cut a dict: give a data frame." * whole
            raise ValueError(
                f"sensitive must have one value for each of the {rows} rows{which}, but its shape "
                f"is {found[name].shape}.{advice}"
            )
    return found


def only_attribute(attributes: Mapping[str, np.ndarray] | None) -> np.ndarray | None:
    """The protected attribute, for a bound that knows of one only."""
    if attributes is None or len(attributes) == 1:
        return None if attributes is None else next(iter(attributes.values()))
    raise ValueError(
        f"sensitive has {len(attributes)} columns, but a bound of mossp.fairness is about one: "
        "give that one alone."
    )


class Columns(Mapping[str, Any]):
    """Protected attributes, and after them the columns of X that have other names."""

    def __init__(
        self,
        attributes: Mapping[str, np.ndarray] | None,
        X: Any,
        names: Sequence[str] | None,
    ) -> None:
        self.attributes, self.X = attributes or {}, X
        places = {} if names is None else {str(name): k for k, name in enumerate(names)}
        self.places = {name: k for name, k in places.items() if name not in self.attributes}

    def __getitem__(self, name: str) -> Any:
        if name in self.attributes:
            return self.attributes[name]
        return self.X[:, [self.places[name]]]

    def __iter__(self) -> Iterator[str]:
        return iter([*self.attributes, *self.places])

    def __len__(self) -> int:
        return len(self.attributes) + len(self.places)
