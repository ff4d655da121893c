"""Regularisers by name, for those who write no Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mossp._base import naming
from mossp.regularizers.base import Regularizer
from mossp.regularizers.norms import L1MinusL2, Truncated, TruncatedL1, TruncatedL1MinusL2
from mossp.regularizers.ridge import ElasticNet, Ridge
from mossp.regularizers.separable import L1, MCP, SCAD, CappedL1, LogSum, TransformedL1, Zero

DEFAULT_LAM = 0.01


def _truncated(kind: type[Truncated]) -> Callable[[float, float], Regularizer]:
    def make(lam: float, k: float) -> Regularizer:
        if k % 1:
            raise ValueError(f"The number of entries left out must be whole, but k = {k:g}.")
        return kind(lam, int(k))

    make.__name__ = kind.__name__
    return make


NAMES: Mapping[str, Callable[..., Regularizer]] = {
    "none": Zero,
    "l1": L1,
    "ridge": Ridge,
    "elastic-net": ElasticNet,
    "l1-l2": L1MinusL2,
    "capped-l1": CappedL1,
    "mcp": MCP,
    "scad": SCAD,
    "log-sum": LogSum,
    "transformed-l1": TransformedL1,
    "truncated-l1": _truncated(TruncatedL1),
    "truncated-l1-l2": _truncated(TruncatedL1MinusL2),
}

# Names that are used elsewhere, or that read like another one here.
MEANT = {"l2": "ridge", "tikhonov": "ridge", "lasso": "l1", "enet": "elastic-net"}


def find(text: object) -> tuple[Callable[..., Regularizer], list[float]]:
    """What makes the regulariser that a text names, and the numbers after its colon.

    Examples
    --------
    >>> find("elastic-net:0.1,0.9")
    (<class 'mossp.regularizers.ridge.ElasticNet'>, [0.1, 0.9])
    """
    return naming.find(text, NAMES, "regulariser", MEANT)


def named(text: str, lam: float | None = None) -> Regularizer:
    """The regulariser of this name, its parameters after a colon, the strength first.

    Parameters
    ----------
    text : str
        A name such as "mcp", with numbers if wanted, "mcp:0.1,4".
    lam : float, optional
        The strength, instead of the one in the text; 0.01 where neither is given.

    Returns
    -------
    Regularizer

    Examples
    --------
    >>> named("mcp:0.1,4"), named("l1", 0.5).lam
    (MCP(lam=0.1, gamma=4.0), 0.5)
    """
    make, numbers = find(text)
    if make is Zero:
        return naming.call(make, numbers, text)
    strength = [lam] if lam is not None else numbers[:1] or [DEFAULT_LAM]
    return naming.call(make, strength + numbers[1:], text)
