"""schedule="auto": what `mossp.measuring.step_sizes` fills in as the run goes on."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from mossp.constants import Constants
from mossp.estimators import GradientEstimator, Kind
from mossp.schedules.rule import Rule, check_positive
from mossp.schedules.schedule import Schedule


class Auto(Rule):
    """Nothing to set: rho, mu and alpha from the problem, measured again as the run goes on.

    See `mossp.measuring.step_sizes` for the formulas.

    Parameters
    ----------
    shorten : float
        Times the step that was measured, for functions that bend on the way.

    Examples
    --------
    >>> Auto().needs_K
    True
    """

    tuned: ClassVar[bool] = True
    shorten: Any = 1.0  # times the step that was measured, for functions that bend on the way

    def __check_init__(self) -> None:
        check_positive(self, "shorten")

    def schedule(self, momentum: GradientEstimator, K: int, constants: Constants) -> Schedule:
        """alpha only: rho, mu and mu_end are set by `step_sizes.retune` before the first step."""
        one = np.ones(())
        return Schedule(
            rho=one, mu=one, alpha=one * 0.1, mu_end=one, alpha_end=one * min(1.0, 200.0 / K),
            settle_from=one * K / 2, settled=one * K, eta=one,
        )  # fmt: skip

    def b0(self, momentum: GradientEstimator, K: int) -> int:
        # As in Theorem 3.2, also for an anchored estimator: its first step sizes are measured with
        # d_0, before the first anchor.
        many = momentum.kind in (Kind.RECURSIVE, Kind.ANCHORED)
        return math.ceil(K ** (1 / 3)) if many else 1

    def feasible_enough(self, momentum: GradientEstimator, K: int) -> float:
        return 1e-3
