"""How close a point is to a KKT point, from a witness (Definition 2.1 of the paper).

    u = grad f(x) + J(x) q + s_h - s_g,     s_h in dh(x),  s_g in dg(y),  q the multipliers

with the full gradient where there is one. Samplers and streams give fresh samples instead, and
||u||^2 is then the inner product of two independent halves, which has the right expectation.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp.problem import Oracles
from mossp.programs import compiled

PyTree = Any
Vector = Any

FRESH_SAMPLES = 16_384  # of a Sampler or a Stream, in two halves


class Witness(NamedTuple):
    """What proves a point nearly stationary: u = grad f(x) + J(x) q + s_h - s_g is small.

    s_h is in the subdifferential of h at x, s_g in that of g at y, and the multipliers are
    q = lam + rho c(x), or [.]_+ of that for inequalities: lam = 0 for a penalty method.
    """

    x: Vector
    y: Vector
    s_h: Vector
    s_g: Vector
    lam: Vector
    rho: Any


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The residuals of one point, and what they prove.

    criticality               ||u||
    proximity                 ||x - y||
    feasibility               ||(c_E, [c_I]_+)||
    infeasible_stationarity   ||J (c_E, [c_I]_+)||
    complementarity           ||min(q_I, -c_I)||
    multipliers               {"equality": ..., "inequality": ...}, in the shapes of the constraints
    samples                   samples behind the gradient; None when it is exact
    form                      "witness": y and the subgradients come from the method's last step;
                              "exact": y = x, and u is the shortest one over all multipliers and
                              subgradients
    """

    criticality: float
    proximity: float
    feasibility: float
    infeasible_stationarity: float
    complementarity: float
    multipliers: dict[str, PyTree]
    smallest_multiplier: float  # of the inequalities; +inf without any
    samples: int | None
    form: str

    def is_kkt(self, eps: float) -> bool:
        """An eps-KKT point: critical, feasible, q_I >= 0, complementary."""
        return self._critical(eps) and self.feasibility <= eps

    def is_stationary(self, eps: float) -> bool:
        """An eps-stationary point: feasible, or stuck at a stationary point of ||c||^2."""
        return self._critical(eps) and self.infeasible_stationarity <= eps

    def _critical(self, eps: float) -> bool:
        residuals = (self.criticality, self.proximity, self.complementarity)
        return all(r <= eps for r in residuals) and self.smallest_multiplier >= 0

    @property
    def worst(self) -> float:
        """The smallest eps for which `is_kkt(eps)` holds."""
        residuals = (self.criticality, self.proximity, self.feasibility, self.complementarity)
        return max(residuals) if self.smallest_multiplier >= 0 else float("inf")


class Residuals(NamedTuple):
    """What is computed for one witness, on the device."""

    objective: Any  # F(x)
    gradient: Any  # grad f(x)
    criticality: Any
    proximity: Any
    feasibility: Any
    infeasible_stationarity: Any
    complementarity: Any
    q: Any


def value_and_gradients(
    oracles: Oracles, x: Vector, draws: PyTree, batch_size: int
) -> tuple[Any, Vector, Vector]:
    """(f, grad f, grad f), the two gradients from independent samples unless they are exact."""
    evaluate = jax.value_and_grad(oracles.f)
    if oracles.exact:
        f, g = oracles.source.mean(lambda batch: evaluate(x, batch))
        return f, g, g
    half = jax.tree.leaves(draws)[0].shape[0] // 2

    def mean(first: int) -> tuple[Any, Vector]:
        def add(j: Any, total: Any) -> Any:
            draw = jax.tree.map(lambda d: d[first + j], draws)
            value = evaluate(x, oracles.source.batch(draw, batch_size))
            return jax.tree.map(jnp.add, total, value)

        total = jax.lax.fori_loop(0, half, add, (jnp.zeros((), x.dtype), jnp.zeros_like(x)))
        return jax.tree.map(lambda t: t / half, total)

    (f1, g1), (f2, g2) = mean(0), mean(half)
    return (f1 + f2) / 2, g1, g2


@compiled(static_argnames="batch_size")
def residuals(
    oracles: Oracles, witnesses: Witness, draws: PyTree = None, *, batch_size: int
) -> Residuals:
    """For each witness (leading axis); fresh samples come from `draws` where they are needed."""

    def one(w: Witness) -> Residuals:
        f, g1, g2 = value_and_gradients(oracles, w.x, draws, batch_size)
        c, pullback = jax.vjp(oracles.c, w.x)
        q = oracles.active(w.lam + w.rho * c)
        rest = pullback(q)[0] + w.s_h - w.s_g
        violated = oracles.active(c)
        c_I, q_I = c[oracles.m_E :], q[oracles.m_E :]
        return Residuals(
            objective=f + oracles.regularizer(w.x),
            gradient=(g1 + g2) / 2,
            criticality=jnp.sqrt(jnp.maximum((g1 + rest) @ (g2 + rest), 0.0)),
            proximity=jnp.linalg.norm(w.x - w.y),
            feasibility=jnp.linalg.norm(violated),
            infeasible_stationarity=jnp.linalg.norm(pullback(violated)[0]),
            complementarity=jnp.linalg.norm(jnp.minimum(q_I, -c_I)),
            q=q,
        )

    # A few at a time: one pass over the data serves them all, and memory stays bounded.
    count = witnesses.x.shape[0]
    together = min(count, 8)
    rounds = -(-count // together)
    order = jnp.minimum(jnp.arange(rounds * together), count - 1).reshape(rounds, together)
    grouped = jax.tree.map(lambda a: a[order], witnesses)
    judged = jax.lax.map(jax.vmap(one), grouped)
    return jax.tree.map(lambda a: a.reshape(rounds * together, *a.shape[2:])[:count], judged)


def certificate(oracles: Oracles, r: Residuals, samples: int | None, form: str) -> Certificate:
    """The residuals of one witness, as a user reads them."""
    q = np.asarray(r.q, np.float64)
    q_I = q[oracles.m_E :]
    return Certificate(
        criticality=float(r.criticality),
        proximity=float(r.proximity),
        feasibility=float(r.feasibility),
        infeasible_stationarity=float(r.infeasible_stationarity),
        complementarity=float(r.complementarity),
        multipliers=oracles.named(q),
        smallest_multiplier=float(q_I.min()) if q_I.size else float("inf"),
        samples=samples,
        form=form,
    )


class Expectation(NamedTuple):
    """The paper's notion: root mean squares over replicas at a uniformly random step.

    Each residual comes with its standard error, NaN for a single replica.
    """

    criticality: float
    criticality_se: float
    proximity: float
    proximity_se: float
    feasibility: float
    feasibility_se: float
    infeasible_stationarity: float
    infeasible_stationarity_se: float
    replicas: int


def expectation(r: Residuals) -> Expectation:
    """sqrt(mean of squares), and by the delta method se(mean of squares) / (2 root)."""
    values: dict[str, float] = {}
    count = len(np.asarray(r.criticality))
    for name in ("criticality", "proximity", "feasibility", "infeasible_stationarity"):
        squares = np.asarray(getattr(r, name), np.float64) ** 2
        root = float(np.sqrt(squares.mean()))
        error = float(squares.std(ddof=1) / np.sqrt(count)) if count > 1 else np.nan
        values[name] = root
        values[name + "_se"] = error / (2 * root) if root > 0 else error
    return Expectation(**values, replicas=count)
