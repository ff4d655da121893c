"""The Newton system of the KKT residual on the pieces that a pair (x, q) identifies.

R, c_E and min(q_I, -c_I) are piecewise smooth. An entry is fixed where D = prox_{t h}'(x - t W) has
a zero row: it goes to its kink (0, a bound) at once. An inequality is active where
q_I + kappa c_I > 0. g'' is the derivative of the subgradient at x. On these pieces Newton's step
solves, over the range of D,

    [ H + (D^{-1} - I) / t   J_A' ] [ dx ]       [ D^{-1} R / t ]
    [ J_A                    0    ] [ dq ]  =  - [ c_A          ]

Entries and constraints enter and leave by the same formulas, which are the optimality conditions.
Negative curvature along the constraints is reversed, so that no saddle attracts.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # whose parts take long to import, and are where they are first used

from mossp._base.programs import compiled
from mossp._base.types import Vector
from mossp.newton.conjugate import Curvature
from mossp.newton.hessian import Block, Hessian, in_parts, is_dense, unit_rows
from mossp.newton.linear import LinearLoss
from mossp.newton.quadratic import positive_factor, slopes_of_prox
from mossp.newton.residual import KKT, Evaluation
from mossp.oracles import Oracles

TINY = 1e-300  # in place of 0 in a denominator
# D and the identity differ by no more than this: rounding of 1 in a few operations.
IDENTITY = 1e-12
# Eigenvalues of D below this are directions across a curved boundary of dom h: 1/D would be
# rounding, and there is no motion along them.
RIGID = 1e-8
# Singular values of the constraints' Jacobian, relative to the largest, that count as 0.
RANK = 1e-12
# Curvature relative to the largest that counts as none: the step along it is limited by this.
CURVATURE = 1e-10
# MINRES: as exact as rounding allows on a well-conditioned system, and an end on others.
MINRES_ACCURACY, MINRES_STEPS = 1e-12, 500
# Products that conjugate gradients take, each of them twice the entries of the columns; and how
# many times as fast a factorisation is by the operation.
PRODUCTS, BLAS = 100, 12
CG_ACCURACY = 1e-6  # of conjugate gradients: a few steps then lead to full precision
EIGENVALUE_ACCURACY = 1e-3  # only the sign of the least curvature matters, and its direction


class System(NamedTuple):
    """The Newton system at a pair: the pieces, and the right-hand side."""

    at: Evaluation  # with multipliers 0 where an inequality is not active
    S: np.ndarray  # the entries that are free
    fixed: np.ndarray  # the move of the others to their kinks; 0 on S
    R: np.ndarray
    active: np.ndarray  # constraints
    J: np.ndarray  # of the active constraints, as c is
    c: np.ndarray


class Direction(NamedTuple):
    """Newton's step, and what was known of H on the free entries where a matrix was formed."""

    dx: np.ndarray
    dq: np.ndarray
    block: Block | None


def identify(at: Evaluation) -> System:
    """The system on the pieces of (x, q)."""
    kappa = 1 / (at.t * np.maximum(np.sum(at.J**2, axis=1), TINY))
    active = at.is_equality | (at.q + kappa * at.c > 0)
    R, (S,) = at.x - at.p, np.nonzero(at.free)
    kept = dataclasses.replace(at, q=np.where(active, at.q, 0.0))
    fixed = np.where(at.free, 0.0, -R)
    return System(kept, S, fixed, R, active, at.J[active], at.c[active])


def direction(kkt: KKT, hessian: Hessian, at: Evaluation) -> Direction | None:
    """(dx, dq) of Newton's method, or None where the system is not solvable."""
    system = identify(at)
    solve = dense if is_dense(len(system.S)) else matrix_free
    if by_products(kkt, len(system.S)):
        solve = by_conjugate_gradients
    on_S, on_active, block = solve(kkt, hessian, system)
    if not (np.isfinite(on_S).all() and np.isfinite(on_active).all()):
        return None
    dx, dq = system.fixed.copy(), system.at.q - at.q
    dx[system.S] += on_S
    dq[system.active] += on_active
    return Direction(dx, dq, block)


