"""At most k entries that are not zero, as a hard limit.

The indicator of {|x|_0 <= k} is no difference of convex functions with proximal maps, but lam times
the truncated l1 norm is zero on that set alone, and for lam large enough minimises over it: lam
above the slopes of the smooth part keeps every further entry at zero. `solve` raises lam until the
answer has at most k entries, and never hands out one with more.
"""

from __future__ import annotations

import jax

from mossp._base.types import AnyNumber, PyTree
from mossp.regularizers.base import Regularizer
from mossp.regularizers.norms import TruncatedL1


class Cardinality(TruncatedL1):
    """At most k entries of x are not zero: a hard limit.

    With `mossp.Group(mossp.Cardinality(k), groups)` at most k groups are not zero.

    Parameters
    ----------
    k : int
        The most entries that may be nonzero, at least 0.
    lam : float
        Where the strength of the penalty that makes the limit exact begins; `solve` raises it as
        far as it must.

    Examples
    --------
    >>> import numpy as np, mossp
    >>> target = np.array([3.0, -0.5, 2.0, 1.0])
    >>> problem = mossp.Problem(lambda x: (x - target) @ (x - target), regularizer=Cardinality(2))
    >>> result = mossp.solve(problem, np.zeros(4))
    >>> np.round(result.x, 6).tolist(), result.success
    ([3.0, 0.0, 2.0, 0.0], True)
    """

    def __init__(self, k: AnyNumber, lam: AnyNumber = 1.0) -> None:
        self.lam, self.k = lam, k


def is_limit(regularizer: PyTree) -> bool:
    """Whether a hard limit is anywhere in a regulariser."""
    found = jax.tree.leaves(regularizer, is_leaf=lambda part: isinstance(part, Cardinality))
    return isinstance(regularizer, Regularizer) and any(isinstance(p, Cardinality) for p in found)
