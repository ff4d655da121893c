"""How many rows a step takes, where that is left open: "auto", from the data alone.

A step costs some passes over vectors of length n, whatever its mini-batch, and some work for each
entry of its rows. Rows that are stored densely touch all of x, and their work is the larger part:
32 of them are taken. Sparse rows touch a part of x only, which is the part p of their places that
is filled; so many rows b are taken that both are alike,

    ENTRY b p n >= n,

and no more, since a pass over the data should be many steps. It is a model and not a measurement:
the same problem gets the same batches on every machine, whatever else runs there, so that a run can
be repeated and a checkpoint goes on. Of samples without end a small budget makes smaller batches:
estimates that are averaged over steps lose little by them, and a few steps get nowhere.
"""

from __future__ import annotations

from typing import Any

from mossp._base.printing import shown
from mossp._base.validation import is_choice, whole
from mossp.problem import Problem

USUAL = 32
# An entry of a row costs as much as so many coordinates in a step's passes: measured, 5 for mossp-p
# and 1 for sqp-dc.
ENTRY = 2.0
SHORT = 4096  # vectors of this length cost no more than what a step costs in any case
FEWEST_A_PASS = 32  # steps in one pass over the data
FEWEST_STEPS, FEWEST_ROWS = 256, 4  # of a budget in gradients, and of a mini-batch for that


def balanced(n: int, rows: int, filled: float) -> int:
    """The rows of a mini-batch: 32, doubled until their work is that of vectors of length n.

    Parameters
    ----------
    n : int
        The length of x.
    rows : int
        In all of the data.
    filled : float
        The part of the places in a row that holds an entry; 1 for dense rows.

    Examples
    --------
    >>> balanced(1_000_000, 10_000, 1.0), balanced(10_000, 10_000, 0.002)
    (32, 256)
    """
    size = USUAL
    if n <= SHORT:
        return size
    while ENTRY * size * filled < 1 and 2 * size * FEWEST_A_PASS <= rows:
        size *= 2
    return size


def affordable(budget: int) -> int:
    """The samples of a mini-batch that leave a budget of them some steps.

    Examples
    --------
    >>> affordable(100_000), affordable(3000), affordable(100)
    (32, 8, 4)
    """
    size = USUAL
    while size > FEWEST_ROWS and budget < FEWEST_STEPS * size:
        size //= 2
    return size


def checked_batch_size(
    problem: Problem, given: Any, n: int, gradients: Any = None
) -> tuple[int, str]:
    """(samples in a mini-batch, what was chosen where that is not the usual number)."""
    automatic = is_choice(given, (None, "auto"))
    if isinstance(given, str) and not automatic:
        raise TypeError(
            f"batch_size must be a whole number or 'auto', but {shown(given)} was given."
        )
    size = None if automatic else whole("batch_size", given, 1)
    source = problem.source()
    fixed = source.rows_per_batch
    if fixed is not None:
        if size not in (None, fixed):
            raise ValueError(
                f"The stream's batches have {fixed} rows, but batch_size = {size} was given: leave "
                "batch_size out."
            )
        return fixed, ""
    if problem.deterministic:
        return 1, ""
    if size is None and source.rows is not None:
        size = balanced(n, source.rows, source.filled_part)
    elif size is None:
        size = USUAL if gradients is None else affordable(whole("gradients", gradients, 1))
    chosen = f"batches of {size} rows" if automatic and size != USUAL else ""
    return min(size, problem.samples or size), chosen
