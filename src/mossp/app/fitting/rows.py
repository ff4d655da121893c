"""The rows of a table: what the target holds, and which rows are kept for a test."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import train_test_split

from mossp import losses
from mossp._base import naming
from mossp._base.printing import counted, quoted, short
from mossp.app import tables
from mossp.app.features import Features
from mossp.app.fitting.request import Request
from mossp.app.tables import Table, TableError
from mossp.sklearn.promises import bounds_of

PU, PARTIAL_AUC = OBJECTIVES = ("pu", "partial-auc")
CLASSIFICATION = ("logistic", "huberized-hinge", "softmax")
FEW_CLASSES = 2  # different numbers that are taken for classes, where no loss says more
NUMBERED = re.compile(r"\bx\s*\[\s*[-:\d]")  # a coefficient by number, in a constraint


class Sample(NamedTuple):
    """Rows with their targets, and the attributes that bounds speak of, by column."""

    X: Any
    y: np.ndarray
    z: np.ndarray | None  # the protected attribute, if there is one
    attributes: dict[str, np.ndarray]
    offset: np.ndarray | None = None

    def at(self, rows: np.ndarray) -> Sample:
        """Some of the rows."""
        z = None if self.z is None else self.z[rows]
        attributes = {name: values[rows] for name, values in self.attributes.items()}
        offset = None if self.offset is None else self.offset[rows]
        return Sample(self.X[rows], self.y[rows], z, attributes, offset)

    @property
    def sensitive(self) -> dict[str, np.ndarray] | None:
        """What `fit` of an estimator is given under this name."""
        return self.attributes or None


def loss_and_kind(request: Request, table: Table, y: np.ndarray) -> tuple[str, bool]:
    """(the loss, whether it is of classes): as asked, or as the target suggests."""
    check_objective(request, y)
    if request.objective is not None:
        return (request.loss or "logistic") if request.objective == PU else PARTIAL_AUC, True
    if request.loss is not None:
        naming.find(request.loss, losses.NAMES, "loss")
        name = request.loss.partition(":")[0].strip()
        return request.loss, name in CLASSIFICATION
    if y.dtype.kind in "Ub" or len(np.unique(y)) <= FEW_CLASSES:
        return "logistic", True
    return "squared", False


def check_objective(request: Request, y: np.ndarray) -> None:
    """Raise ValueError where an objective does not suit the target or the other options."""
    if request.objective is None:
        for option in ("prior", "max_fpr", "min_fpr"):
            if getattr(request, option) is not None:
                kind = PU if option == "prior" else PARTIAL_AUC
                name = option.replace("_", "-")
                raise ValueError(f"--{name} is for --objective {kind}: give that as well.")
        return
    naming.find(request.objective, dict.fromkeys(OBJECTIVES), "objective")
    if len(np.unique(y)) != 2:
        raise ValueError(
            f"--objective {request.objective} needs a target of two classes, but it has "
            f"{len(np.unique(y))}."
        )
    if request.objective == PARTIAL_AUC:
        for option in ("loss", "offset", "rate", "prior"):
            if getattr(request, option) is not None:
                raise ValueError(f"--objective {PARTIAL_AUC} takes no --{option}: leave it out.")
    elif request.max_fpr is not None or request.min_fpr is not None:
        raise ValueError(f"--max-fpr and --min-fpr are for --objective {PARTIAL_AUC}.")
    if request.balanced:
        raise ValueError(f"--objective {request.objective} takes no --balanced: leave it out.")


def as_classes(y: np.ndarray) -> np.ndarray:
    """Whole numbers as such: they are written as 1, not as 1.0."""
    return y.astype(np.int64) if y.dtype.kind == "f" and (y == np.round(y)).all() else y


def as_numbers(y: np.ndarray, request: Request, loss: str) -> np.ndarray:
    if y.dtype.kind in "U":
        raise TableError(
            f"The loss {loss} needs numbers, but the target {quoted(request.target)} holds text "
            f"such as {quoted(y.tolist()[0])}: use --loss logistic."
        )
    numbers = y.astype(float)
    losses.named(loss).check((np.zeros((len(numbers), 1)), numbers))  # rows of the test as well
    return numbers


def warn_of_numbers(request: Request, table: Table) -> None:
    """Columns that no row has are no features, and x[3] counts features."""
    width = 0 if table.X is None else table.X.shape[1]
    numbered = any(NUMBERED.search(text) for text in (*request.equalities, *request.inequalities))
    if numbered and width > len(table.columns):
        warnings.warn(
            f"{width - len(table.columns)} of the {width} columns of {table.path} have no value in "
            f"any row and are no features, so that x[0] in a constraint is {table.columns[0]}: "
            "names such as x3 keep their numbers.",
            stacklevel=2,
        )


def sample(request: Request, table: Table, features: Features, y: np.ndarray) -> Sample:
    attributes = attributes_of(request, table)
    z = None if request.sensitive is None else attributes[request.sensitive]
    offset = None if request.offset is None else tables.offset_of(table, request.offset)
    return Sample(features.matrix(table), y, z, attributes, offset)


def attributes_of(request: Request, table: Table) -> dict[str, np.ndarray]:
    """The columns that bounds speak of: a protected attribute, and those of groups."""
    found = {}
    if request.sensitive is not None:
        found[request.sensitive] = tables.target_of(table, request.sensitive)
    for name in named_columns(request):
        found[name] = tables.attribute_of(table, name)
    return found


def usable(request: Request, table: Table) -> tuple[Table, str | None]:
    """(the rows that have what each row needs, a sentence about the others)."""
    without = needed_and_missing(request, table)
    left_out = np.any(list(without.values()), axis=0) if without else np.zeros(table.rows, bool)
    if not left_out.any():
        return table, None
    if left_out.all():
        raise nothing_left(table.path)
    columns = [name for name, missing in without.items() if missing.any()]
    return table.at(~left_out), left_out_note(table.path, int(left_out.sum()), columns)


def needed_and_missing(request: Request, table: Table) -> dict[str, np.ndarray]:
    """By column that each row needs, which rows have no value there.

    Without a target, a group or an offset a row is of no use, whatever is filled in elsewhere.
    """
    if request.missing == "refuse" or table.X is not None:
        return {}
    tables.check_target(table, request.target)
    names = [name for name in (request.target, request.sensitive) if name is not None]
    names += named_columns(request)
    if request.offset is not None:
        names.append(tables.offset_column(table, request.offset)[0])
    if request.missing == "drop":
        unwanted = set(request.excluded)
        names += [name for name in table.columns if name not in unwanted]
    tables.check_known(table, names)
    return {name: tables.missing_in(table, name) for name in dict.fromkeys(names)}


def nothing_left(path: Any) -> TableError:
    return TableError(f"Every row of {path} misses a value that it needs.")


def left_out_note(path: Any, count: int, columns: Sequence[str]) -> str:
    listed = [quoted(name) for name in columns]
    more = f" and {len(listed) - 3} more" * (len(listed) > 3)
    return (
        f"{counted(count, 'row')} of {path} without a value in {', '.join(listed[:3])}{more} were "
        "left out."
    )


def excluded_from(table: Table, request: Request) -> list[str]:
    """Columns that are no features, that of the offset among them."""
    if request.offset is None:
        return request.excluded
    name, _ = tables.offset_column(table, request.offset)
    return [*request.excluded, name]


def named_columns(request: Request) -> list[str]:
    """Columns whose values make the groups of rates."""
    conditions = [c for b in bounds_of(request.rates) for t in b.elementary for c in t.conditions]
    return list(dict.fromkeys(c.column for c in conditions if c.column not in (None, "class")))


def split(
    request: Request, rows: np.ndarray, classes: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to fit to and rows to test with, classes in equal shares."""
    if not 0 <= request.test < 1:
        raise ValueError(
            f"--test must be a share of the rows from 0 to below 1, but {request.test:g} was given."
        )
    if request.test == 0 or request.test_file is not None:
        return rows, rows[:0]
    if len(rows) < 5:
        raise ValueError(f"{len(rows)} rows are too few to keep some for a test: use --test 0.")
    if classes is not None:
        names, counts = np.unique(classes, return_counts=True)
        if counts.min() < 2:
            raise ValueError(
                f"The class {short(names[counts.argmin()])} has one row only, which cannot be both "
                "fitted to and tested with: use --test 0."
            )
    try:
        train, test = train_test_split(
            rows, test_size=request.test, random_state=request.seed, stratify=classes
        )
    except ValueError as error:
        raise ValueError(f"The rows cannot be split: {error} Use --test 0.") from error
    return np.sort(train), np.sort(test)
