"""Constrained stochastic optimisation with difference-of-convex regularisers.

min  E[f(x, xi)] + h(x) - g(x)    s.t.  c_E(x) = 0,  c_I(x) <= 0
"""

from typing import TYPE_CHECKING

from mossp._base import later

with later.without_collections():
    from mossp import constraints, losses, smoothing
    from mossp._base.crew import ProcessLost
    from mossp._base.disk import cache
    from mossp.constants import Constants
    from mossp.data import Sampler, Stream
    from mossp.expected import Expected, group_weights
    from mossp.foreign import from_numpy
    from mossp.problem import Problem
    from mossp.regularizers import (
        L1,
        MCP,
        SCAD,
        Ball,
        Blocks,
        Box,
        CappedL1,
        Cardinality,
        ElasticNet,
        Group,
        L1MinusL2,
        LogSum,
        Nonnegative,
        PlusRidge,
        Regularizer,
        Ridge,
        TransformedL1,
        TruncatedL1,
        TruncatedL1MinusL2,
        Weighted,
        Zero,
        check_regularizer,
    )

# What a problem is made of is imported above. What solves, judges and shows it is found when it is
# first used, here and, for static checkers, once more below.
if TYPE_CHECKING:
    from mossp import (  # noqa: F401  # rooms that are found as well
        certificates,
        estimators,
        examples,
        measuring,
        methods,
        moreau,
        rates,
        report,
        result,
        schedules,
        solving,
    )
    from mossp._base.archive import CheckpointError
    from mossp._base.launching import distributed
    from mossp.certificates.certificate import Certificate
    from mossp.certificates.feasibility import restore
    from mossp.certificates.gradients import check_gradients
    from mossp.certificates.stationarity import stationarity
    from mossp.data.on_disk import OnDisk
    from mossp.data.sharded import Sharded
    from mossp.estimators import (
        SVRG,
        Full,
        GradientEstimator,
        Plain,
        Polyak,
        Recursive,
        Truncated,
    )
    from mossp.measuring.estimate import estimate_constants
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
        SSLALM,
        Method,
        MoSSP,
        MoSSPAL,
    )
    from mossp.report import plot, write_page
    from mossp.result import Result, Status
    from mossp.solving.comparison import Comparison, compare
    from mossp.solving.grid import Tuning, tune
    from mossp.solving.path import Path, path
    from mossp.solving.solve import Progress, solve
else:
    __getattr__, __dir__ = later.attributes(
        __name__,
        names={
            "mossp._base.archive": "CheckpointError",
            "mossp._base.launching": "distributed",
            "mossp.certificates.certificate": "Certificate",
            "mossp.certificates.feasibility": "restore",
            "mossp.certificates.gradients": "check_gradients",
            "mossp.certificates.stationarity": "stationarity",
            "mossp.data.on_disk": "OnDisk",
            "mossp.data.sharded": "Sharded",
            "mossp.estimators": "SVRG Full GradientEstimator Plain Polyak Recursive Truncated",
            "mossp.measuring.estimate": "estimate_constants",
            "mossp.methods": "CLCDC IMBA METHODS MLALM SALM SDC SMAG SPD SPDC SQPDC SSDC SSLALM"
            " Method MoSSP MoSSPAL",
            "mossp.report": "plot write_page",
            "mossp.result": "Result Status",
            "mossp.solving.comparison": "Comparison compare",
            "mossp.solving.grid": "Tuning tune",
            "mossp.solving.path": "Path path",
            "mossp.solving.solve": "Progress solve",
        },
        modules="certificates estimators examples measuring methods moreau rates report result"
        " schedules solving",
    )

__version__ = "0.2.0"

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
    "SSLALM",
    "SVRG",
    "Ball",
    "Blocks",
    "Box",
    "CappedL1",
    "Cardinality",
    "Certificate",
    "CheckpointError",
    "Comparison",
    "Constants",
    "ElasticNet",
    "Expected",
    "Full",
    "GradientEstimator",
    "Group",
    "L1MinusL2",
    "LogSum",
    "Method",
    "MoSSP",
    "MoSSPAL",
    "Nonnegative",
    "OnDisk",
    "Path",
    "Plain",
    "PlusRidge",
    "Polyak",
    "Problem",
    "ProcessLost",
    "Progress",
    "Recursive",
    "Regularizer",
    "Result",
    "Ridge",
    "Sampler",
    "Sharded",
    "Status",
    "Stream",
    "TransformedL1",
    "Truncated",
    "TruncatedL1",
    "TruncatedL1MinusL2",
    "Tuning",
    "Weighted",
    "Zero",
    "cache",
    "check_gradients",
    "check_regularizer",
    "compare",
    "constraints",
    "distributed",
    "estimate_constants",
    "examples",
    "from_numpy",
    "group_weights",
    "losses",
    "moreau",
    "path",
    "plot",
    "rates",
    "restore",
    "schedules",
    "smoothing",
    "solve",
    "stationarity",
    "tune",
    "write_page",
]
