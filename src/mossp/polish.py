"""From a nearly stationary point to full precision: Newton on the KKT system with the full data.

A KKT point is a zero of

    R(x, q) = x - prox_{t h}(x - t W),   W = grad f(x) + J(x) q - grad g(x)        for any t > 0
    c_E(x)  and, for inequalities, min(q_I, -c_I(x))

All of it is piecewise smooth, and the pieces are what is identified: where D = prox_{t h}'(x - t W)
has a zero row, an entry stays where h has its kink (at 0, at a bound); where q_I + kappa c_I > 0 an
inequality is active; grad g is differentiated as it is at x. On these pieces a Newton step solves

    [ H + (1/D - 1)/t   J_A ] [ dx ]       [ R / (t D) ]
    [ J_A'               0  ] [ dq ]  =  - [ c_A       ],  H = Hess (f - g) + sum_j q_j Hess c_j

over the range of D; the other entries go to their kink at once. Entries enter and leave by the same
formula, which is the optimality condition. Only the columns of H that are needed are formed, by
Hessian-vector products in one pass over the data; beyond DENSE of them none is (MINRES). Of many
rows only some are taken for H, and what they miss is made up by what gradients show between two
steps (SR1); the gradients are of all rows, so that the solution is.

A step is taken if the exact penalty F + nu |c|_1 does not rise, or if the residual halves; negative
curvature on the constraints' tangent space is reversed, so that no saddle attracts. Where Newton's
method finds no such step, a few steps of sqp-dc with the full gradient lead on. The point that is
handed back is never worse than the one that came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse.linalg

from mossp import keys
from mossp.certificate import Witness
from mossp.constants import start_vector
from mossp.data import Finite
from mossp.dual import constrained_prox
from mossp.feasibility import constraints_and_jacobian, into_domain, on_host
from mossp.problem import Oracles
from mossp.stationarity import ACTIVE, bounded_least_squares

Vector = Any

STEPS = 40
SAFE_STEPS, SAFE_AT_ONCE = 200, 8
HALVINGS, RAISES = 8, 4
SHORT = 0.1  # a short t, in units of a long one
SOME_ROWS = 2**16  # of many, for the Hessian
DENSE = 2000  # variables beyond which no Hessian is formed
COLUMNS, FEWEST_COLUMNS = 256, 32  # of the Hessian, formed in one pass over the data
CURVATURE = 1e-10  # relative: less than this counts as none


class Polished(NamedTuple):
    """`improved`: whether the witness proves more than the point that came; else it is that one."""

    witness: Witness
    residual: float
    improved: bool
    steps: int
    gradients: int  # samples differentiated
    products: int  # samples behind Hessian-vector products


class Look(NamedTuple):
    """All that is needed of a pair (x, q)."""

    x: Any
    q: Any
    F: Any
    gradient: Any  # of f
    W: Any
    p: Any  # prox_{t h}(x - t W)
    free: Any  # rows of D that are not zero
    c: Any
    J: Any
    residual: float = np.inf


class Polisher:
    """Newton's method from one point. Counts what it costs."""

    def __init__(self, oracles: Oracles, x: Vector) -> None:
        self.oracles, self.regularizer = oracles, on_host(oracles)
        self.some = thinned(oracles)  # rows for the Hessian
        self.secants: tuple[Any, list[np.ndarray]] = (None, [])
        self.model: Any = None  # the support, H there and H times the move of the rest
        self.dtype = np.asarray(x).dtype
        self.is_equality = np.arange(oracles.m) < oracles.m_E
        self.gradients, self.products, self.nu = 0, 0, 0.0
        self.t = self.long = 1.0

    def look(self, x: np.ndarray, q: np.ndarray) -> Look:
        x, q = np.asarray(x, self.dtype), np.asarray(q, self.dtype)
        F, gradient, W, p, free = (
            np.asarray(a, np.float64)
            for a in jax.device_get(_look(self.oracles, x, q, np.asarray(self.t, self.dtype)))
        )
        c, J = (np.array(a, np.float64) for a in constraints_and_jacobian(self.oracles, x))
        self.gradients += row_count(self.oracles)
        seen = Look(x.astype(float), q.astype(float), float(F), gradient, W, p, free != 0, c, J)
        return seen._replace(residual=self.residual(seen))

    def residual(self, at: Look) -> float:
        parts = [(at.x - at.p) / self.t, self.violated(at), self.slack(at)]
        finite = np.isfinite(at.F) and all(np.isfinite(part).all() for part in parts)
        return max(float(np.linalg.norm(part)) for part in parts) if finite else np.inf

    def violated(self, at: Look) -> np.ndarray:
        return np.where(self.is_equality, at.c, np.maximum(at.c, 0))

    def violation(self, at: Look) -> float:
        return float(np.linalg.norm(self.violated(at)))

    def slack(self, at: Look) -> np.ndarray:
        """min(q_I, -c_I), which complementarity makes 0."""
        return np.where(self.is_equality, 0.0, np.minimum(at.q, -at.c))

    def proved(self, at: Look, s_h: np.ndarray) -> float:
        """The largest residual that an element of dh(x) leaves."""
        slack, u = np.linalg.norm(self.slack(at)), np.linalg.norm(at.W + s_h)
        return max(self.violation(at), float(slack), float(u))

    def penalty(self, at: Look) -> float:
        """F + nu |c|_1, whose minimisers are those of the problem once nu > |q|."""
        return at.F + self.nu * float(np.abs(self.violated(at)).sum())

    def start(self, x: np.ndarray) -> Look:
        """x with its least-squares multipliers; sets t and nu."""
        zero = np.zeros(self.oracles.m)
        at = self.look(x, zero)
        if not np.isfinite(at.residual) or not np.isfinite(at.J).all():
            return at
        # Any t will do at a solution. Far from one, entries leave where they are shorter than t
        # times what W is off by: a short t keeps those that are wanted, a long one lets others go.
        some = min(FEWEST_COLUMNS, len(at.x))
        rng = keys.generator(0, keys.Purpose.POLISH)
        E = np.linalg.qr(rng.standard_normal((len(at.x), some)))[0].T
        L = np.linalg.norm(self.products_with(at, E)[1], 2)
        self.long = 1 / float(L) if np.isfinite(L) and L > 0 else 1.0
        self.t = SHORT * self.long
        q = self.multipliers(at)
        self.nu = 2 * float(np.abs(q).max(initial=0.0))
        return self.with_multipliers(at, q)

    def with_multipliers(self, at: Look, q: np.ndarray) -> Look:
        """The pair (x, q) without another look at the data."""
        W = at.W + (q - at.q) @ at.J
        v, prox_h = at.x - self.t * W, self.regularizer.prox_h
        p = np.asarray(prox_h(v, self.t), np.float64)
        # D has a zero row where a small move of v moves nothing.
        small = 1e-6 * (1 + np.abs(v).max()) * (2 + np.cos(np.arange(len(v)) ** 2.0))
        free = np.asarray(prox_h(v + small, self.t)) != p
        seen = at._replace(q=q, W=W, p=p, free=free)
        return seen._replace(residual=self.residual(seen))

    def multipliers(self, at: Look) -> np.ndarray:
        """Those that leave least of grad f + J q + dh - dg over the nonzero entries."""
        rows = self.is_equality | (at.c >= -ACTIVE)
        on = at.x != 0
        q = np.zeros(len(at.c))
        if not rows.any() or not on.any():
            return q
        r = at.gradient + np.asarray(self.regularizer.nearest(at.x, -at.gradient))
        lower = np.where(self.is_equality, -np.inf, 0.0)[rows]
        q[rows] = bounded_least_squares(at.J[rows][:, on].T, -r[on], lower)
        return q

    # One step ----------------------------------------------------------------------------

    def direction(self, at: Look) -> tuple[np.ndarray, np.ndarray] | None:
        """(dx, dq) of Newton's method, or None where the system says nothing."""
        kappa = 1 / (self.t * np.maximum(np.sum(at.J**2, axis=1), 1e-300))
        active = self.is_equality | (at.q + kappa * at.c > 0)
        R, J, (S,) = at.x - at.p, at.J[active], np.nonzero(at.free)
        dx, q = np.where(at.free, 0.0, -R), np.where(active, at.q, 0.0)
        solve = self.dense if len(S) <= DENSE else self.matrix_free
        found = solve(at._replace(q=q), S, dx, R, J, at.c[active])
        if not all(np.isfinite(part).all() for part in found):
            return None
        dq = q - at.q
        dx[S] += found[0]
        dq[active] += found[1]
        return dx, dq

    def dense(
        self, at: Look, S: Vector, fixed: Vector, R: Vector, J: Any, c: Vector
    ) -> tuple[np.ndarray, np.ndarray]:
        D, H, pull = self.columns(at, S, fixed)
        if self.some is not self.oracles:
            same = np.array_equal(self.secants[0], S)
            self.secants = (S, self.secants[1] if same else [])
            H = H + sum(np.outer(r, r) for r in self.secants[1]) if self.secants[1] else H
            self.model = (S, H, pull)
        d, U = np.ones(len(S)), np.eye(len(S))
        if len(S) and np.abs(D - np.eye(len(S))).max() > 1e-12:
            d, U = np.linalg.eigh(D)
        rigid = d < 1e-8  # directions across a curved boundary of dom h: no motion along them
        stay = -U[:, rigid] @ (U[:, rigid].T @ R[S])
        V, d = U[:, ~rigid], d[~rigid]
        A = V.T @ H @ V + np.diag((1 / d - 1) / self.t)
        b = -(V.T @ R[S]) / (d * self.t) - V.T @ (pull + H @ stay)
        K = J[:, S] @ V
        y, dq = tangential(A, K, b, -c - J @ fixed - J[:, S] @ stay)
        return V @ y + stay, dq

    def columns(self, at: Look, S: np.ndarray, fixed: np.ndarray) -> tuple[Any, Any, np.ndarray]:
        """D and H on S, and (H fixed) on S."""
        E = np.zeros((len(S) + 1, len(at.x)))
        E[np.arange(len(S)), S] = 1.0
        E[len(S)] = fixed
        D, H = self.products_with(at, E)[:, :, S]
        pull, D, H = H[-1], D[:-1], H[:-1]
        return (D + D.T) / 2, (H + H.T) / 2, pull

    def products_with(self, at: Look, E: np.ndarray) -> np.ndarray:
        """(D e, H e) for the rows e of E, a number of them in one pass over the data."""
        self.products += len(E) * row_count(self.some)
        width = min(COLUMNS, max(FEWEST_COLUMNS, 1 << (len(E) - 1).bit_length()))
        v = at.x - self.t * at.W
        point = [np.asarray(a, self.dtype) for a in (at.x, at.q, v, self.t)]
        parts = []
        for first in range(0, len(E), width):
            rows = np.zeros((width, len(at.x)), self.dtype)
            some = E[first : first + width]
            rows[: len(some)] = some
            both = np.asarray(_products(self.some, *point, rows), np.float64)
            parts.append(both[:, : len(some)])
        return np.concatenate(parts, axis=1)

    def matrix_free(
        self, at: Look, S: Vector, fixed: Vector, R: Vector, J: Any, c: Vector
    ) -> tuple[np.ndarray, np.ndarray]:
        """MINRES on the same system, symmetric by dx = D w."""
        K, n = J[:, S], len(S)

        def both(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            E = np.zeros((1, len(at.x)))
            E[0, S] = v
            D, H = self.products_with(at, E)
            return D[0, S], H[0, S]

        def apply(v: np.ndarray) -> np.ndarray:
            w, dq = v[:n], v[n:]
            Dw, _ = both(w)
            DDw, HDw = both(Dw)
            return np.concatenate([Dw - DDw + self.t * both(HDw + dq @ K)[0], self.t * (K @ Dw)])

        pull = both(self.products_with(at, fixed[None])[1, 0, S])[0]
        right = np.concatenate([-R[S] - self.t * pull, self.t * (-c - J @ fixed)])
        size = n + len(c)
        operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=apply, dtype=float)
        found, _ = scipy.sparse.linalg.minres(operator, right, rtol=1e-12, maxiter=500)
        dx = both(found[:n])[0]
        # The direction of most negative curvature along the constraints is gone the other way.
        Q = np.linalg.qr(K.T)[0]
        along = lambda v: v - Q @ (Q.T @ v)  # noqa: E731
        curvature = scipy.sparse.linalg.LinearOperator(
            (n, n), matvec=lambda v: along(both(along(v))[1]), dtype=float
        )
        start = np.cos(np.arange(n) ** 2)
        flat = np.abs(both(start)[0] - start).max(initial=0.0) < 1e-12  # D = 1: H is all there is
        if flat and n - Q.shape[1] > 1:
            value, v = scipy.sparse.linalg.eigsh(curvature, 1, which="SA", tol=1e-3, v0=start)
            if value[0] < 0:
                dx = dx - 2 * v[:, 0] * (v[:, 0] @ dx)
        return dx, found[n:]

    def step(self, at: Look) -> Look | None:
        """The next pair, or None where no step is good enough, be t short or long."""
        for t, halvings in ((SHORT * self.long, HALVINGS // 2), (self.long, HALVINGS)):
            self.t = t
            after = self.newton_step(self.with_multipliers(at, at.q), halvings)
            if after is not None:
                return after
        return None

    def newton_step(self, at: Look, halvings: int) -> Look | None:
        found = self.direction(at)
        if found is None:
            return None
        dx, dq = found
        largest = float(np.abs(at.q + dq).max(initial=0.0))
        if largest > 1e6 * (1 + self.nu):
            return None  # constraints that nearly contradict each other: no multipliers at all
        self.nu = max(self.nu, 2 * largest)
        now, size = self.penalty(at), 1.0
        for _ in range(halvings):
            trial = self.look(into_domain(self.regularizer, at.x + size * dx), at.q + dq)
            enough = now + 1e-4 * size * min(float(at.W @ dx), 0.0)
            lower = trial.residual < np.inf and self.penalty(trial) < min(enough, now)
            if trial.residual <= 0.5 * at.residual or lower:
                self.learn(at, trial, size)
                return trial
            size /= 2
        return None

    def learn(self, at: Look, after: Look, size: float) -> None:
        """SR1: the symmetric matrix of rank 1 that makes H right along the step just taken."""
        if self.some is self.oracles or self.model is None or size < 1:
            return
        S, H, pull = self.model
        s = (after.x - at.x)[S]
        y = (after.W - (after.q - at.q) @ after.J - at.W)[S]
        r = y - H @ s - pull
        along = float(r @ s)
        if along > 1e-8 * np.linalg.norm(r) * np.linalg.norm(s):
            self.secants[1].append(r / np.sqrt(along))

    def safe_step(self, at: Look) -> Look | None:
        """A proximal step that meets the linearised constraints: slow, but over any kink."""
        size = self.long
        lengths = np.linalg.norm(at.J, axis=1)
        self.nu = max(self.nu, float(np.linalg.norm(at.gradient)) / max(lengths.max(initial=0), 1))
        for _ in range(HALVINGS):
            for _ in range(RAISES):
                parts: Any = (at.x, at.gradient, at.c, at.J, at.q, size, self.nu * lengths)
                given = [np.asarray(a, self.dtype) for a in parts]
                x, q, left = (np.asarray(a, np.float64) for a in _linearised(self.oracles, *given))
                if left <= 0.1 * np.linalg.norm(self.violated(at)) or not self.violation(at):
                    break
                self.nu *= 4  # too weak to pull towards the constraints
            trial = self.look(x, q)
            enough = 1e-4 * float(np.sum((x - at.x) ** 2)) / size
            if self.penalty(trial) < self.penalty(at) - enough:
                return trial
            size /= 4
        return None

    def run(self, x: np.ndarray, tol: float, patient: bool) -> tuple[Look, Look, int]:
        """(the pair at the start, the pair at the end, steps)."""
        first = at = best = self.start(x)
        if not np.isfinite(first.residual):
            return first, first, 0
        safe = SAFE_STEPS if patient else 0
        for k in range(STEPS):
            after = self.step(at)
            for _ in range(min(safe, SAFE_AT_ONCE) if after is None else 0):
                further, safe = self.safe_step(after or at), safe - 1
                if further is None:
                    break
                after = further
            if after is None:
                return first, best, k
            best = after if after.residual < best.residual else best
            stalled = after.residual >= 0.1 * at.residual
            tight = after.residual <= 1e-2 * tol and self.violation(after) <= 1e-3 * tol
            if tight or (stalled and after.residual <= tol):
                return first, best, k + 1
            at = after
        return first, best, STEPS


def polish(oracles: Oracles, x: Vector, tol: float, patient: bool = True) -> Polished:
    """The KKT point that x leads to, with its proof; x itself where none is better.

    Where Newton's method gets stuck, a patient search goes on by safe steps for a while.
    """
    x = np.asarray(x)
    polisher = Polisher(oracles, x)
    first, last, steps = polisher.run(x, tol, patient)
    end, s_h = last, np.asarray(polisher.regularizer.nearest_h(last.x, -last.W), np.float64)
    left = polisher.proved(end, s_h)
    if not left <= tol:  # where the last proximal map leads there is another element of dh
        last = polisher.with_multipliers(last, last.q)
        end, s_h = polisher.look(last.p, last.q), (last.x - last.p) / polisher.t - last.W
        left = polisher.proved(end, s_h)
    rise = polisher.penalty(end) - polisher.penalty(first)
    resolution = 1e3 * float(np.finfo(x.dtype).eps) * (1 + abs(first.F))
    as_feasible = polisher.violation(end) <= max(polisher.violation(first), tol)
    improved = left < first.residual and rise <= resolution and as_feasible
    if not improved:
        end, left = first, first.residual
        s_h = np.asarray(polisher.regularizer.nearest_h(end.x, -end.W))
    s_g = end.gradient + end.q @ end.J - end.W
    witness = Witness(x=end.x, y=end.x, s_h=s_h, s_g=s_g, lam=end.q, rho=np.zeros(()))
    return Polished(
        jax.tree.map(lambda a: np.asarray(a, x.dtype), witness), left, improved, steps,
        polisher.gradients, polisher.products,
    )  # fmt: skip


def thinned(oracles: Oracles) -> Oracles:
    """With means over some of the rows, where there are many."""
    source = oracles.source
    if not isinstance(source, Finite) or int(source.N) < 4 * SOME_ROWS:
        return oracles
    return eqx.tree_at(lambda o: o.source, oracles, source.thinned(SOME_ROWS))


def row_count(oracles: Oracles) -> int:
    return int(oracles.source.N) if isinstance(oracles.source, Finite) else 1


def tangential(
    A: np.ndarray, K: np.ndarray, b: np.ndarray, e: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Solves A y + K' dq = b, K y = e, by a step across and a step along the constraints.

    K may be rank-deficient: then e is met as well as can be. Curvature along the constraints
    enters by its absolute value.
    """
    n = len(b)
    if n == 0:
        return np.zeros(0), np.zeros(len(e))
    U, s, Vt = np.linalg.svd(K, full_matrices=True) if len(e) else (K, np.zeros(0), np.eye(n))
    rank = int(np.sum(s > 1e-12 * s.max(initial=0.0)))
    across = Vt[:rank].T @ ((U[:, :rank].T @ e) / s[:rank]) if rank else np.zeros(n)
    Z = Vt[rank:].T
    values, vectors = np.linalg.eigh(Z.T @ A @ Z)
    size = np.abs(values).max(initial=0.0)
    if size == 0:
        along = np.zeros(Z.shape[1])
    else:
        curvature = np.maximum(np.abs(values), CURVATURE * size)
        along = vectors @ ((vectors.T @ (Z.T @ (b - A @ across))) / curvature)
    y = across + Z @ along
    left = b - A @ y
    dq = U[:, :rank] @ ((Vt[:rank] @ left) / s[:rank]) if rank else np.zeros(len(e))
    return y, dq


@jax.jit
def _linearised(
    oracles: Oracles, x: Vector, gradient: Vector, c: Vector, J: Any, q: Vector, t: Any,
    bound: Vector,
) -> tuple[Vector, Vector, Any]:  # fmt: skip
    """(x, multipliers, violation left) of the step of sqp-dc with the full gradient."""
    reg = oracles.regularizer
    w = x - t * (gradient - reg.subgradient_g(x))
    if oracles.m == 0:
        return reg.prox_h(w, t), q, jnp.zeros_like(t)
    step = constrained_prox(reg.h, reg.prox_h, w, t, x, c, J, oracles.m_E, q, bound)
    return step.x, step.y, jnp.linalg.norm(oracles.active(c + J @ (step.x - x)))


@jax.jit
def _look(oracles: Oracles, x: Vector, q: Vector, t: Any) -> tuple[Any, ...]:
    reg = oracles.regularizer
    f, gradient = oracles.source.mean(lambda batch: jax.value_and_grad(oracles.f)(x, batch))
    W = gradient + jax.vjp(oracles.c, x)[1](q)[0] - reg.subgradient_g(x)
    v = x - t * W
    # A vector without zeros: its image under D has a zero where D has a zero row.
    p, moved = jax.jvp(lambda v: reg.prox_h(v, t), (v,), (1 + start_vector(x.size, x.dtype),))
    return f + reg(x), gradient, W, p, jnp.nan_to_num(moved)


@jax.jit
def _products(oracles: Oracles, x: Vector, q: Vector, v: Vector, t: Any, E: Any) -> Any:
    """(D e, H e) for the rows e of E."""
    reg = oracles.regularizer

    def curved(x: Vector) -> Vector:
        pulled = jax.vjp(oracles.c, x)[1](q)[0] if oracles.m else jnp.zeros_like(x)
        return pulled - reg.subgradient_g(x)

    def each(function: Callable[[Vector], Vector], at: Vector) -> Any:
        return jax.vmap(lambda e: jax.jvp(function, (at,), (e,))[1])(E)

    D = each(lambda v: reg.prox_h(v, t), v)
    H = oracles.source.mean(lambda batch: each(lambda x: oracles.gradient(x, batch), x))
    return jnp.nan_to_num(jnp.stack([D, H + each(curved, x)]))
