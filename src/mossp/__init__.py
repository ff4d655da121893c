"""Constrained stochastic optimisation with difference-of-convex regularisers.

min  E[f(x, xi)] + h(x) - g(x)    s.t.  c_E(x) = 0,  c_I(x) <= 0
"""

from mossp import constraints, examples, losses, moreau, schedules
from mossp.certificate import Certificate
from mossp.checkpoint import CheckpointError
from mossp.constants import Constants, estimate_constants
from mossp.data import Sampler, Stream
from mossp.feasibility import restore
from mossp.gradients import check_gradients
from mossp.methods import (
    CLCDC,
    IMBA,
    METHODS,
    MLALM,
    SALM,
    SDC,
    SMAG,
    SPD,
    SPDC,
    SQPDC,
    SSDC,
    MoSSP,
    MoSSPAL,
)
from mossp.momentum import SVRG, Full, Plain, Polyak, Recursive, Truncated
from mossp.path import Path, path
from mossp.problem import Problem
from mossp.regularizers import (
    L1,
    MCP,
    SCAD,
    Ball,
    Blocks,
    Box,
    CappedL1,
    Group,
    L1MinusL2,
    LogSum,
    Nonnegative,
    Regularizer,
    TransformedL1,
    TruncatedL1,
    TruncatedL1MinusL2,
    Weighted,
    Zero,
    check_regularizer,
)
from mossp.report import plot, write_page
from mossp.result import Result, Status
from mossp.solve import Progress, solve
from mossp.stationarity import stationarity
from mossp.tune import Tuning, tune

__version__ = "0.1.0"

__all__ = [
    "CLCDC",
    "IMBA",
    "L1",
    "MCP",
    "METHODS",
    "MLALM",
    "SALM",
    "SCAD",
    "SDC",
    "SMAG",
    "SPD",
    "SPDC",
    "SQPDC",
    "SSDC",
    "SVRG",
    "Ball",
    "Blocks",
    "Box",
    "CappedL1",
    "Certificate",
    "CheckpointError",
    "Constants",
    "Full",
    "Group",
    "L1MinusL2",
    "LogSum",
    "MoSSP",
    "MoSSPAL",
    "Nonnegative",
    "Path",
    "Plain",
    "Polyak",
    "Problem",
    "Progress",
    "Recursive",
    "Regularizer",
    "Result",
    "Sampler",
    "Status",
    "Stream",
    "TransformedL1",
    "Truncated",
    "TruncatedL1",
    "TruncatedL1MinusL2",
    "Tuning",
    "Weighted",
    "Zero",
    "check_gradients",
    "check_regularizer",
    "constraints",
    "estimate_constants",
    "examples",
    "losses",
    "moreau",
    "path",
    "plot",
    "restore",
    "schedules",
    "solve",
    "stationarity",
    "tune",
    "write_page",
]
