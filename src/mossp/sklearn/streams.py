"""partial_fit: a run of the method that goes on from call to call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mossp._base.disk import on_by_default
from mossp._base.types import PyTree
from mossp.data import SparseRows, is_sparse
from mossp.fairness import Covariance
from mossp.sklearn.answers import coefficients_of, set_coefficients
from mossp.sklearn.formulation import (
    CLASSIFICATION,
    REGRESSION,
    formulate,
    loss_of,
    targets_of,
)
from mossp.sklearn.promises import has_rates
from mossp.sklearn.rows import Rows
from mossp.solving.online import Online

BATCH = 32  # rows a step, where that is left open


class Streaming:
    """What an estimator keeps of its run between the calls of partial_fit."""

    _online: Online | None = None
    _state: Any = None
    _width: int = 1  # of the sparse rows seen so far

    def _feed(self, rows: Rows) -> None:
        """One step of the run a mini-batch of these rows."""
        model: Any = self
        if has_rates(vars(model)):
            raise ValueError(
                "A rate is promised on all training rows, and partial_fit sees some: use fit, or "
                "bound a smooth rate by mossp.Expected as inequality."
            )
        given = model.inequality
        bounds = given if isinstance(given, (list, tuple)) else [given]
        if any(isinstance(bound, Covariance) for bound in bounds):
            raise ValueError(
                "A fairness bound is over all rows, and partial_fit sees some: use fit, or write "
                "the bound as a function of the coefficients."
            )
        loss = loss_of(model.loss, REGRESSION if rows.classes is None else CLASSIFICATION,
                       rows.classes)  # fmt: skip
        targets = targets_of(loss, rows)
        loss.check((rows.X, targets))
        run = self._online
        if run is None:
            problem, x0, settings = formulate(vars(model), rows, coefficients_of(model))
            run = self._online = Online(
                problem.loss,
                x0,
                regularizer=problem.regularizer,
                equality=problem.equality,
                inequality=problem.inequality,
                method=settings["method"],
                seed=settings["seed"],
                dtype=settings["dtype"],
                state=self._state,
            )
        kept = rows.weights > 0  # a row without weight is none
        data = [part[kept] for part in rows.data(targets)]
        self._width = max(self._width, width_of(data[0]))
        size = BATCH if model.batch_size in (None, "auto") else model.batch_size
        with on_by_default():
            run.feed(batches(data, size, self._width))
        if not run.finite:
            self._online = None
            raise ValueError(
                "The run has left for infinity on this stream: scale the features first "
                "(sklearn.preprocessing.StandardScaler)."
            )
        self._state = run.state
        set_coefficients(model, run.x, max(run.steps, 1))
        for name in (
            "result_",
            "certificate_",
            "violation_",
            "rates_",
        ):  # they were of other coefficients
            self.__dict__.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is compiled; what the run needs to go on is numbers, and stays."""
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        state.pop("_online", None)
        return state


def width_of(X: Any) -> int:
    """Entries a row for which sparse rows have room: a power of 2, so that few shapes occur."""
    if not is_sparse(X):
        return 1
    most = int(np.diff(X.indptr).max(initial=1))
    return 1 << (most - 1).bit_length()


def batches(data: Sequence[Any], size: int, width: int) -> list[PyTree]:
    """Mini-batches of one size; where rows are missing, copies with weight 0 fill them up.

    The data are X, targets, weights, and what else each row has.
    """
    X, targets, weights, *others = data
    N, found = X.shape[0], []
    for first in range(0, N, size):
        chosen = np.arange(first, first + size)
        real = chosen < N
        chosen = np.where(real, chosen, first)
        w = weights[chosen] * real * (size / real.sum())
        part = X[chosen]
        part = SparseRows.of(part, width=width) if is_sparse(X) else part
        found.append((part, targets[chosen], w, *(other[chosen] for other in others)))
    return found
