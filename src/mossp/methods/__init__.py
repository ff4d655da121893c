"""One method a file, and the table of their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mossp.certificates.certificate import Witness
from mossp.estimators import Polyak, Recursive
from mossp.methods.base import About, Method
from mossp.methods.clcdc import CLCDC
from mossp.methods.imba import IMBA
from mossp.methods.mlalm import MLALM
from mossp.methods.mossp import MoSSP
from mossp.methods.mossp_al import MoSSPAL
from mossp.methods.penalty import GrowingPenalty, NoPenalty, Penalty, ScaledPenalty
from mossp.methods.reach import objection
from mossp.methods.salm import SALM
from mossp.methods.sdc import SDC
from mossp.methods.smag import SMAG
from mossp.methods.spd import SPD
from mossp.methods.spdc import SPDC
from mossp.methods.sqp_dc import SQPDC
from mossp.methods.ssdc import SSDC
from mossp.methods.ssl_alm import SSLALM
from mossp.oracles import Oracles

METHODS: dict[str, Callable[[], Method]] = {
    "mossp-r": lambda: MoSSP(momentum=Recursive()),
    "mossp-p": lambda: MoSSP(momentum=Polyak()),
    "mossp-al": lambda: MoSSPAL(momentum=Recursive()),
    "sqp-dc": lambda: SQPDC(momentum=Recursive()),
    "spdc-r": lambda: SPDC(momentum=Recursive()),
    "spdc-p": lambda: SPDC(momentum=Polyak()),
    "salm-r": lambda: SALM(momentum=Recursive()),
    "salm-p": lambda: SALM(momentum=Polyak()),
    "mlalm": MLALM,
    "spd": SPD,
    "ssdc-spg": SSDC,
    "smag": SMAG,
    "sdc-polyak": lambda: SDC(momentum=Polyak()),
    "sdc-recursive": lambda: SDC(momentum=Recursive()),
    "clcdc-alm": CLCDC,
    "imba-dc": IMBA,
    "scp-ls": lambda: IMBA(inexact=False),
    "ssl-alm": SSLALM,
}


def within_reach(method: Method, name: str, oracles: Oracles, x0: Any) -> None:
    """Raise one sentence, which names another method, unless this one can take the problem."""
    missing = objection(method, oracles, x0)
    if missing is not None:
        can = next(n for n, make in METHODS.items() if objection(make(), oracles, x0) is None)
        raise ValueError(f"{name} {missing}: use method={can!r} instead.")


__all__ = [
    "CLCDC",
    "IMBA",
    "METHODS",
    "MLALM",
    "SALM",
    "SDC",
    "SMAG",
    "SPD",
    "SPDC",
    "SQPDC",
    "SSDC",
    "SSLALM",
    "About",
    "GrowingPenalty",
    "Method",
    "MoSSP",
    "MoSSPAL",
    "NoPenalty",
    "Penalty",
    "ScaledPenalty",
    "Witness",
    "objection",
    "within_reach",
]
