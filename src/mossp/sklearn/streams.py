"""partial_fit: a run of the method that goes on from call to call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mossp.data import SparseRows, is_sparse
from mossp.fairness import Covariance
from mossp.losses import LinearModel
from mossp.sklearn.statement import seed_of
from mossp.solving.online import Online

PyTree = Any

BATCH = 32  # rows a step


class Rows(NamedTuple):
    """Checked data: features, targets as the loss wants them, weights."""

    X: Any
    b: np.ndarray
    w: np.ndarray

    def balanced(self) -> Rows:
        """With weights whose mean is 1: the strength of a regulariser keeps its meaning."""
        return self._replace(w=self.w * (len(self.w) / self.w.sum()))

    def at(self, rows: np.ndarray) -> Rows:
        """Some of the rows."""
        w = self.w[rows]
        if not w.sum() > 0:
            raise ValueError("sample_weight is zero for all rows of a fold: use fewer folds.")
        return Rows(self.X[rows], self.b[rows], w).balanced()


class Streaming:
    """What an estimator keeps of its run between the calls of partial_fit."""

    _online: Online | None = None
    _state: Any = None
    _width: int = 1  # of the sparse rows seen so far

    def _feed(self, rows: Rows, labels: np.ndarray) -> None:
        """One step of the run a mini-batch of these rows."""
        model: Any = self
        given = model.inequality
        bounds = given if isinstance(given, (list, tuple)) else [given]
        if any(isinstance(bound, Covariance) for bound in bounds):
            raise ValueError(
                "A fairness bound is over all rows, and partial_fit sees some: use fit, or write "
                "the bound as a function of the coefficients."
            )
        run = self._online
        if run is None:
            n = rows.X.shape[1]
            run = self._online = Online(
                LinearModel(model._model_loss()),
                model._start(n, warm=True),
                regularizer=model._regularizer(n, model.lam),
                method=model.method,
                seed=seed_of(model.random_state),
                dtype=model.dtype,
                state=self._state,
                **model._constraints(rows, labels, None),
            )
        run.feed(self._batches(rows, model.batch_size or BATCH))
        if not run.finite:
            self._online = None
            raise ValueError(
                "The run has left for infinity on this stream: scale the features first "
                "(sklearn.preprocessing.StandardScaler)."
            )
        self._state = run.state
        model._keep(run.x, max(run.steps, 1))
        for name in ("result_", "certificate_", "violation_"):  # they were of other coefficients
            self.__dict__.pop(name, None)

    def _batches(self, rows: Rows, size: int) -> list[PyTree]:
        """Mini-batches of one size; where rows are missing, copies with weight 0 fill them up."""
        rows = Rows(*(part[rows.w > 0] for part in rows))  # a row without weight is none
        N, wide = rows.X.shape[0], 0
        if is_sparse(rows.X):
            most = int(np.diff(rows.X.indptr).max(initial=1))
            self._width = wide = max(1 << (most - 1).bit_length(), self._width)
        batches = []
        for first in range(0, N, size):
            chosen = np.arange(first, first + size)
            real = chosen < N
            chosen = np.where(real, chosen, first)
            X = rows.X[chosen]
            w = rows.w[chosen] * real * (size / real.sum())
            batches.append((SparseRows.of(X, width=wide) if wide else X, rows.b[chosen], w))
        return batches

    def __getstate__(self) -> dict[str, Any]:
        """Without what is compiled; what the run needs to go on is numbers, and stays."""
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        state.pop("_online", None)
        return state
