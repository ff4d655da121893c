"""What the linear models share: stating the problem, solving it, keeping the answer."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from mossp import losses
from mossp._base import naming
from mossp._base.surroundings import refuse_traced
from mossp.data import is_sparse
from mossp.losses import LinearModel, Predictive
from mossp.problem import Problem
from mossp.result import Result, Status
from mossp.sklearn.statement import constraint_of, on_coefficients, regularizer_of, seed_of
from mossp.sklearn.streams import Rows, Streaming
from mossp.solving.solve import solve

PyTree = Any

UNEVEN = 1e3  # scales of the features this far apart make any method slow


PARAMETERS = """
    regularizer          "l1", "l1-l2", "mcp", "scad", "capped-l1", "log-sum", "transformed-l1",
                         "truncated-l1:0.1,5", "truncated-l1-l2:0.1,5" or "none", or an object such
                         as mossp.Group(...); of all coefficients as one vector
    lam                  its strength, which wins over one in the name or the object; left out, 0.01
                         for a name without one
    equality, inequality c(x) = 0, c(x) <= 0 on the coefficients x, of shape (n_features,), or
                         (n_features, n_classes) for more than two classes: a function in JAX,
                         text such as "sum(x**2) = 1" or "age <= 0.5", or a list of these; as
                         inequality a bound of `mossp.fairness`, too
    nonnegative          coefficients >= 0
    fit_intercept        the intercept is neither penalised nor constrained, unless
                         penalize_intercept or constrain_intercept: functions then see it as the
                         last entry. Text may always speak of `intercept`
    feature_weights      a weight of the regulariser for each feature; 0: not penalised
    method, steps, batch_size, polish, tol, dtype
                         those of `mossp.solve`
    n_starts, n_replicas so many runs from different starts, or from one; the best is kept
    warm_start           start from the coefficients of the last fit
    random_state         None is 0: the same data give the same answer

Scale the features first: a penalty compares coefficients.

After `fit`: `coef_`, `intercept_`, `classes_` (of a classifier; positive scores speak for the
second), `n_iter_`; `certificate_`, `violation_` and `result_`, the
whole of `mossp.solve`'s answer. A ConvergenceWarning says that the certificate does not hold.

