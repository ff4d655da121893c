"""Linear models with at most k features: a search on the host, and a proof of what it found.

A point whose k columns are at their best, and lam times the truncated l1 norm with lam above the
slopes of all others, is critical: that is certified as any other answer. Where the search does not
know the problem (constraints, rates, several classes, other losses) `solve` does all of it.
"""

from __future__ import annotations

import dataclasses
import time

import jax
import numpy as np
import scipy.optimize
import scipy.special

from mossp._base.device import on_device
from mossp._base.types import PyTree
from mossp.certificates.stationarity import full_gradient, shortest_certificate
from mossp.newton.recession import ADVICE
from mossp.regularizers.strength import strengthened
from mossp.result import Result, Status, Trace
from mossp.sklearn.formulation import (
    CLASSIFICATION,
    REGRESSION,
    Parameters,
    formulate,
    loss_of,
    penalty_of,
)
from mossp.sklearn.promises import has_rates
from mossp.sklearn.rows import Rows
from mossp.sklearn.splicing import Fit, as_start, best_columns
from mossp.solving.limits import FIRM
from mossp.solving.path import with_regularizer

TOL = 1e-10
FAR = 15.0  # a score: beyond, the logistic loss is 0 to seven digits
SEPARATED = 1e-3  # of the largest score that a direction could give a row
LEAST = 1e-6  # of the mean of the weights that refute such a direction: rounding matters less
FOUND = "The best columns were searched for by exchanges, and the model of them is certified."


def best_found(params: Parameters, rows: Rows) -> Result | None:
    """The model of the best columns, with its certificate; None where it is left to `solve`."""
    free = params["equality"] is None and params["inequality"] is None and not has_rates(params)
    plain = not params["nonnegative"] and params["feature_weights"] is None
    if not (free and plain) or params["penalize_intercept"] or params["method"] != "auto":
        return None
    began = time.perf_counter()
    penalty_of(params, rows, None)  # what is wrong with the limit is told
    task = REGRESSION if rows.classes is None else CLASSIFICATION
    loss = loss_of(params["loss"], task, rows.classes)
    found = best_columns(loss, rows, int(params["max_features"]), params["fit_intercept"])
    if found is None or not np.isfinite(found.loss):
        return None
    result = proved(params, rows, found)
    return dataclasses.replace(result, seconds=time.perf_counter() - began)


def separated(rows: Rows, x: PyTree) -> bool:
    """Whether classes can be told apart on some rows at no cost on others, by the columns of x.

    With rows a_i and labels y_i = -1, 1, the loss falls for ever along d if y_i a_i'd >= 0 for all
    i and not all are 0. Positive weights s_i refute it where sum_i s_i y_i a_i is about zero, as
    at a minimiser with s_i = -y_i l_i': of d with entries up to 1 no row then gains more than
    the l1 norm of this sum, divided by its s_i. Else a linear program finds d. All this is asked
    where a score is so large that it may be on its way to infinity.
    """
    if rows.classes is None:
        return False
    scores = np.asarray(rows.X @ x["coef"]) + x.get("intercept", 0.0)
    if np.abs(scores).max() <= FAR:
        return False
    A = rows.X[:, np.flatnonzero(x["coef"])]
    A = A if isinstance(A, np.ndarray) else A.toarray()
    A = A / np.maximum(np.abs(A).max(axis=0, initial=0.0), 1e-300)
    if "intercept" in x:
        A = np.column_stack([A, np.ones(len(A))])
    counts = rows.weights > 0
    gains = (rows.labels[:, None] * A)[counts]
    s = (rows.weights * scipy.special.expit(-rows.labels * scores))[counts]
    s = np.maximum(s, LEAST * s.mean())
    change = np.linalg.lstsq(gains.T @ (s[:, None] * gains), s @ gains, rcond=None)[0]
    s *= 1 - gains @ change  # of weights near a minimiser's those whose sum is zero
    if np.abs(s @ gains).sum() <= SEPARATED * s.min():
        return False
    found = scipy.optimize.linprog(
        -gains.mean(axis=0), A_ub=-gains, b_ub=np.zeros(len(gains)), bounds=(-1, 1)
    )
    return found.x is not None and float((gains @ found.x).max()) > SEPARATED


def proved(params: Parameters, rows: Rows, found: Fit) -> Result:
    """The fit as an answer, with the certificate that it has."""
    x = as_start(found, rows.features, params["fit_intercept"])
    problem, _, _ = formulate(params, rows)
    slopes = np.abs(np.asarray(rows.X.T @ found.slope))
    lam = FIRM * max(float(slopes.max(initial=0.0)), 1e-8)
    problem = with_regularizer(problem, strengthened(problem.regularizer, lam))
    tol = TOL if params["tol"] is None else float(params["tol"])
    with jax.enable_x64(True):
        oracles = problem.oracles(x)
        vector = on_device(oracles.structure.ravel(x))
        certificate = shortest_certificate(oracles, vector, full_gradient(oracles, vector))
        holds = certificate.is_kkt(tol, relative=True)
    # Where F falls for ever, any point far away is nearly critical.
    endless = separated(rows, x)
    holds = holds and not endless
    status = Status.CONVERGED if holds else Status.DIVERGED if endless else Status.BUDGET
    message = ADVICE if endless else f"{status.value} {FOUND}"
    fun, zero = found.loss, np.zeros(1)
    return Result(
        x=x, fun=fun, violation=0.0, success=holds, status=status,
        message=message, certificate=certificate, expectation=None, steps=0,
        gradients=found.gradients, values=0, hessian_products=0, seconds=0.0, compile_seconds=0.0,
        trace=Trace(np.zeros(1, int), np.zeros(1, int), zero, np.array([[fun]]), np.zeros((1, 1)),
                    np.zeros((1, 1)), len(rows.labels)),
        xs=jax.tree.map(lambda leaf: leaf[None], x), funs=np.array([fun]), violations=zero,
        tol=tol,
        settings={
            "method": "splicing", "samples": len(rows.labels),
            "variables": sum(np.size(leaf) for leaf in x.values()), "constraints": 0,
            "regularizer": "Cardinality", "max_features": int(params["max_features"]),
        },
    )  # fmt: skip
