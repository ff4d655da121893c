"""What a rate on some rows says about new ones: intervals, and bounds with a margin.

For k of n rows, each counted at random with probability p:

    wilson            those p for which k/n is within z standard deviations of p
    clopper_pearson   those p for which k or fewer (or more) are not too rare: exact, and wider

An interval of a sum of multiples of rates adds the squares of the distances of each rate's own ends
(Newcombe 1998), as if the rates were of different rows. Weighted rows count as so many as have the
same variance, (sum w)^2 / sum w^2 (Kish).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy  # scipy.special is imported where it is first used

from mossp._base.types import HostArray
from mossp.rates.algebra import Elementary, Rate
from mossp.rates.bounded import LOSS, Bounded, Linear, Ratio, Row


def wilson(share: float, rows: float, confidence: float = 0.95) -> tuple[float, float]:
    """The two-sided interval of a share of so many rows.

    Examples
    --------
    >>> [round(end, 4) for end in wilson(0.1, 100)]
    [0.0552, 0.1744]
    """
    if not rows > 0 or math.isnan(share):
        return (0.0, 1.0)
    z = float(scipy.special.ndtri((1 + confidence) / 2))
    centre = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    spread = share * (1 - share) / rows + z * z / (4 * rows * rows)
    half = z * math.sqrt(max(spread, 0.0)) / (1 + z * z / rows)
    return (min(max(0.0, centre - half), share), max(min(1.0, centre + half), share))


def clopper_pearson_upper(share: float, rows: float, confidence: float) -> float:
    """What the probability is at most, with this confidence, after a share of so many rows.

    Examples
    --------
    >>> round(clopper_pearson_upper(0.0, 59, 0.95), 3)  # the rule of three, about 3 / n
    0.05
    """
    counted = share * rows
    if rows <= 0 or counted >= rows:
        return 1.0
    return float(scipy.special.betaincinv(counted + 1, rows - counted, confidence))


def tightened(end: float, rows: float, confidence: float) -> float:
    """The largest share of so many rows that bounds the probability by `end`; below 0: none does.

    Examples
    --------
    >>> round(tightened(0.05, 1000, 0.95), 3)
    0.038
    """
    if end >= 1:
        return 1.0
    low, high = 0, math.floor(rows)  # the upper end grows with the count
    if clopper_pearson_upper(0.0, rows, confidence) > end:
        return -1.0
    while high - low > 1:
        middle = (low + high) // 2
        if clopper_pearson_upper(middle / rows, rows, confidence) <= end:
            low = middle
        else:
            high = middle
    return low / rows


def intervals(
    bounded: Bounded,
    decisions: HostArray | None,
    losses: HostArray | None = None,
    confidence: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """The interval of every rate that was bounded, by the text that asked for it.

    Parameters
    ----------
    bounded : Bounded
        Bounds on the rows, which were not fitted to.
    decisions : array of shape (rows,) or None
        Numbers of classes.
    losses : array of shape (rows,), optional
        Of the rows, where a mean loss is bounded.
    confidence : float
        Of each interval by itself.
    """
    means = bounded.means(decisions, losses)
    ends = {
        term: _elementary(bounded, term, means, decisions, losses, confidence)
        for bound in bounded.bounds
        for term in bound.elementary
    }
    return {bound.text: _combined(bounded, bound.rate, means, ends) for bound in bounded.bounds}


def _elementary(
    bounded: Bounded, term: Elementary, means: HostArray, decisions: HostArray | None,
    losses: HostArray | None, confidence: float,
) -> tuple[float, float]:  # fmt: skip
    share = bounded.value(Rate(((term, 1.0),)), means)
    if math.isnan(share):
        return (math.nan, math.nan)
    part = bounded.parts[term]
    if isinstance(part, Linear) and any(bounded.kinds[k] == LOSS for k in part.factors):
        (column,) = part.factors
        w = bounded.weights[:, column] / len(bounded.weights)
        spread = math.sqrt(float(w**2 @ (np.asarray(losses) - share) ** 2))
        z = float(scipy.special.ndtri((1 + confidence) / 2))
        return (max(share - z * spread, 0.0), share + z * spread)
    return wilson(share, effective_rows(bounded, part, decisions), confidence)


def effective_rows(bounded: Bounded, part: Linear | Ratio, decisions: HostArray | None) -> float:
    """How many rows of equal weight a rate is as good as."""
    if isinstance(part, Linear):
        w = np.abs(bounded.weights[:, next(iter(part.factors))])
    else:
        w = bounded.weights[:, part.below] * (decisions == bounded.kinds[part.below])
    square = float((w**2).sum())
    return float(w.sum()) ** 2 / square if square > 0 else 0.0


def _combined(
    bounded: Bounded,
    rate: Rate,
    means: HostArray,
    ends: dict[Elementary, tuple[float, float]],
) -> tuple[float, float]:
    centre = bounded.value(linear_part(rate), means)
    down = up = 0.0
    for term, factor in rate.terms:
        own = bounded.value(Rate(((term, 1.0),)), means)
        low, high = ends[term]
        below, above = (own - low, high - own) if factor > 0 else (high - own, own - low)
        down, up = down + (factor * below) ** 2, up + (factor * above) ** 2
    low, high = centre - math.sqrt(down), centre + math.sqrt(up)
    for inner, factor in rate.absolutes:
        a, b = _combined(bounded, inner, means, ends)
        sizes = (0.0 if a <= 0 <= b else min(abs(a), abs(b)), max(abs(a), abs(b)))
        sizes = sizes if factor > 0 else sizes[::-1]
        low, high = low + factor * sizes[0], high + factor * sizes[1]
    return (low, high)


def linear_part(rate: Rate) -> Rate:
    return Rate(rate.terms, rate.constant)


# Margins ------------------------------------------------------------------------------------------


def with_margin(bounded: Bounded, confidence: float, decisions: HostArray | None = None) -> Bounded:
    """The bounds moved in so far that new rows meet them with this confidence, one by one.

    One rate by itself is tightened to the largest share whose one-sided Clopper-Pearson bound, at
    its number of rows, is within what was asked. A sum of several rates keeps the distance
    z sqrt(sum_k factor_k^2 / (4 rows_k)), the normal bound at the largest variance of a share; an
    absolute value is two such bounds, each with half of the risk. It is the bound for one fixed
    model: fitting to the same rows makes it somewhat too good.

    Parameters
    ----------
    bounded : Bounded
        Bounds on the rows that are fitted to.
    confidence : float
        Between 0 and 1.
    decisions : array, optional
        For bounds on precision, whose rows are those decided for.

    Examples
    --------
    >>> from mossp import rates
    >>> from mossp.rates.binding import bind
    >>> bound = bind([rates.selection() <= 0.05], np.zeros(1000), ["no", "yes"], np.ones(1000))
    >>> with_margin(bound, 0.95).constant.round(3).tolist()  # 38 of 1000 rows at most
    [-0.038]
    """
    matrix, constant = bounded.matrix.copy(), bounded.constant.copy()
    ratios = bounded.ratios
    for j, row in enumerate(bounded.rows):
        margin = _margin(bounded, row, confidence, decisions)
        if j in ratios:
            matrix[j, ratios[j].below] += margin
        else:
            constant[j] += margin
    return dataclasses.replace(bounded, matrix=matrix, constant=constant)


def _margin(bounded: Bounded, row: Row, confidence: float, decisions: HostArray | None) -> float:
    bound = bounded.bounds[row.bound]
    rate = bound.rate
    for term in bound.elementary:
        if term.name == "mean loss":
            raise ValueError(
                f"rates_margin is for rates, and `{bound.text}` bounds a mean loss, which is no "
                "share of rows: leave it out, or set rates_margin=None."
            )
    if bound.lower == bound.upper:
        raise ValueError(
            f"`{bound.text}` is an equality, which leaves no room for rates_margin: give two ends."
        )
    two_sided = bound.lower is not None and bound.upper is not None
    risk = (1 - confidence) / (2 if two_sided or rate.absolutes else 1)
    if len(rate.terms) == 1 and not rate.absolutes:
        ((term, factor),) = rate.terms
        rows = effective_rows(bounded, bounded.parts[term], decisions)
        if rows <= 0:
            return 0.0
        # factor r + constant <= end, or >=, as a bound from above on r or on 1 - r
        end = (row.end - rate.constant) / factor
        limit = end if row.sign * factor > 0 else 1 - end
        found = tightened(limit, rows, 1 - risk)
        if found < 0 and isinstance(bounded.parts[term], Ratio):
            return limit + 0.01  # so few are decided for that not even all of them right will do
        if found < 0:
            raise ValueError(
                f"`{bound.text}` cannot be promised for new rows with confidence "
                f"{confidence:g}: its group has {rows:.0f} rows, which are too few."
            )
        return abs(factor) * max(limit - found, 0.0)
    z = float(scipy.special.ndtri(1 - risk))
    variance = 0.0
    for inner, outer in [(rate, 1.0), *rate.absolutes]:
        for term, factor in inner.terms:
            rows = effective_rows(bounded, bounded.parts[term], decisions)
            variance += (outer * factor) ** 2 / (4 * rows)
    return z * math.sqrt(variance)