"""


class LinearEstimator(Streaming, BaseEstimator):
    """A linear model under a regulariser and constraints. Subclasses say what targets are."""

    def __init__(
        self,
        loss: Any = None,
        *,
        regularizer: Any = "l1",
        lam: float | None = None,
        equality: Any = None,
        inequality: Any = None,
        nonnegative: bool = False,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        constrain_intercept: bool = False,
        feature_weights: Any = None,
        method: Any = "auto",
        steps: int | None = None,
        batch_size: int | None = None,
        polish: bool | None = None,
        tol: float | None = None,
        n_starts: int = 1,
        n_replicas: int = 1,
        warm_start: bool = False,
        random_state: Any = None,
        dtype: str = "float64",
    ) -> None:
        self.loss = loss
        self.regularizer = regularizer
        self.lam = lam
        self.equality = equality
        self.inequality = inequality
        self.nonnegative = nonnegative
        self.fit_intercept = fit_intercept
        self.penalize_intercept = penalize_intercept
        self.constrain_intercept = constrain_intercept
        self.feature_weights = feature_weights
        self.method = method
        self.steps = steps
        self.batch_size = batch_size
        self.polish = polish
        self.tol = tol
        self.n_starts = n_starts
        self.n_replicas = n_replicas
        self.warm_start = warm_start
        self.random_state = random_state
        self.dtype = dtype

    # What subclasses say ------------------------------------------------------------------

    _losses: tuple[str, ...] = ()  # the first one is the default

    @abc.abstractmethod
    def _prepared(
        self, X: Any, y: Any, sample_weight: Any = None, reset: bool = True
    ) -> tuple[Rows, np.ndarray]:
        """Checked rows, and labels: targets, classes as -1 and +1, or as 0, ..., C - 1."""

    def _outputs(self) -> int | None:
        """C where there are so many scores a row; None for one."""
        return None

    def _model_loss(self) -> Predictive:
        """The loss by its name, or the object given."""
        loss = self._losses[0] if self.loss is None else self.loss
        if not isinstance(loss, (str, Predictive)):
            raise TypeError(
                f"loss must be a name, one of {', '.join(self._losses)}, or an object such as "
                f"mossp.losses.{losses.NAMES[self._losses[1]].__name__}(...), but {loss!r} was "
                "given."
            )
        if isinstance(loss, str) and loss.partition(":")[0].strip() not in losses.NAMES:
            naming.find(
                loss, dict.fromkeys(self._losses), "loss"
            )  # tells those that are right here
        found = losses.named(loss) if isinstance(loss, str) else loss
        if not isinstance(found, tuple(losses.NAMES[name] for name in self._losses)):
            raise ValueError(
                f"{type(self).__name__} takes the losses {', '.join(self._losses)}, but "
                f"{self.loss!r} was given."
            )
        return found

    # Stating the problem ------------------------------------------------------------------

    def _start(self, n: int, warm: bool) -> PyTree:
        outputs = self._outputs()
        tail = () if outputs is None else (outputs,)
        x0 = {"coef": np.zeros((n, *tail))}
        if self.fit_intercept:
            x0["intercept"] = np.zeros(tail)
        if warm and hasattr(self, "coef_"):
            coef = np.asarray(self.coef_, np.float64)
            coef = np.ravel(coef) if outputs is None else np.atleast_2d(coef).T
            if coef.shape == x0["coef"].shape:
                x0["coef"] = coef
                if self.fit_intercept:
                    x0["intercept"] = np.reshape(self.intercept_, tail).astype(float)
        return x0

    def _columns(self, n: int) -> int | Sequence[str]:
        return list(getattr(self, "feature_names_in_", ())) or n

    def _regularizer(self, n: int, lam: float | None) -> Any:
        C = self._outputs() or 1
        reg = regularizer_of(self.regularizer, lam, self.nonnegative)
        intercepts = C if self.fit_intercept else 0
        return on_coefficients(reg, self.feature_weights, n, C, intercepts, self.penalize_intercept)

    def _constraints(self, rows: Rows, labels: np.ndarray, sensitive: Any) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)

        def on_data(bound: Any) -> Any:
            return bound.on(
                rows.X, labels, rows.w, sensitive=sensitive, names=names, classes=self._outputs()
            )

        common: dict[str, Any] = {
            "columns": self._columns(rows.X.shape[1]), "classes": self._outputs(),
            "extended": self.constrain_intercept, "on_data": on_data,
        }  # fmt: skip
        return {
            "equality": constraint_of(self.equality, "=", **common),
            "inequality": constraint_of(self.inequality, "<=", **common),
        }

    def _problem(self, rows: Rows, labels: np.ndarray, sensitive: Any, lam: Any) -> Problem:
        return Problem(
            loss=LinearModel(self._model_loss()),
            data=tuple(rows),
            regularizer=self._regularizer(rows.X.shape[1], lam),
            **self._constraints(rows, labels, sensitive),
        )

    def _settings(self) -> dict[str, Any]:
        return {
            "method": self.method, "steps": self.steps, "batch_size": self.batch_size,
            "polish": self.polish, "tol": self.tol, "replicas": self.n_replicas,
            "starts": self.n_starts, "seed": seed_of(self.random_state), "dtype": self.dtype,
        }  # fmt: skip

    def _checked_X(self, X: Any, y: Any = "no_validation", reset: bool = True, **how: Any) -> Any:
        refuse_traced(X, y)
        return validate_data(
            self, X, y, reset=reset, accept_sparse="csr", dtype=np.float64,
            accept_large_sparse=False, **how,
        )  # fmt: skip

    def _weights(self, X: Any, sample_weight: Any) -> np.ndarray:
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not w.sum() > 0:
            raise ValueError("sample_weight is zero for every sample: at least one must count.")
        return w

    # Fitting ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None, sensitive: Any = None) -> Any:
        """Fit to rows X with targets y; `sensitive` is the attribute of a fairness bound."""
        rows, labels = self._prepared(X, y, sample_weight)
        problem = self._problem(rows.balanced(), labels, sensitive, self.lam)
        x0 = self._start(rows.X.shape[1], self.warm_start)
        self._take(solve(problem, x0, **self._settings()), rows)
        return self

    def _take(self, result: Result, rows: Rows) -> None:
        self._online = self._state = None
        self.result_ = result
        self.certificate_ = result.certificate
        self.violation_ = result.violation
        self._keep(result.x, max(result.steps, 1))
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if not result.success:
            warnings.warn(
                result.message + _advice(rows.X, result), ConvergenceWarning, stacklevel=3
            )

    def _keep(self, x: PyTree, steps: int) -> None:
        """coef_, intercept_ and n_iter_, in scikit-learn's shapes."""
        self.n_iter_ = steps
        coef = np.asarray(x["coef"]).T
        intercept = np.asarray(x.get("intercept", np.zeros(coef.shape[:-1])))
        free = self.equality is None and self.inequality is None and not self.penalize_intercept
        if free and isinstance(self._model_loss(), losses.Softmax):
            intercept = intercept - intercept.mean()  # a shift of all classes means nothing
        self.coef_, self.intercept_ = self._shaped(coef, intercept)

    def _shaped(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, Any]:
        return np.atleast_2d(coef), np.atleast_1d(intercept)

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "coef_")
        X = self._checked_X(X, reset=False)
        coef = np.atleast_2d(self.coef_)
        scores = np.asarray(X @ coef.T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _advice(X: Any, result: Result) -> str:
    """What to try, where the data tell."""
    if result.status not in (Status.BUDGET, Status.DIVERGED, Status.NONFINITE):
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
