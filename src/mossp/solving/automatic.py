"""method="auto": which method, estimator and phases for a problem.

    data                      method                                     afterwards
    finite, or none at all    sqp-dc, or mossp-al beyond 32 constraints  polished as F levels off,
                              with SVRG gradients; full ones where       judged at 1e-10
                              these are cheap
    Sampler, Stream           the same methods with recursive momentum   judged at 1e-2
                              and steps that settle; mossp-r without
                              constraints
    with a part -E[g(x, xi)]  mossp-r, with SVRG or full gradients on    the same: polishing
                              finite data; where g is smooth, f - g is   linearises g, again and
                              one loss, and the rows above apply         again

A schedule other than "auto", or output="random", is the paper's: mossp-r is then what runs.
"""

from __future__ import annotations

from typing import NamedTuple

from mossp._base.printing import counted
from mossp.estimators import SVRG, Full, GradientEstimator, Kind, Recursive
from mossp.methods import METHODS, SQPDC, Method, MoSSP, MoSSPAL
from mossp.oracles import Oracles
from mossp.schedules import Rule

FEW_CONSTRAINTS = 32  # a step of sqp-dc solves systems of this size
FEW_ROWS = 256  # whose full gradient costs little more than a mini-batch's


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
    momentum: GradientEstimator = Recursive()
    if oracles.finite_sum:
        momentum = Full() if oracles.rows_per_pass <= FEW_ROWS else SVRG()
    method: Method
    if oracles.concave is not None:
        method, name = MoSSP(momentum=momentum), "mossp-r"
    elif not oracles.finite_sum and not oracles.m:
        method, name = METHODS["mossp-r"](), "mossp-r"
    elif oracles.m <= FEW_CONSTRAINTS:
        method, name = SQPDC(momentum=momentum), "sqp-dc"
    else:
        method, name = MoSSPAL(momentum=momentum), "mossp-al"
    most = max((s.rows or 0 for s in (oracles.source, *oracles.others)), default=0)
    what = "no data" if oracles.finite_sum and not most else f"{most} rows"
    what = what if oracles.finite_sum else "samples without end"
    kind = {Kind.ANCHORED: "SVRG"}.get(momentum.kind, momentum.kind.value)
    many = counted(oracles.m, "constraint")
    why = f"{kind} gradients: {what}, {many}"
    ended = oracles.concave is not None and oracles.finite_sum
    return Choice(method, name, oracles.finite_sum, why, exact=ended)
