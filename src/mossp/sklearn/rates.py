"""Fits whose true rates on the training rows meet their bounds, with little to spare.

Decisions are steps, which have no gradients: what is solved has smooth ones in their place
(`mossp.rates.proxies`) and bounds that are moved. With e the true excess of each row over its
bound, p its smooth version and x_k the last answer, the next problem bounds p by

    p_j(x)  <=  p_j(x_k) - (e_j(x_k) + inside_j) / slope_j

that is, by what p would be if e were just inside of its bound, slope_j the change of e_j with p_j
as last seen. All are moved together, every solve starts from the answer before, and the best point
that meets all bounds is kept. e is a step function: bounds of a row that were seen to be too wide
and not wide enough bracket the step, and proposals outside are replaced by the middle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from mossp._base.device import on_device
from mossp._base.structure import Structure
from mossp._base.types import PyTree
from mossp.certificates.certificate import Certificate
from mossp.certificates.stationarity import full_gradient, shortest_certificate
from mossp.expected import Expected
from mossp.problem import Problem
from mossp.rates.bounded import Bounded
from mossp.regularizers import Box, Zero
from mossp.regularizers.strength import strengthened
from mossp.result import Result, Status
from mossp.sklearn.formulation import Parameters, formulate
from mossp.sklearn.limited import best_found
from mossp.sklearn.promises import ROUNDING, Promise, Sight, spread_of
from mossp.sklearn.rows import Rows
from mossp.sklearn.thresholds import best_threshold
from mossp.solving.path import with_regularizer
from mossp.solving.solve import solve

SPARE = 0.002  # that a rate may stay away from its bound, beside one row
AIM = 0.4  # where between the bound and all that may be spared is aimed at
WIDTH = 0.1  # of the smooth step, in units of the margins' standard deviation
SHARPER = 3.0  # by which it is divided where the true rates are not met closely
SOLVES = 8  # at one width
SHARPENED = 3  # widths that are tried
WEAKER = (0.1, 0.01)  # strengths of the regulariser from whose answers a search may start
HOPELESS = 2  # solves in a row without a feasible point or a minimiser: another start is tried
ROUGH = 1e-4  # the tolerance of a fit that only serves as a start
MIXED = (0.01, 0.1)  # shares of a denser model
NARROW = 1e-7
LOOSE = 0.02  # by which the other end of a bound is let go while one end is held
LONG = 100.0  # times the usual width of scores: a point on its way to infinity


class Candidate(NamedTuple):
    """An answer, and how it looks."""

    result: Result
    sight: Sight
    temperature: float
    slack: float = 0.0  # the largest of an active bound, in units of what may be spared


# The search ---------------------------------------------------------------------------------------


def rated(
    params: Parameters, rows: Rows, start: PyTree | None = None, thorough: bool = True
) -> Result:
    """The model with these parameters whose true rates on these rows meet their bounds.

    Parameters
    ----------
    params : mapping
        Of the estimator, `rates` among them.
    rows : Rows
        To fit to, weights with mean 1.
    start : pytree, optional
        Coefficients to start from.
    thorough : bool
        Whether other starts are tried where the first ones lead nowhere; a path, which has many
        strengths, does without.

    Returns
    -------
    Result
        Its `success` includes that the rates are met; `settings["rates"]` has the true and the
        smooth ones. Where no point was found that meets all bounds, the nearest one.

    Examples
    --------
    >>> from mossp.sklearn import MoSSPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 3))
    >>> labels = np.where(X[:, 0] + rng.normal(size=400) > 0, 1.0, -1.0)
    >>> rows = Rows(X, labels, np.ones(400), np.array([0, 1]))
    >>> result = rated(MoSSPClassifier(rates="fpr <= 0.1").get_params(), rows)
    >>> result.success, 0.09 < result.settings["rates"]["true"]["fpr <= 0.1"] <= 0.1
    (True, True)
    """
    promise = Promise(params, rows)
    problem, x0, settings = formulate(params, rows, start)
    data = rows.data(promise.targets, promise.bounded.weights)
    free = dataclasses.replace(problem, data=data)
    spent = Spent()
    limited = params["max_features"] is not None
    found = best_found({**params, "rates": None}, rows) if limited else None
    alone = spent.on(solve(free, x0, **settings) if found is None else found)
    if alone.status is Status.INTERRUPTED or not np.isfinite(alone.fun):
        return alone
    temperature = WIDTH * spread_of(promise.scores(alone.x))
    first = Candidate(alone, promise.seen(alone.x, temperature), temperature)
    if first.sight.met:
        return finished(promise, first, spent, met=True)
    if limited:  # the columns that are best without the rates stay
        x0, free = alone.x, with_regularizer(free, over_columns(alone.x, params["nonnegative"]))

    def bounded(shift: np.ndarray, temperature: float, x: PyTree) -> Problem:
        return with_constraint(free, Expected(promise.proxies(x, temperature, shift)))

    def solved(shift: np.ndarray, temperature: float, x: PyTree) -> Result:
        found = solve(bounded(shift, temperature, x), x, **{**settings, "starts": 1})
        named = {**found.settings, "regularizer": alone.settings["regularizer"]}
        return spent.on(dataclasses.replace(found, settings=named))

    turned = best_threshold(promise, alone.x, temperature)
    simple = [] if turned is None else [turned]  # points that come of thresholds alone
    starts = [alone.x if start is None else x0, *simple]
    others = free.equality is not None or free.inequality is not None  # constraints beside rates
    nearest, best = first, None
    for number in range(SHARPENED + len(WEAKER) if thorough else len(starts)):
        if best is not None:
            x = best.result.x
        elif number < SHARPENED:
            x = starts[min(number, len(starts) - 1)]
        else:  # no point yet that meets all: begin where weaker regularisers lead
            weaker = strengthened(free.regularizer, WEAKER[number - SHARPENED])
            rough = {**settings, "tol": ROUGH}
            x = spent.on(solve(with_regularizer(free, weaker), x0, **rough)).x
            # Rows that a sparse model scores alike are told apart by a little of a denser one.
            for share in (*MIXED, 1.0):
                turned = best_threshold(promise, mixed(nearest.result.x, x, share), temperature)
                simple += [] if turned is None else [turned]
            x = x if turned is None else turned
        width = temperature / SHARPER ** min(number, SHARPENED - 1)
        seen, met, close = approach(solved, promise, x, width)
        nearest = min([nearest, *seen], key=lambda c: c.sight.excess.max())
        met = [c for c in met if c.result.success or not others]
        best = min([c for c in (best, *met) if c is not None], key=worth, default=None)
        enough = close or (best is not None and number + 1 >= SHARPENED)
        if enough or spent.interrupted or promise.exact.all():
            break
    if spent.interrupted:
        return dataclasses.replace((best or nearest).result, status=Status.INTERRUPTED)
    if best is None:
        standing = [
            stood(bounded(sight.smooth, temperature, x), x, sight, temperature, nearest.result)
            for x, sight in ((x, promise.seen(x, temperature)) for x in simple)
            if sight.met
        ]
        allowed = [c for c in standing if c.result.violation <= ROUNDING]
        best = min(allowed, key=worth, default=None)
    if best is None:
        nearest = of_usual_length(promise, nearest, alone.x, bounded)
    return finished(promise, best or nearest, spent, best is not None)


def of_usual_length(
    promise: Promise, nearest: Candidate, usual: PyTree,
    bounded: Callable[[np.ndarray, float, PyTree], Problem],
) -> Candidate:  # fmt: skip
    """A point on its way to infinity with scores as wide as usual, if its rates are as near.

    Decisions do not change with the length of x. Where no point meets the bounds, smooth rates come
    closer to them the longer x is, without an end, and such a length means nothing.
    """
    widths = [spread_of(promise.scores(x)) for x in (usual, nearest.result.x)]
    if not widths[1] > LONG * widths[0] > 0:
        return nearest
    x = jax.tree.map(lambda leaf: np.asarray(leaf) * (widths[0] / widths[1]), nearest.result.x)
    sight = promise.seen(x, nearest.temperature)
    if sight.excess.max() > nearest.sight.excess.max() + ROUNDING:
        return nearest
    shift = sight.smooth - sight.scale * np.maximum(sight.excess, 0.0)
    problem = bounded(shift, nearest.temperature, x)
    found = stood(problem, x, sight, nearest.temperature, nearest.result)
    status = nearest.result.status
    return found._replace(result=dataclasses.replace(found.result, status=status, success=False))


def over_columns(x: PyTree, nonnegative: bool) -> Box:
    """The bounds that let in no other column than those of x."""
    ends = {
        "coef": np.where(np.asarray(x["coef"]) != 0, np.inf, 0.0),
        **{name: np.full(np.shape(leaf), np.inf) for name, leaf in x.items() if name != "coef"},
    }
    low = {**ends, "coef": np.zeros_like(ends["coef"])} if nonnegative else ends
    ravel = Structure.of(x).ravel
    return Box(Zero(), -ravel(low), ravel(ends))


def mixed(x: PyTree, other: PyTree, share: float) -> PyTree:
    return jax.tree.map(lambda a, b: (1 - share) * np.asarray(a) + share * np.asarray(b), x, other)


def stood(
    problem: Problem, x: PyTree, sight: Sight, temperature: float, template: Result
) -> Candidate:
    """A point that no solve ended at, as an answer with the certificate that it has."""
    with jax.enable_x64(True):
        oracles = problem.oracles(x)
        vector = on_device(oracles.structure.ravel(x))
        found = shortest_certificate(oracles, vector, full_gradient(oracles, vector))
        fun = float(oracles.full_value(vector) + oracles.regularizer(vector))
    holds = found.is_kkt(template.tol, relative=True)
    result = dataclasses.replace(
        template, x=x, xs=jax.tree.map(lambda leaf: np.asarray(leaf)[None], x), fun=fun,
        funs=np.array([fun]), violation=found.feasibility, violations=np.array([found.feasibility]),
        certificate=found, success=holds, status=Status.CONVERGED if holds else Status.BUDGET,
        message="The rates are met by the threshold of a model that mixes fits without them; no "
        "solve came to a point that meets them, and this one is not known to be the best.",
    )  # fmt: skip
    return Candidate(result, sight, temperature)


def worth(candidate: Candidate) -> tuple[bool, float, float]:
    """Of points that meet all bounds: a certificate first, little slack, a low objective."""
    return (not candidate.result.success, max(candidate.slack, 1.0), candidate.result.fun)


def approach(
    solved: Callable[[np.ndarray, float, PyTree], Result],
    promise: Promise,
    x: PyTree,
    temperature: float,
) -> tuple[list[Candidate], list[Candidate], bool]:
    """Move the bounds of the smooth rates at one temperature, from x on.

    Returns
    -------
    seen, met : lists of Candidate
        All answers, and those whose true rates meet all bounds.
    close : bool
        Whether the last one does with little to spare, and with its certificate.
    """
    seen: list[Candidate] = []
    hopeless = 0  # solves in a row that found no minimiser within the moved bounds
    exact, room, other = promise.exact, promise.room, promise.other_ends
    slope = np.ones(len(exact))
    low, high = np.full(len(exact), -np.inf), np.full(len(exact), np.inf)
    shift, behind = np.zeros(len(exact)), np.zeros(len(exact))
    sight = promise.seen(x, temperature)
    held = sight.excess >= sight.excess[other]  # of the two ends of a rate the one that matters
    for _ in range(SOLVES):
        spare = sight.grains + SPARE
        inside = AIM * np.minimum(spare, room) * 2.0 ** np.maximum(behind - 2, 0)
        aimed = sight.smooth - sight.scale * (sight.excess + inside) / slope
        aimed = np.where(held, aimed, aimed + LOOSE)
        outside = held & np.isfinite(low) & np.isfinite(high) & ~((low < aimed) & (aimed < high))
        aimed[outside] = (low[outside] + high[outside]) / 2
        missed = np.maximum(sight.excess, 0.0) if seen else 0.0  # by a solve at a loose tol
        shift = np.where(exact, shift - 1.5 * missed, aimed)
        result = solved(shift, temperature, x)
        if result.status is Status.INTERRUPTED or not np.isfinite(result.fun):
            break
        before, sight = sight, promise.seen(result.x, temperature)
        x = result.x
        active = active_rows(result, len(exact)) & ~exact
        slack = np.where(active, -sight.excess / (sight.grains + SPARE), 0.0)
        seen.append(Candidate(result, sight, temperature, float(slack.max())))
        infeasible = result.status is Status.INFEASIBLE_STATIONARY and not sight.met
        # On its way to infinity no bound that is moved by a little will hold it.
        lost = infeasible or (result.status is Status.DIVERGED and not sight.met)
        hopeless = hopeless + 1 if lost else 0
        if hopeless == HOPELESS or (infeasible and exact[sight.excess > ROUNDING].all()):
            break
        held = np.where(active | active[other], active, sight.excess >= sight.excess[other])
        if sight.met and slack.max() <= 1 and result.success:
            return seen, [c for c in seen if c.sight.met], True
        # How the true excess follows the smooth one, and what is too wide and what is not.
        moved = (sight.smooth - before.smooth) / sight.scale
        followed = np.divide(sight.excess - before.excess, moved, out=np.ones_like(moved),
                             where=np.abs(moved) > 1e-6)  # fmt: skip
        slope = np.where(
            active, np.clip(np.sqrt(slope * np.clip(followed, 0.25, 4)), 0.5, 2), slope
        )
        behind = np.where(sight.excess > ROUNDING, behind + 1, 0)
        wide = sight.excess > ROUNDING
        high = np.where(wide, np.minimum(high, sight.smooth), high)
        low = np.where(active & ~wide, np.maximum(low, sight.smooth), low)
        crossed = low >= high  # rows move one another: what was seen holds no longer
        low, high = np.where(crossed, -np.inf, low), np.where(crossed, np.inf, high)
        wrong = (sight.excess > ROUNDING) | (slack > 1)
        if (high - low < NARROW)[wrong].all():
            break  # between two answers next to each other lies one large step
    return seen, [c for c in seen if c.sight.met], False


def active_rows(result: Result, count: int) -> np.ndarray:
    """Which of the rates' bounds hold the answer back: those with a multiplier."""
    multipliers = np.ravel(result.certificate.multipliers["inequality"]["rates"])
    return np.asarray(multipliers > 1e-8) if len(multipliers) == count else np.ones(count, bool)