def dense(kkt: KKT, hessian: Hessian, system: System) -> tuple[np.ndarray, np.ndarray, Block]:
    """The solution by factorisations, in the eigenvectors of D."""
    at, S, fixed, R, _, J, c = system
    block = hessian.block(at, S, fixed)
    if hessian.thinned:
        block = hessian.corrected(block)
    _, H, pull = block
    d, U = eigenvectors(kkt, at, S)
    if U is None:
        K, moves = J[:, S], d >= RIGID
        stay = np.where(moves, 0.0, -R[S])
        if not moves.all():
            H, K, pull, d = H[np.ix_(moves, moves)], K[:, moves], (pull + H @ stay)[moves], d[moves]
        A, b = H + np.diag((1 / d - 1) / at.t), -R[S][moves] / (d * at.t) - pull
        y, dq = tangential(A, K, b, -c - J @ fixed - J[:, S] @ stay)
        stay[moves] = y
        return stay, dq, block
    rigid = d < RIGID
    stay = -U[:, rigid] @ (U[:, rigid].T @ R[S])
    V, d = U[:, ~rigid], d[~rigid]
    A = V.T @ H @ V + np.diag((1 / d - 1) / at.t)
    b = -(V.T @ R[S]) / (d * at.t) - V.T @ (pull + H @ stay)
    K = J[:, S] @ V
    y, dq = tangential(A, K, b, -c - J @ fixed - J[:, S] @ stay)
    return V @ y + stay, dq, block


