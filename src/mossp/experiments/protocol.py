"""What is run: data, budgets, methods and grids, in full and in quick."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from mossp.estimators import GradientEstimator, Polyak, Recursive
from mossp.methods import SALM, SPDC, Method, MoSSP
from mossp.schedules import Constant, Paper, Rule

# The paper's "0.905" and "0.9": the weight of the new gradient, as its formulas have it, or of the
# old direction.
READINGS = {"literal": {"P": 0.905, "R": 0.9}, "averaging": {"P": 0.095, "R": 0.1}}
BATCH = {"a9a": 32, "phishing": 32, "australian": 16}
INNER = 5  # of the double loops


def powers(first: int, last: int) -> tuple[float, ...]:
    return tuple(2.0**e for e in range(first, last + 1))


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Everything that decides the numbers."""

    steps: dict[str, int]  # K of MoSSP, by experiment
    data: dict[str, tuple[str, ...]]  # sets by experiment; "generated" is made, not loaded
    runs: int = 5
    share: int = 5  # a grid point gets this part of the gradients
    trace: int = 100
    lams: tuple[float, ...] = (0.01,)
    readings: tuple[str, ...] = ("literal", "averaging")
    regularizers: tuple[str, ...] = ("l1-l2", "capped-l1", "truncated-l1")  # of the sphere
    budget: str = "gradients"  # or "seconds": each method gets MoSSP's time
    seed: int = 0
    # MoSSP's rho = rho0 K^{1/4}, mu = mu0 K^{-1/2} (P), rho0 K^{1/3}, mu0 K^{-1/3} (R): as many
    # points as SPDC has.
    rho0: dict[str, tuple[float, ...]] = dataclasses.field(
        default_factory=lambda: {"P": powers(-3, 4), "R": powers(-4, 3)}
    )
    mu0: dict[str, tuple[float, ...]] = dataclasses.field(
        default_factory=lambda: {"P": powers(-2, 5), "R": powers(-5, 2)}
    )
    mu: tuple[float, ...] = (0.05, 0.2, 0.5, 1.0)
    rho_spdc: tuple[float, ...] = (1.0, 5.0, 10.0, 20.0)
    rho_salm: tuple[float, ...] = (0.01, 0.1, 0.5, 1.0)
    eta: tuple[float, ...] = (0.001, 0.01, 0.05, 0.1)
    constraints: int = 20  # M of the quadratics
    starts: int = 3  # from which the reference optimum is looked for
    rates: tuple[int, ...] = tuple(range(9, 17))  # K = 2^9, ..., 2^16
    rate_replicas: int = 64
    rate_steps: int = 256  # of a run, over which its residuals are averaged


FULL = Protocol(
    steps={"sphere": 25_000, "quadratics": 20_000},
    data={"sphere": ("a9a", "phishing", "australian"), "quadratics": ("a9a", "phishing")},
)
# The same path on small budgets and generated data.
QUICK = Protocol(
    steps={"sphere": 400, "quadratics": 400},
    data={"sphere": ("generated",), "quadratics": ("generated",)},
    runs=2, trace=20, readings=("averaging",), regularizers=("l1-l2",),
    rho0={"P": (1.0, 4.0), "R": (0.5, 2.0)}, mu0={"P": (0.5, 2.0), "R": (0.1, 0.5)},
    mu=(0.2, 1.0), rho_spdc=(5.0, 20.0), rho_salm=(0.1, 1.0), eta=(0.01, 0.1),
    constraints=5, starts=1, rates=(6, 7, 8, 9), rate_replicas=16, rate_steps=32,
)  # fmt: skip


class Contestant(NamedTuple):
    """A method with its settings, or with the grid from which they are chosen."""

    name: str  # as in the paper's tables: "MoSSP-P"
    letter: str  # "P" or "R"
    reading: str  # of alpha, or "untuned"
    method: Method
    schedule: Rule | str
    grid: dict[str, tuple[float, ...]] | None

    @property
    def label(self) -> str:
        return f"{self.name}, {self.reading}"


def contestants(protocol: Protocol, experiment: str) -> list[Contestant]:
    """MoSSP first in each group: its budget is the group's."""
    found = []
    for letter, kind in (("P", Polyak), ("R", Recursive)):
        group: list[Contestant] = []
        for reading in protocol.readings:
            momentum = kind(READINGS[reading][letter])
            group += tuned(protocol, protocol.steps[experiment], letter, reading, momentum)
        untuned = MoSSP(momentum=kind())
        group.append(Contestant(f"MoSSP-{letter}", letter, "untuned", untuned, "auto", None))
        found += group
    return found


def tuned(
    p: Protocol, K: int, letter: str, reading: str, momentum: GradientEstimator
) -> list[Contestant]:
    fixed = Constant(rho=1.0, mu=1.0, eta=1.0)
    mossp = {"rho0": p.rho0[letter], "mu0": p.mu0[letter]}
    spdc = {"mu": p.mu, "rho": p.rho_spdc, "eta": p.eta}
    salm = {"mu": p.mu, "rho": p.rho_salm}
    rule: Any = Paper(rho0=1.0, mu0=1.0, horizon=K)
    return [
        Contestant(f"MoSSP-{letter}", letter, reading, MoSSP(momentum=momentum), rule, mossp),
        Contestant(f"SPDC-{letter}", letter, reading, SPDC(momentum, inner=INNER), fixed, spdc),
        Contestant(f"SALM-{letter}", letter, reading, SALM(momentum, inner=INNER), fixed, salm),
    ]
