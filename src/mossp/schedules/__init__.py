"""rho, mu and alpha as functions of the step, and the rules that make them.

A rule turns (what kind of momentum, the number of steps K, the constants of the problem) into a
`Schedule`. The orders in K of the paper's results:

                         rho        mu         alpha      b0        starts from
    Theorem 3.1   (P)    K^{1/4}    K^{-1/2}   K^{-1/2}   1         ||c(x0)||^2 = O(K^{-1/4})
    Theorem 3.2   (R)    K^{1/3}    K^{-1/3}   K^{-2/3}   K^{1/3}   ||c(x0)||^2 = O(K^{-1/3})
    Corollary 3.1 (P)    K^{1/5}    K^{-2/5}   K^{-2/5}   1         any x0
    Corollary 3.2 (R)    K^{1/4}    K^{-1/4}   K^{-1/2}   1         any x0

(P) is Polyak momentum, (R) recursive. The paper proves nothing for the other estimators (Plain,
SVRG, Full): they get the orders of (P), which ask of f alone that it is smooth, and no claim.
"""

from __future__ import annotations

from typing import Any

from mossp._base.printing import shown
from mossp.schedules.auto import Auto
from mossp.schedules.indexed import AlacaogluWright, Indexed, LuMeiXiao
from mossp.schedules.rule import Constant, Measured, Rule
from mossp.schedules.schedule import Parameters, Schedule, with_alpha
from mossp.schedules.theorem import Corollary, Paper, Theorem, TwoPhase

RULES: dict[str, Rule] = {
    "auto": Auto(),
    "theorem": Theorem(),
    "corollary": Corollary(),
    "indexed": Indexed(),
    "two-phase": TwoPhase(),
    "alacaoglu-wright": AlacaogluWright(),
    "lu-mei-xiao": LuMeiXiao(),
    "measured": Measured(),
    "paper": Paper(),
    "paper-averaging": Paper(averaging=True),
}


def as_rule(given: Any) -> Rule:
    if isinstance(given, Rule):
        return given
    if isinstance(given, str) and given in RULES:
        return RULES[given]
    raise ValueError(
        f"schedule must be one of {', '.join(map(repr, RULES))} or a rule such as "
        f"mossp.schedules.Theorem(rho0=2.0), but {shown(given)} was given."
    )


__all__ = [
    "RULES",
    "AlacaogluWright",
    "Auto",
    "Constant",
    "Corollary",
    "Indexed",
    "LuMeiXiao",
    "Measured",
    "Paper",
    "Parameters",
    "Rule",
    "Schedule",
    "Theorem",
    "TwoPhase",
    "as_rule",
    "with_alpha",
]