def eigenvectors(kkt: KKT, at: Evaluation, S: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Eigenvalues and vectors of D on S; None for those of a diagonal D, which are unit vectors."""
    if kkt.on_host:
        return slopes_of_prox(kkt.regularizer, at.x - at.t * at.W, at.t)[S], None
    D = derivative(kkt, at, unit_rows(S, len(at.x)))[:, S]
    D = (D + D.T) / 2
    if len(S) and np.abs(D - np.eye(len(S))).max() > IDENTITY:
        return np.linalg.eigh(D)
    return np.ones(len(S)), None


def tangential(
    A: np.ndarray, K: np.ndarray, b: np.ndarray, e: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(y, dq) with A y + K'dq = b, K y = e, by a step across and a step along the constraints.

    K may be rank-deficient: then e is met as well as can be. Curvature along the constraints
    enters by its absolute value.
    """
    n = len(b)
    if n == 0:
        return np.zeros(0), np.zeros(len(e))
    U, s, Vt = np.linalg.svd(K, full_matrices=True) if len(e) else (K, np.zeros(0), np.eye(n))
    rank = int(np.sum(s > RANK * s.max(initial=0.0)))
    across = Vt[:rank].T @ ((U[:, :rank].T @ e) / s[:rank]) if rank else np.zeros(n)
    Z = Vt[rank:].T
    along = with_curvature(Z.T @ A @ Z if len(e) else A, Z.T @ (b - A @ across))
    y = across + Z @ along
    left = b - A @ y
    dq = U[:, :rank] @ ((Vt[:rank] @ left) / s[:rank]) if rank else np.zeros(len(e))
    return y, dq


def with_curvature(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|A|^{-1} b: eigenvalues by their absolute values, those next to 0 by what limits the step."""
    factor = positive_factor(A)
    if factor is not None and np.diag(factor).min(initial=np.inf) ** 2 > CURVATURE * np.trace(A):
        return scipy.linalg.cho_solve((factor, True), b)
    values, vectors = np.linalg.eigh(A)
    size = np.abs(values).max(initial=0.0)
    if size == 0:
        return np.zeros(len(b))
    return vectors @ ((vectors.T @ b) / np.maximum(np.abs(values), CURVATURE * size))


def has_products(kkt: KKT) -> bool:
    """Whether conjugate gradients serve: f + h is convex, h separable, c empty."""
    convex = isinstance(kkt.linear, LinearLoss) and bool(kkt.regularizer.convex)
    return convex and kkt.on_host and not kkt.oracles.m


def by_products(kkt: KKT, order: int) -> bool:
    """Whether systems of this order are solved by conjugate gradients: no matrix, or less work."""
    if not has_products(kkt) or not isinstance(kkt.linear, LinearLoss):
        return False
    entries = kkt.linear.table.entries * order / max(kkt.linear.size, 1)
    return not is_dense(order) or PRODUCTS * entries < order**3 / BLAS


def by_conjugate_gradients(
    kkt: KKT, hessian: Hessian, system: System
) -> tuple[np.ndarray, np.ndarray, None]:
    """The solution where D is diagonal and H positive semidefinite."""
    at, S, fixed, R, _, _, c = system
    assert isinstance(kkt.linear, LinearLoss)
    d = slopes_of_prox(kkt.regularizer, at.x - at.t * at.W, at.t)[S]
    H = Curvature(kkt.linear, at.x, CURVATURE / at.t, CG_ACCURACY, hessian.meter)
    moves = d >= RIGID
    dx, fixed, T, d = np.where(moves, 0.0, -R[S]), fixed.copy(), S[moves], d[moves]
    fixed[S] = dx
    pull = (H @ fixed)[T] if fixed.any() else 0.0
    dx[moves] = H.solve(T, (1 / d - 1) / at.t, -R[T] / (d * at.t) - pull)
    return dx, np.zeros(len(c)), None


def matrix_free(kkt: KKT, hessian: Hessian, system: System) -> tuple[np.ndarray, np.ndarray, None]:
    """The solution by MINRES, with K = J on S.

    dx = D w, and multiplication of the first row by t D and of the second by t, make it symmetric
    without an inverse of D:

        (D - D D + t D H D) w + t D K'dq = -R - t D H fixed
                               t K D w   = -t (c + J fixed)
    """
    at, S, fixed, R, _, J, c = system
    K, n, t = J[:, S], len(S), at.t

    def both(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(D v, H v) on S."""
        E = np.zeros((1, len(at.x)))
        E[0, S] = v
        return derivative(kkt, at, E)[0, S], hessian.products(at, E)[0, S]

    def apply(v: np.ndarray) -> np.ndarray:
        w, dq = v[:n], v[n:]
        Dw, _ = both(w)
        DDw, HDw = both(Dw)
        return np.concatenate([Dw - DDw + t * both(HDw + dq @ K)[0], t * (K @ Dw)])

    pull = both(hessian.products(at, fixed[None])[0, S])[0]
    right = np.concatenate([-R[S] - t * pull, t * (-c - J @ fixed)])
    size = n + len(c)
    operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=apply, dtype=float)
    found, _ = scipy.sparse.linalg.minres(
        operator, right, rtol=MINRES_ACCURACY, maxiter=MINRES_STEPS
    )
    return reversed_curvature(both, K, both(found[:n])[0]), found[n:], None


def reversed_curvature(both: Any, K: np.ndarray, dx: np.ndarray) -> np.ndarray:
    """dx reflected in the direction of most negative curvature along the constraints, if any.

    Only where D = I, so that H is all the curvature there is. both(v) is (D v, H v).
    """
    n = len(dx)
    Q = np.linalg.qr(K.T)[0]

    def along(v: np.ndarray) -> np.ndarray:
        return v - Q @ (Q.T @ v)

    curvature = scipy.sparse.linalg.LinearOperator(
        (n, n), matvec=lambda v: along(both(along(v))[1]), dtype=float
    )
    start = np.cos(np.arange(n) ** 2)
    flat = np.abs(both(start)[0] - start).max(initial=0.0) < IDENTITY
    if flat and n - Q.shape[1] > 1:
        value, v = scipy.sparse.linalg.eigsh(
            curvature, 1, which="SA", tol=EIGENVALUE_ACCURACY, v0=start
        )
        if value[0] < 0:
            dx = dx - 2 * v[:, 0] * (v[:, 0] @ dx)
    return dx


def derivative(kkt: KKT, at: Evaluation, E: np.ndarray) -> np.ndarray:
    """D e for the rows e of E."""
    if kkt.on_host:
        return E * slopes_of_prox(kkt.regularizer, at.x - at.t * at.W, at.t)
    point = [np.asarray(a, kkt.dtype) for a in (at.x - at.t * at.W, at.t)]
    return in_parts(lambda rows, _: _derivative(kkt.oracles, *point, rows), E, kkt.dtype)


@compiled
def _derivative(oracles: Oracles, v: Vector, t: Any, E: Any) -> Any:
    D = jax.vmap(lambda e: jax.jvp(lambda v: oracles.regularizer.prox_h(v, t), (v,), (e,))[1])(E)
    return jnp.nan_to_num(D)
