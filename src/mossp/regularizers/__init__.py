"""Regularisers h - g: differences of convex functions whose proximal maps are known one by one."""

from mossp.regularizers.base import Regularizer
from mossp.regularizers.blocks import Blocks
from mossp.regularizers.cardinality import Cardinality
from mossp.regularizers.check import check_regularizer
from mossp.regularizers.combine import Ball, Box, Nonnegative, Relaxed, Weighted
from mossp.regularizers.groups import Group
from mossp.regularizers.names import named
from mossp.regularizers.norms import L1MinusL2, TruncatedL1, TruncatedL1MinusL2
from mossp.regularizers.ridge import ElasticNet, PlusRidge, Ridge
from mossp.regularizers.separable import L1, MCP, SCAD, CappedL1, LogSum, TransformedL1, Zero
from mossp.regularizers.tilted import Tilted

__all__ = [
    "L1",
    "MCP",
    "SCAD",
    "Ball",
    "Blocks",
    "Box",
    "CappedL1",
    "Cardinality",
    "ElasticNet",
    "Group",
    "L1MinusL2",
    "LogSum",
    "Nonnegative",
    "PlusRidge",
    "Regularizer",
    "Relaxed",
    "Ridge",
    "Tilted",
    "TransformedL1",
    "TruncatedL1",
    "TruncatedL1MinusL2",
    "Weighted",
    "Zero",
    "check_regularizer",
    "named",
]
