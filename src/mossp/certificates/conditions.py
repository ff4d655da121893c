"""The constraints of an answer, one line each: where it stands, and what a bound costs.

With multipliers q, moving the bound of c_j <= 0 to c_j <= e changes the lowest objective by -q_j e,
to first order: a multiplier is the price of its bound.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import jax
import numpy as np

from mossp._base.types import PyTree
from mossp.certificates.certificate import Certificate

RELATION = re.compile(r"(<=|>=|=)")
QUOTED = r"""\"[^\"]*\"|'[^']*'"""
ASIDE = re.compile(rf"{QUOTED}|\[(?:{QUOTED}|[^\]])*\]")  # quoted, or the group of a rate
ACTIVE, SLACK, VIOLATED = "active", "slack", "violated"


class Condition(NamedTuple):
    """One constraint at the answer."""

    text: str  # as it was written, or by its name
    relation: str  # "=" , "<=" or ">="
    value: float  # of what is bounded
    bound: float
    slack: float  # to the bound; negative where it is violated
    multiplier: float
    state: str  # "active", "slack" or "violated"


def conditions(certificate: Certificate, tol: float) -> list[Condition]:
    """Every constraint with its value, its bound, its slack and its multiplier.

    Examples
    --------
    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(
    ...     loss=lambda x: (x - 2.0) @ (x - 2.0),
    ...     inequality=lambda x: {"x[0] <= 1": x[0] - 1.0, "x[1] >= 0": -x[1]},
    ... )
    >>> result = mossp.solve(problem, np.zeros(2))
    >>> for c in conditions(result.certificate, result.tol):
    ...     print(c.text, round(c.value, 6), round(c.multiplier, 6), c.state)
    x[0] <= 1 1.0 2.0 active
    x[1] >= 0 2.0 0.0 slack
    """
    found = []
    for kind, values in certificate.values.items():
        multipliers = jax.tree.leaves(certificate.multipliers.get(kind, ()))
        leaves = jax.tree_util.tree_flatten_with_path(values)[0]
        for (path, leaf), q in zip(leaves, multipliers, strict=True):
            stem = _name(path, kind)
            several = np.size(leaf) > 1
            for index in np.ndindex(np.shape(leaf)):
                name = f"{stem}[{', '.join(map(str, index))}]" if several else stem
                c, price = float(np.asarray(leaf)[index]), float(np.asarray(q)[index])
                found.append(_condition(name, several, kind, c, price, certificate, tol))
    return found


def _condition(
    name: str, several: bool, kind: str, c: float, price: float, certificate: Certificate,
    tol: float,
) -> Condition:  # fmt: skip
    relation, bound, value = "=" if kind == "equality" else "<=", 0.0, c
    parts = _sides(name)
    number = _number(parts[2]) if len(parts) == 3 and not several else None
    if number is not None:  # c is left - right, or right - left for >=
        relation, bound = parts[1], number
        value = bound - c if relation == ">=" else bound + c
    near = tol * max(certificate.feasibility_scale, 1.0)
    if (abs(c) if relation == "=" else c) > near:
        state = VIOLATED
    else:
        state = ACTIVE if relation == "=" or price > 0 or abs(c) <= near else SLACK
    return Condition(name, relation, value, bound, -abs(c) if relation == "=" else -c, price, state)


def _sides(text: str) -> list[str]:
    """The text cut at its relations, [left, "<=", right], not at those of quotes and groups.

    Examples
    --------
    >>> _sides("tpr[sex=F] >= 0.8")
    ['tpr[sex=F] ', '>=', ' 0.8']
    """
    outside = ASIDE.sub(lambda found: "." * len(found[0]), text)
    ends = [place for found in RELATION.finditer(outside) for place in found.span()]
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


def _name(path: PyTree, kind: str) -> str:
    parts = [str(getattr(p, "key", getattr(p, "name", getattr(p, "idx", p)))) for p in path]
    return parts[-1] if parts else kind


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
