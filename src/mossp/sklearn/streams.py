"""partial_fit: a run of the method that goes on from call to call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mossp._base.disk import on_by_default
from mossp._base.types import PyTree
from mossp.data import SparseRows, is_sparse
from mossp.fairness import Covariance
from mossp.rates.running import Running
from mossp.sklearn import steering
from mossp.sklearn.answers import coefficients_of, set_coefficients
from mossp.sklearn.coefficients import entries
from mossp.sklearn.formulation import (
    CLASSIFICATION,
    REGRESSION,
    formulate,
    loss_of,
    targets_of,
)
from mossp.sklearn.promises import has_rates
from mossp.sklearn.rates import with_constraint
from mossp.sklearn.rows import Rows
from mossp.solving.online import Online

BATCH = 32  # rows a step, where that is left open


class Streaming:
    """What an estimator keeps of its run between the calls of partial_fit."""

    _online: Online | None = None
    _state: Any = None
    _width: int = 1  # of the sparse rows seen so far
    _running: Running | None = None  # estimates of rates

    def _feed(self, rows: Rows) -> None:
        """One step of the run a mini-batch of these rows."""
        model: Any = self
        if any(isinstance(bound, Covariance) for _, bound in entries(model.inequality)):
            raise ValueError(
                "A fairness bound is over all rows, and partial_fit sees some: use fit, or write "
                "the bound as a function of the coefficients."
            )
        loss = loss_of(model.loss, REGRESSION if rows.classes is None else CLASSIFICATION,
                       rows.classes)  # fmt: skip
        targets = targets_of(loss, rows)
        loss.check((rows.X, targets))
        rated = has_rates(vars(model))
        if rated and self._running is None:
            self._running = steering.begun(vars(model), rows)
        if self._running is not None:  # before anything is compiled, or learnt
            part = steering.checked_part(vars(model), rows, self._running)
        run = self._online
        if run is None:
            problem, x0, settings = formulate(vars(model), rows, coefficients_of(model))
            if self._running is not None:
                problem = with_constraint(problem, steering.constraint(self._running, loss))
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
        (kept,) = np.nonzero(rows.weights > 0)  # a row without weight is none
        usual = BATCH if self._running is None else steering.BATCH
        size = usual if model.batch_size in (None, "auto") else model.batch_size
        self._width = max(self._width, width_of(rows.X[kept]))
        at_once = len(kept) if self._running is None else steering.JUDGED * size
        for first in range(0, len(kept), at_once):
            some = kept[first : first + at_once]
            data, counting = [a[some] for a in rows.data(targets)], 0
            if self._running is not None:
                exists, counting = run.steps > 0 or hasattr(model, "coef_"), 1
                self._running, extra = steering.judged(
                    self._running, part.at(some), rows.only(some), targets[some], run.x, loss,
                    exists,
                )  # fmt: skip
                data += extra
            with on_by_default():
                run.feed(batches(data, size, self._width, counting))
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
        if self._running is not None:
            estimates = self._running.values()
            model.rates_ = {text: rate for text, (rate, _) in estimates.items()}
            model.rates_error_ = {text: error for text, (_, error) in estimates.items()}

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


def batches(data: Sequence[Any], size: int, width: int, counting: int = 0) -> list[PyTree]:
    """Mini-batches of one size; where rows are missing, copies with weight 0 fill them up.

    The data are X, targets, weights, and what else each row has; the last of these, so many as
    `counting` says, are weights, too.
    """
    X, targets, weights, *others = data
    N, found = X.shape[0], []
    for first in range(0, N, size):
        chosen = np.arange(first, first + size)
        real = chosen < N
        chosen = np.where(real, chosen, first)
        share = real * (size / real.sum())
        part = X[chosen]
        part = SparseRows.of(part, width=width) if is_sparse(X) else part
        rest = [other[chosen] for other in others]
        for k in range(len(rest) - counting, len(rest)):
            rest[k] = rest[k] * share[:, None]
        found.append((part, targets[chosen], weights[chosen] * share, *rest))
    return found
