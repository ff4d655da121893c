"""Standard errors of the coefficients that are not zero, by the sandwich formula.

With S the support, L the Lagrangian f + h - g + q'c, s_i the gradients of the rows' losses and the
columns of Z a basis of the directions in S along which no active constraint changes,

    V = Z (Z' H Z)^-1 Z' B Z (Z' H Z)^-1 Z' / N,     H = Hessian of L,   B = covariance of the s_i

is the covariance of the coefficients over new rows, if support and active constraints stay the
same. That they were chosen by the same rows is left out, so that the errors are conditional on the
selection, and in general too small; a penalty that shrinks also leaves a bias, which no standard
error tells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.stats

from mossp._base.device import on_device
from mossp._base.printing import short
from mossp.certificates.linearization import constraints_and_jacobian
from mossp.data import is_sparse
from mossp.oracles import Oracles
from mossp.result import Result
from mossp.sklearn.formulation import (
    CLASSIFICATION,
    REGRESSION,
    Parameters,
    formulate,
    loss_of,
    targets_of,
)
from mossp.sklearn.promises import has_rates, scores_of
from mossp.sklearn.rows import Rows

ACTIVE = 1e-8  # multipliers and slacks below this are none
TOGETHER = 8  # directions whose products with the Hessian share a pass
SMALLEST_P = 1e-16  # below, a p value is only said to be smaller
SINGULAR = 1e-10  # curvature, relative to the largest, along which nothing is known
CONDITIONAL = (
    "Conditional on the selected support and the active constraints, which the same rows have "
    "chosen: the errors are in general too small."
)


@dataclasses.dataclass(frozen=True, repr=False)
class Inference:
    """Coefficients that are not zero, with standard errors.

    Attributes
    ----------
    names : tuple of str
        Of the coefficients and the intercepts.
    coef, standard_errors, low, high, p_values : array
        One for each name: the estimate, its standard error, a 95 % interval, and the p value of a
        Wald test that it is 0. An error of 0 is that of an entry which active constraints fix; NaN
        where the rows do not determine it.
    covariance : array
        Of all of them.
    note : str
        What is left out.
    """

    names: tuple[str, ...]
    coef: np.ndarray
    covariance: np.ndarray
    note: str = CONDITIONAL

    @property
    def standard_errors(self) -> np.ndarray:
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0) + 0 * np.diag(self.covariance))

    @property
    def low(self) -> np.ndarray:
        return self.coef - scipy.stats.norm.ppf(0.975) * self.standard_errors

    @property
    def high(self) -> np.ndarray:
        return self.coef + scipy.stats.norm.ppf(0.975) * self.standard_errors

    @property
    def p_values(self) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.abs(self.coef) / self.standard_errors
        return np.where(self.standard_errors > 0, 2 * scipy.stats.norm.sf(z), np.nan)

    def __repr__(self) -> str:
        width = max([len(short(name, 32)) for name in self.names], default=4)
        lines = [f"{'':<{width}} {'coef':>10} {'error':>9} {'low':>10} {'high':>10} {'p':>8}"]
        rows = zip(self.names, self.coef, self.standard_errors, self.low, self.high,
                   self.p_values, strict=True)  # fmt: skip
        lines += [
            f"{short(name, 32):<{width}} {c:10.4g} {e:9.3g} {low:10.4g} {high:10.4g} "
            f"{shown_p(p):>8}"
            for name, c, e, low, high, p in rows
        ]
        return "\n".join([*lines, self.note])


def shown_p(p: float) -> str:
    """A p value for a person; none is exactly 0."""
    return f"< {SMALLEST_P:.0e}" if p < SMALLEST_P else f"{p:.2g}"


def check_inference(params: Parameters) -> None:
    """Raise ValueError where standard errors are not known."""
    if has_rates(params):
        raise ValueError(
            "inference=True knows no standard errors under rates, whose steps have no derivatives: "
            "leave one of them out."
        )


def inference(params: Parameters, rows: Rows, result: Result) -> Inference:
    """Standard errors at an answer of the model with these parameters on these rows."""
    problem, x0, _ = formulate(params, rows)
    with jax.enable_x64(True):
        oracles = problem.oracles(x0)
        structure = oracles.structure
        x = np.asarray(structure.ravel(result.x), np.float64)
        free = np.ones(len(x), bool)
        free[slice(*structure.slices["coef"])] = x[slice(*structure.slices["coef"])] != 0
        S = np.flatnonzero(free)
        c, J, q = constraints_at(oracles, x, result)
        H = hessian(oracles, x, q, S) + curvature(oracles, x, S)
        each = (
            row_gradients(params, some, result.x, structure.slices, S) for some in rows.pieces()
        )
        B, N = covariance(each, len(S))
    m_E = oracles.m_E
    active = np.concatenate([np.ones(m_E, bool), (q[m_E:] > ACTIVE) | (c[m_E:] > -ACTIVE)])
    Z = scipy.linalg.null_space(J[active][:, S]) if active.any() else np.eye(len(S))
    return Inference(names_of(rows, structure.slices, S), x[S], sandwich(H, B, Z, N))


def covariance(pieces: Iterable[np.ndarray], n: int) -> tuple[np.ndarray, int]:
    """(of the rows of all pieces, how many there are), about the mean of the first piece.

    Examples
    --------
    >>> G = np.array([[1.0, 2.0], [3.0, 2.0], [5.0, 8.0]])
    >>> B, N = covariance([G[:1], G[1:]], 2)
    >>> bool(np.allclose(B, np.cov(G.T, ddof=0))), N
    (True, 3)
    """
    about, total, squares, count = None, np.zeros(n), np.zeros((n, n)), 0
    for G in pieces:
        about = G.mean(axis=0) if about is None else about
        centred = G - about
        total, squares = total + centred.sum(axis=0), squares + centred.T @ centred
        count += len(G)
    return squares / count - np.outer(total, total) / count**2, count


def sandwich(H: np.ndarray, B: np.ndarray, Z: np.ndarray, N: int) -> np.ndarray:
    """Z (Z'HZ)^-1 Z'BZ (Z'HZ)^-1 Z' / N; NaN where Z'HZ has no curvature."""
    if not Z.size:
        return np.zeros_like(H)
    values, vectors = np.linalg.eigh(Z.T @ H @ Z)
    known = values > SINGULAR * max(values.max(), 0.0)
    P = Z @ vectors
    inner = P[:, known] / values[known] @ P[:, known].T
    V = inner @ B @ inner / N
    undetermined = np.abs(P[:, ~known]).max(axis=1, initial=0.0) > 1e-6
    V[undetermined, :] = V[:, undetermined] = np.nan
    return V


def constraints_at(
    oracles: Oracles, x: np.ndarray, result: Result
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(c, J, q) with the multipliers of the certificate."""
    if not oracles.m:
        return np.zeros(0), np.zeros((0, len(x))), np.zeros(0)
    c, J = (np.asarray(a, np.float64) for a in constraints_and_jacobian(oracles, on_device(x)))
    kinds = [result.certificate.multipliers.get(kind, ()) for kind in ("equality", "inequality")]
    q = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(kinds)])
    return c, J, q


def hessian(oracles: Oracles, x: np.ndarray, q: np.ndarray, S: np.ndarray) -> np.ndarray:
    """The Hessian of f + q'c on the support."""

    def slope(v: Any) -> Any:
        return oracles.full_gradient(v) + oracles.linearized(v)[1](jnp.asarray(q))

    @jax.jit
    def products(E: Any) -> Any:
        return jax.vmap(lambda e: jax.jvp(slope, (jnp.asarray(x),), (e,))[1])(E)

    # Some directions share a pass over the rows.
    E = np.zeros((-(-len(S) // TOGETHER) * TOGETHER, len(x)))
    E[np.arange(len(S)), S] = 1.0
    found = [np.asarray(products(some)) for some in E.reshape(-1, TOGETHER, len(x))]
    return np.concatenate([np.zeros((0, len(x))), *found])[: len(S), S]


def curvature(oracles: Oracles, x: np.ndarray, S: np.ndarray) -> np.ndarray:
    """The Hessian of h - g on the support, where both are smooth."""

    def penalty(z: Any) -> Any:
        return oracles.regularizer(jnp.asarray(x).at[S].set(z))

    found = np.asarray(jax.hessian(penalty)(jnp.asarray(x[S])), np.float64)
    return np.nan_to_num(found.reshape(len(S), len(S)))


def row_gradients(params: Parameters, rows: Rows, x: Any, slices: Any, S: np.ndarray) -> np.ndarray:
    """The gradient of every row's weighted loss on the support."""
    loss = loss_of(
        params["loss"], REGRESSION if rows.classes is None else CLASSIFICATION, rows.classes
    )
    targets, scores = targets_of(loss, rows), scores_of(rows, x)
    slope = jax.grad(lambda p: loss.rows(p, jnp.asarray(targets)).sum())(jnp.asarray(scores))
    G = np.asarray(slope, np.float64).reshape(len(scores), -1) * rows.weights[:, None]
    C, first = G.shape[1], slices["coef"][0]
    parts = []
    for j in S:
        inside = first <= j < slices["coef"][1]
        column = np.ones(len(G))
        if inside:
            column = rows.X[:, [(j - first) // C]]
            column = np.ravel(column.toarray() if is_sparse(column) else column)
        k = (j - first) % C if inside else j - slices["intercept"][0]
        parts.append(column * G[:, k])
    return np.column_stack(parts) if parts else np.zeros((len(G), 0))


def names_of(rows: Rows, slices: Any, S: np.ndarray) -> tuple[str, ...]:
    C, first = rows.outputs or 1, slices["coef"][0]
    known = rows.names if rows.names is not None else [f"x[{j}]" for j in range(rows.features)]

    def called(j: int) -> str:
        inside = first <= j < slices["coef"][1]
        stem = str(known[(j - first) // C]) if inside else "intercept"
        k = (j - first) % C if inside else j - slices["intercept"][0]
        return (
            stem if rows.outputs is None or rows.classes is None else f"{stem} [{rows.classes[k]}]"
        )

    return tuple(called(int(j)) for j in S)
