"""Bounds that no decisions on the rows could meet, found before anything is solved.

Rows that all columns of W treat alike are one cell; a cell is decided for class c in a share q_c of
its rows, which are at least 0 and sum to 1, and has a mean loss l >= 0. All excesses are linear in
q and l, so that whether some decisions meet all bounds is a linear program. It knows the rows'
labels and groups but no features: what it refuses is impossible for any model.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import scipy  # scipy.optimize is imported where it is first used

from mossp._base.printing import short
from mossp._base.types import HostArray
from mossp.rates.bounded import LOSS, OWN, Bounded

ROUNDING = 1e-9  # what sums of shares may be off by
MOST_CELLS = 500


def check_consistent(bounded: Bounded) -> None:
    """Raise ValueError where bounds contradict one another on these rows."""
    effects = _effects(bounded)
    numbers = list(range(len(bounded.bounds)))
    if _reachable(bounded, effects, numbers):
        return
    texts = [f"`{short(bound.text)}`" for bound in bounded.bounds]
    for number in numbers:
        if not _reachable(bounded, effects, [number]):
            raise ValueError(f"{texts[number]} cannot be met by any decisions on these rows.")
    for pair in itertools.combinations(numbers, 2):
        if not _reachable(bounded, effects, pair):
            both = " and ".join(texts[number] for number in pair)
            raise ValueError(f"{both} contradict each other: no decisions on these rows meet both.")
    raise ValueError(
        f"The bounds {', '.join(texts)} contradict one another: no decisions on these rows meet "
        "all of them."
    )


def _effects(bounded: Bounded) -> tuple[HostArray, int, int]:
    """(what each share adds to each mean, number of cells, of classes)."""
    W, kinds = bounded.weights, np.array(bounded.kinds)
    labels = np.zeros(len(W)) if bounded.labels is None else bounded.labels
    # W over the row's own weight is the same for all rows of a cell.
    counted = np.where(bounded.counted > 0, bounded.counted, 1.0)
    scaled = np.where(bounded.counted[:, None] > 0, W / counted[:, None], 0.0)
    marks = np.column_stack([np.sign(scaled), labels])
    _, first, cell = np.unique(marks, axis=0, return_index=True, return_inverse=True)
    cells = len(first)
    sums = np.zeros((cells, len(kinds)))
    np.add.at(sums, cell.ravel(), W / len(W))
    classes = 1 + max([1, *(int(k) for k in kinds), *(int(c) for c in np.unique(labels))])
    effects = np.zeros((len(kinds), cells, classes + 1))  # the last one is the loss
    for k, kind in enumerate(kinds):
        if kind == LOSS:
            effects[k, :, classes] = sums[:, k]
        elif kind == OWN:
            effects[k, np.arange(cells), labels[first].astype(int)] = sums[:, k]
        else:
            effects[k, :, kind] = sums[:, k]
    return effects.reshape(len(kinds), -1), cells, classes


def _reachable(
    bounded: Bounded, effects: tuple[HostArray, int, int], numbers: Sequence[int]
) -> bool:
    """Whether some decisions meet these bounds."""
    table, cells, classes = effects
    chosen = [j for j, row in enumerate(bounded.rows) if row.bound in numbers]
    if cells > MOST_CELLS:
        return True  # perhaps: there are as many groups as would take long to look at
    whole = np.kron(np.eye(cells), np.append(np.ones(classes), 0.0))  # shares of a cell sum to 1
    width = classes + 1
    limits = [(0.0, None if i % width == classes else 1.0) for i in range(cells * width)]
    found = scipy.optimize.linprog(
        np.zeros(cells * width),
        A_ub=bounded.matrix[chosen] @ table,
        b_ub=ROUNDING - bounded.constant[chosen],
        A_eq=whole,
        b_eq=np.ones(cells),
        bounds=limits,
        method="highs",
    )
    return bool(found.status != 2)  # 2: there is no such point
