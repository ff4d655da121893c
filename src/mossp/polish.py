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
curvature on the constraints' tangent space is reversed, so that no saddle attracts. A patient run
leads there from afar: where Newton's step does not halve the residual, the pieces are not the right
ones yet, and the minimum of a convex model of the problem, h and linearised constraints included
(a proximal Newton step), takes its place. The point that is handed back is never worse than the one
that came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse.linalg

from mossp import keys
from mossp.budget import PRODUCT, Budget, UsedUp
from mossp.certificate import Witness, scales
from mossp.constants import start_vector
from mossp.data import Finite
from mossp.dual import constrained_prox
from mossp.feasibility import constraints_and_jacobian, into_domain, on_host
from mossp.problem import Oracles
from mossp.programs import compiled
from mossp.stationarity import ACTIVE, bounded_least_squares

Vector = Any

STEPS, MORE = 40, 5  # and how many times more where nothing comes afterwards
HALVINGS, RAISES = 8, 4
MODEL_STEPS, MODEL_ACCURACY = 1000, 1e-3
STEPS_TOGETHER = 100  # of a model, between two looks at the budget
DAMPING = (1e-8, 1e-4, 1e-2)  # of a model
SHORT = 0.1  # a short t, in units of a long one
SOME_ROWS = 2**16  # of many, for the Hessian
DENSE = 2000  # variables beyond which no Hessian is formed
COLUMNS, FEWEST_COLUMNS = 256, 32  # of the Hessian, formed in one pass over the data
CURVATURE = 1e-10  # relative: less than this counts as none


PAID = 0.1  # what the residual must fall to for the patience that an attempt is given


