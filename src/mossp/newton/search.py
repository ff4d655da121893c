"""What the steps of a search for a KKT point share, and how they compare two pairs (x, q)."""

from __future__ import annotations

import dataclasses

import numpy as np

from mossp.newton.hessian import Hessian, is_dense
from mossp.newton.meter import Meter
from mossp.newton.residual import KKT, Evaluation


class ExactPenalty:
    """F + nu |(c_E, [c_I]_+)|_1, whose minimisers are those of the problem once nu > |q|_inf.

    nu rises, and is lowered a few times at most.
    """

    def __init__(self) -> None:
        self.nu = 0.0

    def __call__(self, at: Evaluation) -> float:
        return at.F + self.nu * float(np.abs(at.violated).sum())

    def require(self, nu: float) -> None:
        """Let nu be at least this large from now on."""
        self.nu = max(self.nu, nu)


@dataclasses.dataclass
class Reach:
    """What has been learnt of how far models of means of predictions hold (`newton.confined`)."""

    kappa: float = 1.0  # the usual losses bend over a unit of their predictions
    damping: float = 1e-3  # of |H|, in units of the residual
    lowered: int = 0  # how often nu was


@dataclasses.dataclass(frozen=True)
class Search:
    """The problem's residual and Hessian, the exact penalty, and the meter of what it all costs."""

    kkt: KKT
    hessian: Hessian
    penalty: ExactPenalty
    meter: Meter
    reach: Reach | None  # where f and constraints are means of predictions, and h is separable

    @classmethod
    def of(cls, kkt: KKT, meter: Meter) -> Search:
        reach = Reach() if confines(kkt) else None
        return cls(kkt, Hessian(kkt, meter), ExactPenalty(), meter, reach)

    def evaluate(self, x: np.ndarray, q: np.ndarray, t: float) -> Evaluation:
        """The pair, for which one pass over the data is paid."""
        self.meter.pay(gradients=self.kkt.rows)
        return self.kkt.evaluate(x, q, t)


def confines(kkt: KKT) -> bool:
    """Whether f and constraints are means of predictions, h is separable, and M is small."""
    return kkt.terms is not None and kkt.on_host and is_dense(kkt.oracles.structure.size)
