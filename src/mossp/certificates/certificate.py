"""How close a point is to a KKT point, from a witness (Definition 2.1 of the paper).

    u = grad f(x) + J(x) q + s_h - s_g,     s_h in dh(x),  s_g in dg(y),  q the multipliers

with the full gradient where there is one. Samplers and streams give fresh samples instead, in
blocks, and ||u||^2 is then the mean inner product of two different blocks, which has the right
expectation; how far these products scatter gives its standard error.

Every residual is also read relative to its scale, by which rounding and the units of a problem
are measured, and which is at least 1:

    criticality       S, the largest norm among what the problem puts into u: grad f, s_g and the
                      shortest element of dh(x). J q and the rest of s_h balance these; they are
                      chosen by the proof, which must not make its own bound wider.
    proximity         ||x||
    feasibility       sum_i |x_i dc_j/dx_i|, which is at most ||grad c_j|| ||x||, of each
                      constraint by itself: c_j is then within tol if, to first order, relative
                      changes of the x_i by tol make it hold. A constraint in large units does not
                      excuse the others, nor does an entry of x that it does not depend on.
    complementarity   of min(q_j, -c_j): S for q_j, and for c_j as above
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.programs import compiled
from mossp.oracles import Oracles

PyTree = Any
Vector = Any

FRESH_SAMPLES = 16_384  # of a Sampler or a Stream, in BLOCKS
BLOCKS = 8
ERRORS = 2.0  # standard errors by which an estimate may be too small: a chance of a few per cent
ROWS = 32  # gradients of constraints that are formed at a time
# Changes of x up to this part of it speak for c to first order. They do not for exp(x) - 1, whose
# scale x exp(x) is at most 709 times its value, however large that is.
FIRST_ORDER = 1e-3
LARGE = 1e6  # multipliers beyond this many times what they balance are warned of


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
    samples                   samples behind the gradient; None for the full gradient
    criticality_error         two standard errors of an estimated ||u||, which is_kkt adds to it:
                              what is below tol then is so but for a chance of a few per cent
    criticality_scale, ...    what each residual is divided by where it is read relative to the
                              terms it is made of (`relative`); at least 1
    largest_multiplier        max |q_j| / criticality_scale: huge where constraints degenerate
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
    criticality_error: float = 0.0
    criticality_scale: float = 1.0
    proximity_scale: float = 1.0
    feasibility_scale: float = 1.0
    complementarity_scale: float = 1.0
    largest_multiplier: float = 0.0

    def is_kkt(self, eps: float, relative: bool = False) -> bool:
        """An eps-KKT point: critical, feasible, q_I >= 0, complementary.

        With relative=True, each residual is compared with eps times its scale: what `success` asks.
        """
        return self.smallest_multiplier >= 0 and all(
            self.bound(name, relative) <= eps for name in RESIDUALS
        )

    def is_stationary(self, eps: float) -> bool:
        """An eps-stationary point: feasible, or stuck at a stationary point of ||c||^2."""
        critical = all(self.bound(n, False) <= eps for n in RESIDUALS if n != "feasibility")
        return critical and self.smallest_multiplier >= 0 and self.infeasible_stationarity <= eps

    def relative(self, name: str) -> float:
        """A residual divided by its scale.

        >>> import numpy as np, mossp
        >>> problem = mossp.Problem(lambda x: 1e6 * x[0], equality=lambda x: x @ x - 1.0)
        >>> found = mossp.solve(problem, np.array([0.6, 0.8])).certificate
        >>> found.criticality_scale, found.relative("criticality") <= 1e-10
        (1000000.0, True)
        """
        return float(getattr(self, name) / getattr(self, f"{name}_scale"))

    def bound(self, name: str, relative: bool) -> float:
        """What a residual is at most, the error of an estimate included."""
        error = self.criticality_error if name == "criticality" else 0.0
        value = float(getattr(self, name) + error)
        scaled = value / getattr(self, f"{name}_scale")
        eased = relative and (name != "feasibility" or scaled <= FIRST_ORDER)
        return scaled if eased else value

    @property
    def worst(self) -> float:
        """The smallest eps for which `is_kkt(eps)` holds."""
        return self._worst(relative=False)

    @property
    def worst_relative(self) -> float:
        """The smallest eps for which `is_kkt(eps, relative=True)` holds."""
        return self._worst(relative=True)

    def _worst(self, relative: bool) -> float:
        bounds = [self.bound(name, relative) for name in RESIDUALS]
        bad = self.smallest_multiplier < 0 or any(b != b for b in bounds)  # NaN proves nothing
        return float("inf") if bad else max(bounds)


RESIDUALS = ("criticality", "proximity", "feasibility", "complementarity")


class Scales(NamedTuple):
    """What the residuals are divided by, and the size of the multipliers beside the first."""

    criticality: Any = 1.0
    proximity: Any = 1.0
    feasibility: Any = 1.0
    complementarity: Any = 1.0
    largest_multiplier: Any = 0.0


@np.errstate(over="ignore", invalid="ignore")  # far away, where nothing is certified
def scales(
    x: Vector, terms: tuple[Vector, ...], c: Vector, q: Vector, sizes: Vector, m_E: int
) -> Scales:
    """`terms` are those of u that the problem gives; `sizes` are sum_i |x_i dc_j/dx_i|.

    Several constraints have a scale each; the one that is reported gives the same relative number.
    """
    xp: Any = jnp if isinstance(x, jax.Array) else np
    norm = xp.linalg.norm

    def at_least_one(value: Any) -> Any:
        return xp.where(xp.isfinite(value), xp.maximum(value, 1.0), 1.0)

    def common(value: Any, relative: Any, otherwise: Any) -> Any:
        value, relative = norm(value), norm(relative)
        sound = xp.isfinite(value) & (relative > 0)
        return at_least_one(xp.where(sound, value / xp.where(sound, relative, 1.0), otherwise))

    S = at_least_one(xp.max(xp.stack([norm(term) for term in terms])))
    rows = at_least_one(sizes)
    largest = xp.max(rows, initial=1.0)
    violated = xp.where(xp.arange(len(c)) < m_E, c, xp.maximum(c, 0.0))
    q_I, c_I, rows_I = q[m_E:], c[m_E:], rows[m_E:]
    slack = xp.minimum(q_I, -c_I), xp.minimum(q_I / S, -c_I / rows_I)
    return Scales(
        criticality=S,
        proximity=at_least_one(norm(x)),
        feasibility=common(violated, violated / rows, largest),
        complementarity=common(*slack, 1.0),
        largest_multiplier=xp.max(xp.abs(q), initial=0.0) / S,
    )


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
    criticality_error: Any = 0.0
    scales: Any = Scales()


def value_and_gradients(
    oracles: Oracles, x: Vector, draws: PyTree, batch_size: int
) -> tuple[Any, Vector]:
    """(f, grad f in independent blocks, one a row); one row for a full one."""
    evaluate = jax.value_and_grad(oracles.f)
    if oracles.finite_sum:
        f, g = oracles.source.mean(lambda batch: evaluate(x, batch))
        return f, g[None]
    blocks, length = block_shape(draws)

    def mean(k: Any) -> tuple[Any, Vector]:
        def add(j: Any, total: Any) -> Any:
            draw = jax.tree.map(lambda d: d[k * length + j], draws)
            value = evaluate(x, oracles.source.batch(draw, batch_size))
            return jax.tree.map(jnp.add, total, value)

        total = jax.lax.fori_loop(0, length, add, (jnp.zeros((), x.dtype), jnp.zeros_like(x)))
        return jax.tree.map(lambda t: t / length, total)

    f, G = jax.lax.map(mean, jnp.arange(blocks))
    return jnp.mean(f), G


def block_shape(draws: PyTree) -> tuple[int, int]:
    """(blocks, batches in each); what is left over is not used."""
    count = jax.tree.leaves(draws)[0].shape[0]
    blocks = min(BLOCKS, count)
    return blocks, count // blocks


def mean_product(U: Any) -> Any:
    """The mean of <u_k, u_l> over k != l."""
    K, total = len(U), U.sum(axis=0)
    return (total @ total - (U * U).sum()) / (K * (K - 1))


def length_of_mean(U: Any) -> tuple[Any, Any]:
    """(||u||, its error) from independent estimates of u, one a row.

    The mean of <u_k, u_l> over k != l is ||u||^2 in expectation. With d_k = u_k - mean, V their
    covariance and K blocks, its variance is 4 u'V u / K + 2 tr(V^2) / (K (K - 1)).
    """
    xp: Any = jnp if isinstance(U, jax.Array) else np
    K = len(U)
    mean = xp.mean(U, axis=0)
    if K == 1:  # the full gradient
        return xp.linalg.norm(mean), xp.zeros((), U.dtype)
    D = U - mean
    within, across = D @ D.T, D @ mean
    # <d_k, d_l> is -tr(V) / K in the mean, since all d_k sum to 0: that part is no scatter.
    products = within + (xp.trace(within) / (K * (K - 1)) if K > 3 else 0.0)
    apart = (xp.sum(products**2) - xp.sum(xp.diag(products) ** 2)) / (K * (K - 1))
    # Of the mean, and of the mean's part along itself.
    along = xp.sum(across**2) / (K * (K - 1))
    direction = along / xp.maximum(mean @ mean, xp.finfo(U.dtype).tiny)
    square = xp.maximum(mean_product(U), 0.0)
    length = xp.sqrt(square)
    # A mean that is too short by chance also makes 4 u'V u / K too small: never less than the
    # error along the mean.
    bound = xp.sqrt(square + ERRORS * xp.sqrt(4 * along + 2 * apart / (K * (K - 1))))
    return length, xp.maximum(bound - length, ERRORS * xp.sqrt(direction))


def constraint_sizes(oracles: Oracles, x: Vector, pullback: Any) -> Vector:
    """sum_i |x_i dc_j/dx_i|, a number of them at a time, so that no Jacobian is held."""
    if oracles.m == 0:
        return jnp.zeros(0, x.dtype)

    def row(j: Any) -> Any:
        unit = jnp.zeros(oracles.m, x.dtype).at[j].set(1.0)
        return jnp.sum(jnp.abs(x * pullback(unit)[0]))

    return jax.lax.map(row, jnp.arange(oracles.m), batch_size=min(oracles.m, ROWS))


@compiled(static_argnames="batch_size")
def residuals(
    oracles: Oracles, witnesses: Witness, draws: PyTree = None, *, batch_size: int
) -> Residuals:
    """For each witness (leading axis); fresh samples come from `draws` where they are needed."""

    def one(w: Witness) -> Residuals:
        f, G = value_and_gradients(oracles, w.x, draws, batch_size)
        gradient = jnp.mean(G, axis=0)
        c, pullback = jax.vjp(oracles.c, w.x)
        q = oracles.positive_part(w.lam + w.rho * c)
        rest = pullback(q)[0] + w.s_h - w.s_g
        violated = oracles.positive_part(c)
        c_I, q_I = c[oracles.m_E :], q[oracles.m_E :]
        criticality, error = length_of_mean(G + rest)
        terms = (gradient, w.s_g, oracles.regularizer.nearest_h(w.x, jnp.zeros_like(w.x)))
        sizes = constraint_sizes(oracles, w.x, pullback)
        return Residuals(
            objective=f + oracles.regularizer(w.x),
            gradient=gradient,
            criticality=criticality,
            proximity=jnp.linalg.norm(w.x - w.y),
            feasibility=jnp.linalg.norm(violated),
            infeasible_stationarity=jnp.linalg.norm(pullback(violated)[0]),
            complementarity=jnp.linalg.norm(jnp.minimum(q_I, -c_I)),
            q=q,
            criticality_error=error,
            scales=scales(w.x, terms, c, q, sizes, oracles.m_E),
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
        criticality_error=float(r.criticality_error),
        **scale_fields(r.scales),
    )


def scale_fields(found: Scales) -> dict[str, float]:
    """As a Certificate has them."""
    named = found._asdict()
    return {
        name if name == "largest_multiplier" else f"{name}_scale": float(value)
        for name, value in named.items()
    }


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
