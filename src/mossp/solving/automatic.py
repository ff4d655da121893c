"""method="auto": which method, estimator and phases for a problem.

    data                      method                                     afterwards
    finite, or none at all    sqp-dc, or mossp-al beyond 32 constraints  polished as F levels off,
                              with SVRG gradients; full ones where       judged at 1e-10
                              these are cheap, or where more than 128
                              constraints are means over rows
    few of them               full gradients on the host come first, and mostly end it
    Sampler, Stream           the same methods with recursive momentum   judged at 1e-2
                              and steps that settle; mossp-r without
                              constraints
    with a part -E[g(x, xi)]  mossp-r, with SVRG or full gradients on    the same: polishing
                              finite data; where g is smooth, f - g is   linearises g, again and
                              one loss, and the rows above apply         again

A schedule other than "auto", or output="random", is the paper's: mossp-r is then what runs.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from mossp._base.printing import counted
from mossp.estimators import SVRG, Full, GradientEstimator, Kind, Recursive
from mossp.methods import METHODS, SQPDC, Method, MoSSP, MoSSPAL
from mossp.oracles import Oracles
from mossp.schedules import Rule

FEW_CONSTRAINTS = 32  # a step of sqp-dc solves systems of this size
MANY_CONSTRAINTS = 128  # of which no full Jacobian is formed
FEW_ROWS = 256  # whose full gradient costs little more than a mini-batch's
# Numbers in data of which a pass takes some 0.2 ms, and variables: beyond, steps come at once.
FEW_NUMBERS, FEW_VARIABLES = 250_000, 1_000
# Entries of rows that are filled up to this part: on the host they cost what dense ones do, while
# steps, which gather and scatter them, cost several times as much.
FEW_ENTRIES, SPARSE = 1_000_000, 0.1
# Up to so many entries for each variable, a full gradient costs about what a step does on vectors
# of the length of x, and no chunk of steps with their witnesses is held.
VECTORS = 10


class Choice(NamedTuple):
    method: Method
    name: str
    polish: bool
    why: str
    exact: bool = False  # whether polishing makes it so, not the method itself


def choose(oracles: Oracles, rule: Rule, output: str) -> Choice:
    """The best way known to solve this problem without tuning."""
    if not rule.tuned or output == "random":
        why = "recursive momentum: a setting of the paper was asked for"
        return Choice(METHODS["mossp-r"](), "mossp-r", False, why)
    kind_of: type[GradientEstimator] = Recursive
    if oracles.finite_sum:
        # A mini-batch says nothing of most constraints that are means, if these are many.
        means = int(oracles.terms.sampled.sum())
        full = oracles.rows_per_pass <= FEW_ROWS or means > MANY_CONSTRAINTS
        kind_of = Full if full else SVRG
    momentum = made(kind_of)
    if oracles.concave is not None:
        method, name = made(MoSSP, kind_of), "mossp-r"
    elif not oracles.finite_sum and not oracles.m:
        method, name = METHODS["mossp-r"](), "mossp-r"
    elif oracles.m <= FEW_CONSTRAINTS:
        method, name = made(SQPDC, kind_of), "sqp-dc"
    else:
        method, name = made(MoSSPAL, kind_of), "mossp-al"
    kind = {Kind.ANCHORED: "SVRG"}.get(momentum.kind, momentum.kind.value)
    why = f"{kind} gradients: {size_of(oracles)}"
    ended = oracles.concave is not None and oracles.finite_sum
    return Choice(method, name, oracles.finite_sum, why, exact=ended)


@functools.cache
def made(kind: Any, momentum: type[GradientEstimator] | None = None) -> Any:
    """One for all solves: modules do not change, and take a while to make."""
    return kind() if momentum is None else kind(momentum=made(momentum))


def size_of(oracles: Oracles) -> str:
    """The size of a problem in words."""
    most = max((s.rows or 0 for s in (oracles.source, *oracles.others)), default=0)
    what = "no data" if oracles.finite_sum and not most else f"{most} rows"
    what = what if oracles.finite_sum else "samples without end"
    return f"{what}, {counted(oracles.m, 'constraint')}"


def full_is_cheap(oracles: Oracles) -> bool:
    """Whether a hundred passes over the data cost less than to compile steps would.

    By the size of the problem, never by times: a run can be repeated. A convex problem is polished
    at once, and needs none of them; a long program takes long to run as well.
    """
    if not oracles.finite_sum or oracles.convex or oracles.large or oracles.concave is not None:
        return False
    n = oracles.structure.size
    long = n > FEW_VARIABLES  # gradients of constraints are as long
    if oracles.m > (FEW_CONSTRAINTS if long else MANY_CONSTRAINTS):
        return False
    if steps_are_dear(oracles):
        return not long
    filled, most = oracles.source.filled_part, VECTORS * n if long else FEW_ENTRIES
    return filled <= SPARSE and filled * oracles.rows_per_pass * n <= most


def steps_are_dear(oracles: Oracles) -> bool:
    """Whether data are so little that to compile steps costs more than all that comes before."""
    return oracles.rows_per_pass * oracles.structure.size <= FEW_NUMBERS
