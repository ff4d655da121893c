"""Rates of a stream: what partial_fit does about bounds on them.

What is promised on all training rows cannot be where these never end. The steps of the run have the
bounds as expected constraints on each batch, smooth and moved as `mossp.rates.running` says, and
what is reported are running estimates of the true rates, each row judged before it is learnt from.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mossp._base.printing import short
from mossp.expected import Expected
from mossp.rates.binding import Unshared, unshared
from mossp.rates.proxies import Proxies
from mossp.rates.running import Running, StreamedProxies
from mossp.sklearn.formulation import Parameters
from mossp.sklearn.promises import bounds_of, decisions_of, losses_of, scores_of, spread_of
from mossp.sklearn.rows import Rows

# Of the smooth step, in units of the margins' standard deviation: wider than that of `fit`, so that
# the few rows of a batch have slopes.
WIDTH = 0.5
BATCH = 128  # rows a step, where that is left open: values of rates need more than slopes do
JUDGED = 4  # batches at a time that are judged, and then learnt from


def begun(params: Parameters, rows: Rows) -> Running:
    """Before the first step; ValueError for bounds that say nothing about such rows."""
    if params["rates_margin"] is not None:
        raise ValueError(
            "rates_margin is a promise about all training rows, and partial_fit sees some: leave "
            "it out, or use fit."
        )
    check_apart(params)
    try:
        found = on_rows(params, rows, strict=True)
    except ValueError as error:
        raise ValueError(
            f"{error} The first call of partial_fit must have rows of every group that a rate "
            "speaks of."
        ) from None
    return Running.of(found)


def check_apart(params: Parameters) -> None:
    """Bounds of one rate must leave room for it; shares, on which others depend, are not known."""
    ends: dict[str, tuple[float, float]] = {}
    for bound in bounds_of(params["rates"]):
        low, high = ends.get(bound.meaning, (-np.inf, np.inf))
        low = max(low, -np.inf if bound.lower is None else bound.lower)
        high = min(high, np.inf if bound.upper is None else bound.upper)
        if low > high:
            raise ValueError(
                f"The bounds of `{short(bound.rate)}` contradict one another: it cannot be at "
                f"least {low:g} and at most {high:g} at once."
            )
        ends[bound.meaning] = low, high


def on_rows(params: Parameters, rows: Rows, strict: bool = False) -> Unshared:
    counted = np.ones(len(rows.labels)) if rows.counted is None else rows.counted
    classes = None if rows.classes is None else rows.classes.tolist()
    bounds = bounds_of(params["rates"])
    return unshared(bounds, rows.class_numbers, classes, counted, rows.columns, strict=strict)


def constraint(running: Running, loss: Any) -> Expected:
    """What the steps of a run are bounded by."""
    return Expected(StreamedProxies(Proxies.of(running.bounded, 1.0, loss)))


def checked_part(params: Parameters, rows: Rows, running: Running) -> Unshared:
    """The bounds on the rows of one call, in which groups may be missing, but no columns."""
    missing = [name for name in sorted(running.attributes) if name not in rows.columns]
    if missing:
        raise ValueError(
            f"The rates speak of the column `{short(missing[0])}`, which is not there: give "
            "partial_fit(..., sensitive=...) in every call, as in the first."
        )
    return on_rows(params, rows)


def judged(
    running: Running, part: Unshared, rows: Rows, targets: np.ndarray, x: Any, loss: Any,
    exists: bool,
) -> tuple[Running, list[np.ndarray]]:  # fmt: skip
    """(the estimates with these rows, what a step needs besides X, targets and weights).

    Parameters
    ----------
    part, rows, targets
        Rows that x has not learnt from.
    x : pytree
        Coefficients.
    exists : bool
        Whether they are of a model yet, and not where it begins.
    """
    running = running.grown(part)
    scores = scores_of(rows, x)
    temperature = WIDTH * spread_of(scores)
    if exists:
        losses = losses_of(loss, scores, targets)
        true = np.stack(part.bounded.seen(decisions_of(scores, rows), losses), axis=1)
        with jax.enable_x64(True):
            smooth = Proxies.of(part.bounded, temperature, loss).seen(
                jax.numpy.asarray(scores), targets
            )
        running = running.seen(part, true, np.asarray(smooth))
    moved = np.concatenate([[temperature], running.shift])
    return running, [np.tile(moved, (len(scores), 1)), running.weights(part)]
