"""Constrained stochastic optimisation with difference-of-convex regularisers.

    min  E[f(x, xi)] + h(x) - g(x)    s.t.  c_E(x) = 0,  c_I(x) <= 0
"""

from mossp import constraints, examples, losses, moreau, schedules
from mossp.certificate import Certificate
from mossp.checkpoint import CheckpointError
from mossp.constants import Constants, estimate_constants
from mossp.data import Sampler, Stream
from mossp.feasibility import restore
from mossp.methods import METHODS, MoSSP
from mossp.momentum import SVRG, Plain, Polyak, Recursive, Truncated
from mossp.problem import Problem
from mossp.regularizers import *  # noqa: F403
from mossp.regularizers import __all__ as _regularizers
from mossp.report import plot, write_page
from mossp.result import Result, Status
from mossp.solve import Progress, solve
from mossp.stationarity import stationarity

__version__ = "0.1.0"
