"""An answer as attributes of an estimator, in scikit-learn's shapes, and back."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

from mossp import losses
from mossp._base.types import PyTree
from mossp.data import is_sparse
from mossp.result import Result, Status
from mossp.sklearn.formulation import CLASSIFICATION, loss_of
from mossp.sklearn.rows import Rows

UNEVEN = 1e3  # scales of the features this far apart make any method slow


def set_result(model: Any, result: Result, rows: Rows) -> None:
    """What `fit` leaves behind; where the certificate does not hold, its caller's caller is warned.

    A run that was interrupted is kept, and then the interrupt goes on.
    """
    model.result_ = result
    model.certificate_ = result.certificate
    model.violation_ = result.violation
    set_coefficients(model, result.x, max(result.steps, 1))
    for name in ("rates_", "rates_error_"):  # of an earlier fit
        model.__dict__.pop(name, None)
    if "rates" in result.settings:
        model.rates_ = dict(result.settings["rates"]["true"])
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if not result.success:
        warnings.warn(result.message + advice(rows.X, result), ConvergenceWarning, stacklevel=3)


def set_coefficients(model: Any, x: PyTree, steps: int = 1) -> None:
    """Set coef_, intercept_ and n_iter_."""
    model.n_iter_ = steps
    coef = np.asarray(x["coef"]).T
    intercept = np.asarray(x.get("intercept", np.zeros(coef.shape[:-1])))
    if not is_classifier(model):
        model.coef_, model.intercept_ = coef, float(intercept)
        return
    free = model.equality is None and model.inequality is None and not model.penalize_intercept
    if free and isinstance(loss_of(model.loss, CLASSIFICATION, model.classes_), losses.Softmax):
        intercept = intercept - intercept.mean()  # a shift of all classes means nothing
    model.coef_, model.intercept_ = np.atleast_2d(coef), np.atleast_1d(intercept)


def coefficients_of(model: Any) -> PyTree | None:
    """{"coef", "intercept"} of a fitted model in the shapes of the problem; None before `fit`."""
    if not hasattr(model, "coef_"):
        return None
    coef = np.atleast_2d(np.asarray(model.coef_, np.float64))
    if len(coef) == 1:
        return {"coef": coef[0], "intercept": np.reshape(model.intercept_, ())}
    return {"coef": coef.T, "intercept": np.asarray(model.intercept_)}


def advice(X: Any, result: Result) -> str:
    """What to try, where the data tell."""
    if X is None or result.status not in (Status.BUDGET, Status.DIVERGED, Status.NONFINITE):
        return ""
    largest = abs(X).max(axis=0)
    scale = np.ravel(largest.toarray() if is_sparse(largest) else largest)
    scale = scale[scale > 0]
    if len(scale) and scale.max() > UNEVEN * scale.min():
        return (
            f" The features' scales are up to {scale.max() / scale.min():.0e} apart: scale them "
            "first (sklearn.preprocessing.StandardScaler)."
        )
    return " More steps, a larger tol or a stronger regulariser are the first things to try."