class Polished(NamedTuple):
    """`improved`: whether the witness proves more than the point that came; else it is that one."""

    witness: Witness
    residual: float  # the largest, relative to its scale
    improved: bool
    steps: int
    gradients: int  # samples differentiated
    products: int  # samples behind Hessian-vector products
    value: float  # F
    ended: str = ""  # what was used up, where that ended it


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
    """Newton's method from one point. Counts what it costs.

    It ends where the budget does, or after `patience` samples in which the residual has not fallen
    to a tenth.
    """

    def __init__(
        self, oracles: Oracles, x: Vector, budget: Budget | None = None, patience: float = np.inf,
        before: float = 0.0,
    ) -> None:  # fmt: skip
        self.budget, self.patience = budget or Budget(), patience
        self.before = before  # samples of the budget that others have spent
        self.mark = (np.inf, 0.0)  # the last residual that paid, and the cost until then
        self.ended = ""
        self.latest: Look | None = None  # the last pair that was taken, for those who look on
        self.oracles, self.regularizer = oracles, on_host(oracles)
        self.some = thinned(oracles)  # rows for the Hessian
        self.secants: tuple[Any, list[np.ndarray]] = (None, [])
        self.model: Any = None  # the support, H there and H times the move of the rest
        self.formed: Any = None  # columns of H, and where they belong
        self.dtype = np.asarray(x).dtype
        self.is_equality = np.arange(oracles.m) < oracles.m_E
        self.gradients, self.products, self.nu = 0, 0, 0.0
        self.t = self.long = 1.0

    @property
    def cost(self) -> int:
        return self.gradients + PRODUCT * self.products

    def pay(self, gradients: int = 0, products: int = 0) -> None:
        """Before a pass over the data; a last look at the end point must still be affordable."""
        self.tell()
        ahead = self.cost + gradients + PRODUCT * products
        self.budget.allow(self.before + ahead + row_count(self.oracles))
        if ahead - self.mark[1] > self.patience:
            raise UsedUp("the residual did not fall for what it cost")
        self.gradients += gradients
        self.products += products

    def tell(self) -> None:
        """Where it stands; a step on many variables takes far longer than a report may wait."""
        if (at := self.latest) is not None:
            self.budget.report(at.x, at.F, self.violation(at), at.residual)

    def paid(self, at: Look) -> None:
        """Notes where the residual has fallen enough to go on for as long again."""
        if at.residual <= PAID * self.mark[0]:
            self.mark = (at.residual, self.cost)

    def look(self, x: np.ndarray, q: np.ndarray) -> Look:
        self.pay(gradients=row_count(self.oracles))
        return self.evaluate(x, q)

    def evaluate(self, x: np.ndarray, q: np.ndarray) -> Look:
        x, q = np.asarray(x, self.dtype), np.asarray(q, self.dtype)
        F, gradient, W, p, free = (
            np.asarray(a, np.float64)
            for a in jax.device_get(_look(self.oracles, x, q, np.asarray(self.t, self.dtype)))
        )
        c, J = (np.array(a, np.float64) for a in constraints_and_jacobian(self.oracles, x))
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

    def relative(self, at: Look, u: np.ndarray) -> float:
        """The largest residual relative to its scale, as a certificate has them."""
        s_g, shortest = at.gradient + at.q @ at.J - at.W, self.regularizer.nearest_h(at.x, 0 * at.x)
        sizes, m_E = np.abs(at.J) @ np.abs(at.x), self.oracles.m_E
        S = scales(at.x, (at.gradient, s_g, np.asarray(shortest)), at.c, at.q, sizes, m_E)
        parts = [np.linalg.norm(u) / S.criticality, self.violation(at) / S.feasibility]
        worst = np.max([*parts, np.linalg.norm(self.slack(at)) / S.complementarity])
        return float(worst) if np.isfinite(worst) and np.isfinite(at.F) else np.inf

    def good_enough(self, at: Look, tol: float) -> bool:
        """Whether a residual that no longer falls may stay as it is."""
        s_h = np.asarray(self.regularizer.nearest_h(at.x, -at.W), np.float64)
        return at.residual <= tol or self.relative(at, at.W + s_h) <= 1e-2 * tol

    def penalty(self, at: Look) -> float:
        """F + nu |c|_1, whose minimisers are those of the problem once nu > |q|."""
        return at.F + self.nu * float(np.abs(self.violated(at)).sum())

    def start(self, at: Look) -> Look:
        """x with its least-squares multipliers; sets t and nu."""
        # Any t will do at a solution. Far from one, entries leave where they are shorter than t
        # times what W is off by: a short t keeps those that are wanted, a long one lets others go.
        some = min(FEWEST_COLUMNS, len(at.x))
        rng = keys.generator(0, keys.Purpose.POLISH)
        E = np.linalg.qr(rng.standard_normal((len(at.x), some)))[0].T
        L = np.linalg.norm(self.products_with(at, E), 2)
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
        D = self.derivative(at, unit_rows(S, len(at.x)))[:, S]
        if len(at.x) <= DENSE:  # the columns of what moves will be needed again
            moved = np.union1d(S, np.flatnonzero(fixed))
            H = self.hessian(at, moved)[S]
            H, pull = H[:, np.searchsorted(moved, S)], H @ fixed[moved]
        else:
            H, pull = self.hessian(at, S)[S], np.zeros(len(S))
            if fixed.any():
                pull = self.products_with(at, fixed[None])[0, S]
        return (D + D.T) / 2, (H + H.T) / 2, pull

    def hessian(self, at: Look, S: np.ndarray) -> np.ndarray:
        """The columns S of H; those that are known at this point are not formed again."""
        n, key = len(at.x), (at.x.tobytes(), at.q.tobytes())
        if self.formed is None or self.formed[0] != key:
            self.formed = key, np.zeros(0, int), np.zeros((n, 0))
        _, known, H = self.formed
        new = np.setdiff1d(S, known)
        if len(new):
            found = self.products_with(at, unit_rows(new, n)).T
            known, H = np.append(known, new), np.concatenate([H, found], axis=1)
            self.formed = key, known, H
        order = np.argsort(known)
        return H[:, order[np.searchsorted(known, S, sorter=order)]]

    def products_with(self, at: Look, E: np.ndarray) -> np.ndarray:
        """H e for the rows e of E, a number of them in one pass over the data."""
        point = [np.asarray(a, self.dtype) for a in (at.x, at.q)]

        def some(rows: np.ndarray, count: int) -> Any:
            self.pay(products=count * row_count(self.some))
            return _products(self.some, *point, rows)

        return in_parts(some, E, self.dtype)

    def derivative(self, at: Look, E: np.ndarray) -> np.ndarray:
        """D e for the rows e of E."""
        point = [np.asarray(a, self.dtype) for a in (at.x - self.t * at.W, self.t)]
        return in_parts(lambda rows, _: _derivative(self.oracles, *point, rows), E, self.dtype)

    def matrix_free(
        self, at: Look, S: Vector, fixed: Vector, R: Vector, J: Any, c: Vector
    ) -> tuple[np.ndarray, np.ndarray]:
        """MINRES on the same system, symmetric by dx = D w."""
        K, n = J[:, S], len(S)

        def both(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            E = np.zeros((1, len(at.x)))
            E[0, S] = v
            return self.derivative(at, E)[0, S], self.products_with(at, E)[0, S]

        def apply(v: np.ndarray) -> np.ndarray:
            w, dq = v[:n], v[n:]
            Dw, _ = both(w)
            DDw, HDw = both(Dw)
            return np.concatenate([Dw - DDw + self.t * both(HDw + dq @ K)[0], self.t * (K @ Dw)])

        pull = both(self.products_with(at, fixed[None])[0, S])[0]
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

    def patient_step(self, at: Look) -> Look | None:
        """Newton's where it is at its best; else the one of two that leads down further."""
        self.t = self.long
        at = self.with_multipliers(at, at.q)
        newton = self.newton_step(at, 1)
        if newton is not None and newton.residual <= 0.5 * at.residual:
            rise = self.penalty(newton) - self.penalty(at)
            if rise <= 1e-3 * (1 + abs(at.F)):
                return newton
        model = self.model_step(at)
        if model is None:
            return self.step(at)
        return newton if newton and self.penalty(newton) < self.penalty(model) else model

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

    def model_step(self, at: Look) -> Look | None:
        """The minimum of a convex model of the problem: leads on where the pieces are wrong.

            <W, x+ - x> + (x+ - x)'M (x+ - x) / 2 + h(x+)   s.t.  the linearised constraints

        with M = |H| where entries are free and 1/t elsewhere; M = 1/t, which needs no pass over the
        data but is slow, where that does not lead down.
        """
        lengths = np.linalg.norm(at.J, axis=1)
        self.nu = max(self.nu, float(np.linalg.norm(at.gradient)) / max(lengths.max(initial=0), 1))
        for M in self.models(at):
            x, q = self.minimum(at, M, lengths)
            dx, size = x - at.x, 1.0
            enough = 1e-4 * float(dx @ (M @ dx if M.ndim else M * dx))
            for _ in range(HALVINGS // 2):
                trial = self.look(at.x + size * dx, q)
                if self.penalty(trial) < self.penalty(at) - size * enough:
                    return trial
                size /= 4
        return None

    def models(self, at: Look) -> Iterator[np.ndarray]:
        """M, from the one that says most on: a matrix, or a number where that is too large."""
        n = len(at.x)
        one = np.eye(n) if n <= DENSE else np.ones(())
        if n <= DENSE:
            (S,) = np.nonzero(at.free | (at.x != 0))
            M = one / self.long
            M[np.ix_(S, S)] = positive(self.columns(at, S, np.zeros(n))[1])
            # Where a loss is flat but for a bend, H says too little: the more is added, the shorter
            # is the step.
            for damping in DAMPING:
                yield M + damping / self.long * one
        for power in range(HALVINGS // 2):
            yield one * (16**power / self.long)

    def minimum(self, at: Look, M: np.ndarray, lengths: np.ndarray) -> tuple[Any, Any]:
        """The minimum of a model, and its multipliers."""
        L = np.linalg.norm(M, 2) if M.ndim else M
        for _ in range(RAISES):
            parts: Any = (at.x, at.gradient, at.c, at.J, M, 1 / L, self.nu * lengths)
            given = [np.asarray(a, self.dtype) for a in parts]
            begin = Descent.begin(given[0], np.asarray(at.q, self.dtype))
            x, q, left = self.descend(given, begin, MODEL_STEPS if M.ndim else 1)
            if left <= 0.1 * np.linalg.norm(self.violated(at)) or not self.violation(at):
                break
            self.nu *= 4  # too weak to pull towards the constraints
        return x, q

    def descend(self, given: list[Any], at: Any, most: int) -> tuple[Any, Any, float]:
        """The minimum of a model, its multipliers, and the violation that it leaves."""
        while True:
            self.tell()
            self.budget.allow(self.before + self.cost)
            until = np.asarray(min(int(at.k) + STEPS_TOGETHER, most), np.int32)
            at, violation, done = _minimum(self.oracles, *given, at, until)
            if done or int(at.k) >= most:
                return np.asarray(at.x, float), np.asarray(at.q, float), float(violation)

    def compile(self, x: np.ndarray) -> None:
        """What its steps need, run once at x, for those who must not wait for it later."""
        at = self.evaluate(x, np.zeros(self.oracles.m))
        if not np.isfinite(at.residual) or not np.isfinite(at.J).all():
            return
        at = self.start(at)
        some = unit_rows(np.arange(min(len(x), COLUMNS)), len(x))
        self.products_with(at, some)
        self.derivative(at, some)
        M = np.eye(len(x)) / self.long if len(x) <= DENSE else np.asarray(1 / self.long)
        bound = self.nu * np.linalg.norm(at.J, axis=1)
        parts: Any = (at.x, at.gradient, at.c, at.J, M, self.long, bound)
        given = [np.asarray(a, self.dtype) for a in parts]
        self.descend(given, Descent.begin(given[0], np.asarray(at.q, self.dtype)), 1)

    def run(
        self, x: np.ndarray, tol: float, patient: bool, last: bool = False
    ) -> tuple[Look, Look, int]:
        """(the pair at the start, the pair at the end, steps)."""
        self.gradients += row_count(self.oracles)
        first = at = best = self.evaluate(x, np.zeros(self.oracles.m))
        if not np.isfinite(first.residual) or not np.isfinite(first.J).all():
            return first, first, 0
        k, self.latest = 0, first
        try:
            self.latest = first = at = best = self.start(first)
            self.paid(first)
            if patient and len(x) <= DENSE:  # compiled with the rest, not by the run that needs it
                self.minimum(at, np.eye(len(x)) / self.long, np.linalg.norm(at.J, axis=1))
            while k < (STEPS * MORE if last else STEPS):
                self.budget.allow(self.before + self.cost)
                after = self.patient_step(at) if patient else self.step(at)
                if after is None:
                    break
                k += 1
                best = after if patient or after.residual < best.residual else best
                self.paid(after)
                self.latest = after
                self.tell()
                stalled = after.residual >= 0.1 * at.residual
                tight = after.residual <= 1e-2 * tol and self.violation(after) <= 1e-3 * tol
                if tight or (stalled and self.good_enough(after, tol)):
                    break
                at = after
        except UsedUp as reason:
            self.ended = str(reason)
        return first, best, k


@np.errstate(over="ignore", invalid="ignore")  # a trial point that overflows is not taken
def polish(
    oracles: Oracles, x: Vector, tol: float, patient: bool = True, budget: Budget | None = None,
    patience: float = np.inf, before: float = 0.0, last: bool = False,
) -> Polished:  # fmt: skip
    """The KKT point that x leads to, with its proof; x itself where none is better.

    A patient search need not start near it. It ends where the budget does, of which `before` has
    been spent, or after `patience` samples that have not made the residual fall to a tenth. The
    `last` attempt may take more steps.
    """
    x = np.asarray(x)
    polisher = Polisher(oracles, x, budget, patience, before)
    first, end, steps = polisher.run(x, tol, patient, last)
    s_h = np.asarray(polisher.regularizer.nearest_h(end.x, -end.W), np.float64)
    left = polisher.proved(end, s_h)
    if not polisher.relative(end, end.W + s_h) <= tol:
        # Where the last proximal map leads there is another element of dh.
        at = polisher.with_multipliers(end, end.q)
        polisher.gradients += row_count(oracles)
        end, s_h = polisher.evaluate(at.p, at.q), (at.x - at.p) / polisher.t - at.W
        left = polisher.proved(end, s_h)
    rise = polisher.penalty(end) - polisher.penalty(first)
    resolution = 1e3 * float(np.finfo(x.dtype).eps) * (1 + abs(first.F))
    as_feasible = polisher.violation(end) <= max(polisher.violation(first), tol)
    improved = left < first.residual and rise <= resolution and as_feasible
    if not improved:
        end, s_h = first, np.asarray(polisher.regularizer.nearest_h(first.x, -first.W))
    left = polisher.relative(end, end.W + s_h)
    s_g = end.gradient + end.q @ end.J - end.W
    witness = Witness(x=end.x, y=end.x, s_h=s_h, s_g=s_g, lam=end.q, rho=np.zeros(()))
    return Polished(
        jax.tree.map(lambda a: np.asarray(a, x.dtype), witness), left, improved, steps,
        polisher.gradients, polisher.products, end.F, polisher.ended,
    )  # fmt: skip


def thinned(oracles: Oracles) -> Oracles:
    """With means over some of the rows, where there are many."""
    source = oracles.source
    if not isinstance(source, Finite) or int(source.N) < 4 * SOME_ROWS:
        return oracles
    return eqx.tree_at(lambda o: o.source, oracles, source.thinned(SOME_ROWS))


def row_count(oracles: Oracles) -> int:
    return int(oracles.source.N) if isinstance(oracles.source, Finite) else 1


def positive(H: np.ndarray) -> np.ndarray:
    """|H|, with the eigenvalues of a symmetric matrix replaced by their absolute values."""
    if not len(H):
        return H
    values, vectors = np.linalg.eigh(H)
    return H if values[0] >= 0 else (vectors * np.abs(values)) @ vectors.T


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


class Descent(NamedTuple):
    """Where the search for the minimum of a model stands."""

    k: Any
    x: Vector
    y: Vector  # ahead of x
    q: Vector
    speed: Any
    left: Any  # the length of the last step
    enough: Any  # the length at which it ends

    @classmethod
    def begin(cls, x: Vector, q: Vector) -> Descent:
        zero, one = np.zeros((), x.dtype), np.ones((), x.dtype)
        return cls(np.zeros((), np.int32), x, x, q, one, one, zero)


@compiled
def _minimum(
    oracles: Oracles, x: Vector, gradient: Vector, c: Vector, J: Any, M: Any, t: Any,
    bound: Vector, at: Descent, until: Any,
) -> tuple[Descent, Any, Any]:  # fmt: skip
    """(the search at step `until`, the violation left, whether it has ended).

    Accelerated proximal steps on a model; each of them meets the linearised constraints.
    """
    reg = oracles.regularizer
    w = gradient - reg.subgradient_g(x)

    def step(at: Descent) -> Descent:
        move = at.y - x
        v = at.y - t * (w + (M @ move if M.ndim else M * move))
        if oracles.m == 0:
            new, q = reg.prox_h(v, t), at.q
        else:
            found = constrained_prox(reg.h, reg.prox_h, v, t, x, c, J, oracles.m_E, at.q, bound)
            new, q = found.x, found.y
        # Started anew where it runs the wrong way.
        speed = jnp.where((at.y - new) @ (new - at.x) > 0, 1.0, at.speed)
        faster = (1 + jnp.sqrt(1 + 4 * speed**2)) / 2
        ahead = new + (speed - 1) / faster * (new - at.x)
        left = jnp.linalg.norm(at.y - new)
        enough = jnp.where(at.k == 0, MODEL_ACCURACY * left, at.enough)
        return Descent(at.k + 1, new, ahead, q, faster, left, enough)

    unfinished = lambda at: at.left > at.enough  # noqa: E731
    end = jax.lax.while_loop(lambda at: (at.k < until) & unfinished(at), step, at)
    return end, jnp.linalg.norm(oracles.active(c + J @ (end.x - x))), ~unfinished(end)


@compiled
def _look(oracles: Oracles, x: Vector, q: Vector, t: Any) -> tuple[Any, ...]:
    reg = oracles.regularizer
    f, gradient = oracles.source.mean(lambda batch: jax.value_and_grad(oracles.f)(x, batch))
    W = gradient + jax.vjp(oracles.c, x)[1](q)[0] - reg.subgradient_g(x)
    v = x - t * W
    # A vector without zeros: its image under D has a zero where D has a zero row.
    p, moved = jax.jvp(lambda v: reg.prox_h(v, t), (v,), (1 + start_vector(x.size, x.dtype),))
    return f + reg(x), gradient, W, p, jnp.nan_to_num(moved)


def unit_rows(S: np.ndarray, n: int) -> np.ndarray:
    """The unit vectors e_i, i in S, as rows."""
    E = np.zeros((len(S), n))
    E[np.arange(len(S)), S] = 1.0
    return E


def in_parts(function: Callable[[Any, int], Any], E: np.ndarray, dtype: Any) -> np.ndarray:
    """A function of many rows, some at a time, in numbers that do not vary much.

    It is given the rows, filled up with zeros, and how many of them count.
    """
    width = min(COLUMNS, max(FEWEST_COLUMNS, 1 << max(len(E) - 1, 0).bit_length()))
    parts = [np.zeros((0, E.shape[1]))]
    for first in range(0, len(E), width):
        rows = np.zeros((width, E.shape[1]), dtype)
        some = E[first : first + width]
        rows[: len(some)] = some
        parts.append(np.asarray(function(rows, len(some)), np.float64)[: len(some)])
    return np.concatenate(parts)


def each(oracles: Oracles, function: Callable[[Vector], Vector], at: Vector, E: Any) -> Any:
    """The derivative of a function along the rows of E."""
    if oracles.large:  # one after the other: a program for many at once is larger still
        return jax.lax.map(lambda e: oracles.along(function, at, e), E)
    return jax.vmap(lambda e: oracles.along(function, at, e))(E)


@compiled
def _derivative(oracles: Oracles, v: Vector, t: Any, E: Any) -> Any:
    D = jax.vmap(lambda e: jax.jvp(lambda v: oracles.regularizer.prox_h(v, t), (v,), (e,))[1])(E)
    return jnp.nan_to_num(D)


@compiled
def _products(oracles: Oracles, x: Vector, q: Vector, E: Any) -> Any:
    """H e for the rows e of E."""

    def curved(x: Vector) -> Vector:
        pulled = jax.vjp(oracles.c, x)[1](q)[0] if oracles.m else jnp.zeros_like(x)
        return pulled - oracles.regularizer.subgradient_g(x)

    H = oracles.source.mean(lambda batch: each(oracles, lambda x: oracles.gradient(x, batch), x, E))
    return jnp.nan_to_num(H + each(oracles, curved, x, E))
