"""Whether a method can take a problem; if not, what is missing and which method can."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.types import Vector
from mossp.methods.base import Method
from mossp.oracles import Oracles


def objection(method: Method, oracles: Oracles, x0: Vector) -> str | None:
    """What the problem has that the method cannot take; None where it can."""
    about, reg = method.about, oracles.regularizer
    if method.momentum.vanishing and not oracles.finite_sum:
        return "needs full gradients, which a Sampler or a Stream cannot give"
    if about.concave == "zero" and not reg.convex:
        return f"takes no concave part, but the regulariser {named(reg)} subtracts a function g"
    if method.subgradient_of_h and not reg.finite:
        return f"takes subgradients of h, but that of {named(reg)} is infinite outside of a set"
    if oracles.samples_constraints and not method.samples_constraints:
        return "takes constraints that are functions of x alone, but one is a mean over rows"
    if oracles.concave is not None and not method.samples_concave:
        return "takes a concave part with a proximal map, but the problem's is a mean over rows"
    if about.constraints == "inequalities" and oracles.m_E:
        return "takes inequalities only, but the problem has an equality constraint"
    if about.constraints == "linear":
        if oracles.m > oracles.m_E:
            return "takes linear equalities only, but the problem has an inequality constraint"
        if not is_linear(oracles, x0):
            return "takes linear equalities only, but the equality constraint is not linear"
    return None


def named(reg: Any) -> str:
    return type(reg).__name__.removeprefix("Flat")


def is_linear(oracles: Oracles, x0: Vector) -> bool:
    """Whether J v is the same at points near and far, for a few directions v."""
    if oracles.m == 0:
        return True
    rng, x = np.random.default_rng(0), jnp.asarray(x0)
    size = max(float(jnp.linalg.norm(x)), 1.0)
    v, w = (jnp.asarray(rng.standard_normal(x.shape), x.dtype) for _ in range(2))
    points = (x, *(x + size * scale * w for scale in (1e-2, 1.0, 10.0, -1e-2, -1.0, -10.0)))
    seen = np.array([np.asarray(jax.jvp(oracles.c, (p,), (v,))[1]) for p in points])
    rounding = float(jnp.finfo(x.dtype).eps) ** 0.5
    return bool((np.ptp(seen, axis=0) <= rounding * abs(seen).max(axis=0)).all())