class Spent:
    """What several solves cost together."""

    def __init__(self) -> None:
        self.solves, self.seconds, self.compile_seconds, self.gradients = 0, 0.0, 0.0, 0
        self.interrupted = False

    def on(self, result: Result) -> Result:
        self.solves += 1
        self.seconds += result.seconds
        self.compile_seconds += result.compile_seconds
        self.gradients += result.gradients
        self.interrupted = result.status is Status.INTERRUPTED
        return result


def finished(promise: Promise, chosen: Candidate, spent: Spent, met: bool) -> Result:
    """The answer with the rates in its settings, and in its verdict."""
    result, scores = chosen.result, promise.scores(chosen.result.x)
    true = promise.rates(scores)
    told = {
        "true": true,
        "smooth": promise.smooth_rates(scores, chosen.temperature),
        "met": met,
        "width": chosen.temperature,
        "solves": spent.solves,
    }
    changes: dict[str, Any] = {
        "certificate": with_texts(result.certificate, promise.bounded),
        "settings": {**result.settings, "rates": told},
        "seconds": spent.seconds,
        "compile_seconds": spent.compile_seconds,
        "gradients": spent.gradients,
    }
    if not met:
        missed = {
            promise.bounded.bounds[row.bound].text
            for row, excess in zip(promise.bounded.rows, chosen.sight.excess, strict=True)
            if excess > ROUNDING
        }
        listed = ", ".join(f"`{text}` ({value:.4g})" for text, value in true.items()
                           if text in missed)  # fmt: skip
        margin = "" if promise.confidence is None else ", with its margin for new rows,"
        changes |= {
            "success": False,
            "status": Status.INFEASIBLE_STATIONARY if result.success else result.status,
            "message": f"No coefficients were found whose true rates on these rows{margin} meet "
            f"all bounds; the nearest ones miss {listed}.",
        }
    return dataclasses.replace(result, **changes)


def with_texts(certificate: Certificate, bounded: Bounded) -> Certificate:
    """The certificate with the rates under the texts that asked for them, two ends numbered."""
    each = [bounded.bounds[row.bound].text for row in bounded.rows]
    names = [
        text if each.count(text) == 1 else f"{text}, end {each[: j + 1].count(text)}"
        for j, text in enumerate(each)
    ]

    def named(parts: dict[str, Any]) -> dict[str, Any]:
        inside = parts.get("inequality")
        if not isinstance(inside, dict) or np.size(inside.get("rates", ())) != len(names):
            return parts
        rates = dict(zip(names, np.ravel(inside["rates"]), strict=True))
        return {**parts, "inequality": {**inside, "rates": rates}}

    return dataclasses.replace(
        certificate, multipliers=named(certificate.multipliers), values=named(certificate.values)
    )


def with_constraint(problem: Problem, constraint: Expected) -> Problem:
    """The problem with one more inequality, called "rates"."""
    given = {} if problem.inequality is None else {"given": problem.inequality}
    return dataclasses.replace(problem, inequality={**given, "rates": constraint})
