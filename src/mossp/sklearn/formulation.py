"""From the parameters of a linear model and its rows to what `solve` takes.

`formulate` is the whole of it, a function of values: estimators, `PathCV` and streams use it, and a
new parameter that changes the problem is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from mossp import losses
from mossp._base import naming
from mossp._base.types import PyTree
from mossp.losses import LinearModel, Predictive
from mossp.problem import Problem
from mossp.regularizers import Cardinality, Group, Nonnegative, Regularizer
from mossp.sklearn.attributes import only_attribute
from mossp.sklearn.coefficients import constraint_of, on_coefficients, regularizer_of
from mossp.sklearn.rows import Rows

Parameters = Mapping[str, Any]  # by name, as `get_params()` or `vars` of an estimator has them


class Task(NamedTuple):
    """What an estimator is for, and the losses that suit it, the default first."""

    estimator: str
    losses: tuple[str, ...]


CLASSIFICATION = Task("MoSSPClassifier", ("logistic", "huberized-hinge"))
REGRESSION = Task("MoSSPRegressor", ("squared", "huber", "quantile", "poisson", "gamma", "tweedie"))


class Formulation(NamedTuple):
    """The arguments of `solve(problem, x0, **settings)`; x has "coef" and "intercept"."""

    problem: Problem
    x0: PyTree
    settings: dict[str, Any]


def formulate(params: Parameters, rows: Rows, start: PyTree | None = None) -> Formulation:
    """The problem of a linear model, where to start, and the settings of the run.

    Parameters
    ----------
    params : mapping
        Of the estimator.
    rows : Rows
        To fit to.
    start : pytree, optional
        Coefficients to start from instead of zeros, if their shape suits the problem.

    Examples
    --------
    >>> from mossp.sklearn import MoSSPRegressor
    >>> rows = Rows(np.eye(3), np.arange(3.0), np.ones(3))
    >>> problem, x0, settings = formulate(MoSSPRegressor(lam=0.1).get_params(), rows)
    >>> problem.regularizer.blocks["coef"].lam, x0["coef"].shape, settings["tol"]
    (0.1, (3,), None)
    """
    loss = loss_of(params["loss"], REGRESSION if rows.classes is None else CLASSIFICATION,
                   rows.classes)  # fmt: skip
    problem = Problem(
        loss=LinearModel(loss, offset=rows.offset is not None),
        data=rows.data(targets_of(loss, rows)),
        regularizer=penalty_of(params, rows, params["lam"]),
        **constraints_of(params, rows),
    )
    return Formulation(problem, start_of(params, rows, start), settings_of(params))


def loss_of(given: Any, task: Task, classes: Any = None) -> Predictive:
    """The loss by its name, or the object given; softmax for more than two classes."""
    loss = task.losses[0] if given is None else given
    if not isinstance(loss, (str, Predictive)):
        raise TypeError(
            f"loss must be a name, one of {', '.join(task.losses)}, or an object such as "
            f"mossp.losses.{losses.NAMES[task.losses[1]].__name__}(...), but {loss!r} was given."
        )
    if isinstance(loss, str) and loss.partition(":")[0].strip() not in losses.NAMES:
        naming.find(loss, dict.fromkeys(task.losses), "loss")  # tells those that are right here
    found = losses.named(loss) if isinstance(loss, str) else loss
    ready = tuple(losses.NAMES[name] for name in task.losses)
    of_its_own = isinstance(found, Predictive) and isinstance(getattr(found, "loss", None), ready)
    if not (isinstance(found, ready) or of_its_own):
        raise ValueError(
            f"{task.estimator} takes the losses {', '.join(task.losses)}, but {given!r} was given."
        )
    several = classes is not None and len(classes) > 2
    return losses.softmax if several and isinstance(found, losses.Logistic) else found


def targets_of(loss: Predictive, rows: Rows) -> np.ndarray:
    """Labels as the loss wants them: for the hinge, one class against the rest."""
    if rows.outputs and isinstance(loss, losses.HuberizedHinge):
        return np.where(rows.labels[:, None] == np.arange(rows.outputs), 1.0, -1.0)
    return rows.labels


def penalty_of(params: Parameters, rows: Rows, lam: float | None) -> Regularizer:
    """The regulariser of the model with this strength; None: its own."""
    C = rows.outputs or 1
    if params["max_features"] is None:
        reg = regularizer_of(params["regularizer"], lam, params["nonnegative"])
    else:
        reg = limit_of(params, rows.features, C)
    intercepts = C if params["fit_intercept"] else 0
    return on_coefficients(
        reg, params["feature_weights"], rows.features, C, intercepts, params["penalize_intercept"]
    )


def limit_of(params: Parameters, features: int, outputs: int) -> Regularizer:
    """The hard limit on the number of features; of several classes a feature is a group."""
    k = params["max_features"]
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 0:
        raise ValueError(f"max_features must be a whole number >= 0, but {k!r} was given.")
    if params["lam"] is not None or params["regularizer"] not in ("l1", "none"):
        raise ValueError(
            "max_features is a hard limit in place of a regulariser: leave regularizer and lam out."
        )
    limit: Regularizer = Cardinality(min(int(k), features))
    if outputs > 1:
        limit = Group(limit, np.repeat(np.arange(features), outputs))
    return Nonnegative(limit) if params["nonnegative"] else limit


def constraints_of(params: Parameters, rows: Rows) -> dict[str, Any]:
    def on_data(bound: Any) -> Any:
        attributes = rows.sensitive or {}
        named, z = bound.attribute, None
        if isinstance(named, str) and named in attributes:  # else it is a column of X
            bound, z = type(bound)(bound.bound), attributes[named]
        elif named is None:
            z = only_attribute(rows.sensitive)
        return bound.on(
            rows.X, rows.labels, rows.weights, sensitive=z, names=rows.names,
            classes=rows.outputs, offset=rows.offset,
        )  # fmt: skip

    common: dict[str, Any] = {
        "columns": list(() if rows.names is None else rows.names) or rows.features,
        "classes": rows.outputs, "extended": params["constrain_intercept"], "on_data": on_data,
        "arrays": 3 if rows.offset is None else 4,
    }  # fmt: skip
    inequality: Any = constraint_of(params["inequality"], "<=", **common)
    if "beside" in params:  # of the model's own, by name
        given = inequality if isinstance(inequality, dict) else {"given": inequality}
        given = {name: part for name, part in given.items() if part is not None}
        inequality = {**given, **params["beside"]}
    return {"equality": constraint_of(params["equality"], "=", **common), "inequality": inequality}


def start_of(params: Parameters, rows: Rows, start: PyTree | None) -> PyTree:
    tail = () if rows.outputs is None else (rows.outputs,)
    x0 = {"coef": np.zeros((rows.features, *tail))}
    if params["fit_intercept"]:
        x0["intercept"] = np.zeros(tail)
    if start is not None and np.shape(start["coef"]) == x0["coef"].shape:
        x0 = {name: np.reshape(start[name], zeros.shape).astype(float)
              for name, zeros in x0.items()}  # fmt: skip
    return x0


def settings_of(params: Parameters) -> dict[str, Any]:
    return {
        "method": params["method"], "steps": params["steps"], "batch_size": params["batch_size"],
        "polish": params["polish"], "tol": params["tol"], "replicas": params["n_replicas"],
        "starts": params["n_starts"], "seed": seed_of(params["random_state"]),
        "dtype": params["dtype"],
        **({"checkpoint": params["checkpoint"]} if "checkpoint" in params else {}),
    }  # fmt: skip


def seed_of(random_state: Any) -> int:
    """None is 0: the same data then give the same answer."""
    if random_state is None:
        return 0
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
