"""What a method proves a point nearly stationary by (Definition 2.1 of the paper).

u = grad f(x) + J(x) q + s_h - s_g,     s_h in dh(x),  s_g in dg(y),  q the multipliers
"""

from __future__ import annotations

from typing import NamedTuple

from mossp._base.types import AnyMultipliers, AnyNumber, AnyVector


class Witness(NamedTuple):
    """What proves a point nearly stationary: u = grad f(x) + J(x) q + s_h - s_g is small.

    s_h is in the subdifferential of h at x, s_g in that of g at y, and the multipliers are
    q = lam + rho c(x), or [.]_+ of that for inequalities: lam = 0 for a penalty method. Where the
    objective has a part -E[g(x, xi)], s_g is the regulariser's own; that of E[g] at y is computed
    by who judges it.
    """

    x: AnyVector
    y: AnyVector
    s_h: AnyVector
    s_g: AnyVector
    lam: AnyMultipliers
    rho: AnyNumber
