"""Short runs in three variables."""

from __future__ import annotations

import numpy as np

import mossp
from mossp import schedules

X0 = np.array([0.1, 0.2, -0.1])
STEADY = schedules.Constant(rho=1.0, mu=0.01)


def solve(problem, x0=X0, **settings):
    return mossp.solve(problem, x0, **{"method": "mossp-r", "steps": 2000, "seed": 0, **settings})
