"""A fitted linear model in a file: arrays and JSON with a checksum, never pickle."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mossp._base import archive, layout
from mossp._base.printing import shown
from mossp.app.features import Features
from mossp.app.tables import TableError

# A model with an offset is of the second format: what knows the first only would leave it out. One
# with dates, ids, a threshold or values that are filled in is of the third.
FORMATS, MARK = (1, 2, 3), "a linear model of mossp"
KINDS = ("classifier", "regressor")
# What `mossp fit` tells of where a model comes from. All of it may be missing.
ABOUT: dict[str, Any] = {
    **dict.fromkeys(
        ("regularizer", "status", "method", "data", "version", "created", "units"), str
    ),
    **dict.fromkeys(("equality", "inequality"), layout.Each(str)),
    **dict.fromkeys(
        ("parity", "opportunity", "objective", "violation", "rates_margin"), (float, None)
    ),
    **dict.fromkeys(("sensitive", "choose", "task"), (str, None)),
    **dict.fromkeys(("prior_", "max_fpr", "min_fpr"), float),
    "seed": (int, None),
    **dict.fromkeys(("threshold", "scoring"), str),
    **dict.fromkeys(("strength", "nonzeros"), layout.Each(float, named=True)),
    "confusion": layout.Each(layout.Each(layout.Each(int)), named=True),
    "certificate": {"holds": bool, "tol": float},
    **dict.fromkeys(("scores", "rates"), layout.Each(layout.Each(float, named=True), named=True)),
}
FILE = dict.fromkeys(("kind", "loss", "target", "about"), object) | {"features": dict}
LATER: dict[int, dict[str, Any]] = {  # what later formats have besides
    1: {},
    2: {"offset": str},
    3: {"offset": (str, None), "id": layout.Each(str), "threshold": (float, None)},
}
LOGARITHMIC = ("poisson", "gamma", "tweedie")  # losses whose exp(score) is the mean
LOSSES = ("logistic", "softmax", "huberized-hinge", "squared", "huber", "quantile", *LOGARITHMIC,
          "partial-auc")  # fmt: skip


class ModelError(ValueError):
    """A model that cannot be made, written or read: one sentence."""


@dataclass(frozen=True, eq=False)
class Model:
    """A linear model with all that a prediction needs.

    Parameters
    ----------
    kind : {"classifier", "regressor"}
        What it predicts.
    loss : str
        Its name, perhaps with numbers, as in "quantile:0.9".
    target : str or None
        The column that is predicted; None for LIBSVM.
    classes : array or None
        Of a classifier: numbers, booleans or text, in the order of the rows of coef.
    features : Features
        How a table becomes X.
    coef : array
        One row, or one for each class, in units of the standardised features.
    intercept : array
        One number for each row of coef.
    about : dict
        What JSON can hold of where the model comes from; NaN and infinity may be in it.
    offset : str, optional
        The column that is added to the scores, or "log(column)".
    id : tuple of str
        Columns that tell rows apart, which predictions hand through.
    threshold : float, optional
        Of two classes: the probability (of a loss without any the score) above which a row is of
        the second; 1/2 (or 0) if left out.

    Examples
    --------
    >>> features = Features((("age", None),), (40.0,), (10.0,))
    >>> model = Model("regressor", "squared", "pay", None, features, [[2.0]], [30.0])
    >>> X = np.array([[-1.0], [1.0]])  # the ages 30 and 50
    >>> model.predict(X).tolist()
    [28.0, 32.0]
    >>> coef, intercept = model.raw_coefficients()
    >>> coef.tolist(), intercept.tolist()
    ([[0.2]], [22.0])
    """

    kind: str
    loss: str
    target: str | None
    classes: np.ndarray | None
    features: Features
    coef: np.ndarray
    intercept: np.ndarray
    about: dict[str, Any] = field(default_factory=dict)
    offset: str | None = None
    id: tuple[str, ...] = ()
    threshold: float | None = None

    def __post_init__(self) -> None:
        n = len(self.features.names)
        try:
            coef, intercept = np.array(self.coef), np.array(self.intercept)
        except ValueError:  # rows of different lengths
            coef = intercept = np.array(None)
        if not {coef.dtype.kind, intercept.dtype.kind} <= set("biuf"):
            raise ModelError("The coefficients of a model must be numbers.")
        coef, intercept = coef.astype(float), intercept.astype(float)
        if coef.ndim != 2 or coef.shape[1] != n or intercept.shape != coef.shape[:1]:
            raise ModelError(
                f"A model of {n} features needs coef of the shape (rows, {n}) and intercept of "
                f"(rows,), but they have the shapes {coef.shape} and {intercept.shape}."
            )
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise ModelError("The coefficients of a model must be finite, but some are not.")
        name = self.loss.partition(":")[0] if isinstance(self.loss, str) else None
        if self.kind not in KINDS or name not in LOSSES:
            raise ModelError(f"There is no {shown(self.kind)} with the loss {shown(self.loss)}.")
        texts = isinstance(self.target, str | None) and isinstance(self.offset, str | None)
        if not texts or not isinstance(self.about, dict):
            raise ModelError(
                "The target and the offset of a model must be text or None, and about a dict."
            )
        try:
            known = {name: kind for name, kind in ABOUT.items() if name in self.about}
            layout.check(self.about, known, "about")
        except layout.LayoutError as error:
            raise ModelError(f"A model cannot be told about so: {error}.") from None
        classes = None if self.classes is None else _plain(self.classes)
        rows, count = len(coef), 0 if classes is None else len(classes)
        right = count == max(2, rows) if self.kind == "classifier" else (rows, count) == (1, 0)
        if not (rows and right):
            raise ModelError(
                f"A {self.kind} with {rows} rows of coefficients cannot have {count} classes."
            )
        if self.threshold is not None:
            likely = not self.has_probabilities or 0 < self.threshold < 1
            if count != 2 or not np.isfinite(self.threshold) or not likely:
                raise ModelError(
                    "A threshold is for two classes, and between 0 and 1 where the model has "
                    "probabilities."
                )
        # What is stored is what was checked.
        for name, value in (("coef", coef), ("intercept", intercept), ("classes", classes)):
            object.__setattr__(self, name, value)

    @property
    def certified(self) -> bool | None:
        """Whether the certificate held when the model was fitted; None where it is not known."""
        certificate = self.about.get("certificate")
        holds = certificate.get("holds") if isinstance(certificate, dict) else None
        return holds if isinstance(holds, bool) else None

    @property
    def doubt(self) -> str:
        """One sentence about a model whose certificate did not hold."""
        status, violation = self.about.get("status"), self.about.get("violation")
        ended = f" ({status})" if isinstance(status, str) and status.isidentifier() else ""
        broken = isinstance(violation, float) and violation > 0 and self._constrained
        violated = f", and its constraints are violated by {violation:.2g}" * broken
        return (
            f"The fit of this model did not succeed{ended}{violated}: its predictions may not be "
            "what was asked for."
        )

    @property
    def _constrained(self) -> bool:
        asked = ("equality", "inequality", "rates", "parity", "opportunity")
        return any(self.about.get(name) not in (None, [], {}) for name in asked)

    # Predictions --------------------------------------------------------------------------------

    def decision(self, X: Any, offset: Any = None) -> np.ndarray:
        """X coef' + intercept for rows of features; one number a row if coef has one row.

        `offset` is one number for each row (and score), where the model has one, and added.
        """
        if np.shape(X)[1:] != self.coef.shape[1:]:
            raise ModelError(
                f"The model has {self.coef.shape[1]} features, but X has the shape {np.shape(X)}."
            )
        scores = X @ self.coef.T + self.intercept
        scores = scores[:, 0] if len(self.coef) == 1 else scores
        if (offset is None) != (self.offset is None):
            raise ModelError(
                "The model has no offset, so that none can be added."
                if self.offset is None
                else f"The model adds the offset {shown(self.offset)}: give that of each row."
            )
        if offset is None:
            return scores
        if np.shape(offset) != scores.shape:
            raise ModelError(
                f"The offset must have the shape {scores.shape}, but its shape is "
                f"{np.shape(offset)}."
            )
        return scores + np.asarray(offset, float)

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """The class of each row, or the number; the mean where the link is a logarithm."""
        scores = self.decision(X, offset)
        if self.classes is not None:
            best = scores > self._cut if scores.ndim == 1 else scores.argmax(axis=1)
            return self.classes[best.astype(int)]
        if self.loss.partition(":")[0] not in LOGARITHMIC:
            return scores
        with np.errstate(over="ignore"):  # infinity is what it is
            return np.exp(scores)

    @property
    def _cut(self) -> float:
        """The score that the threshold is."""
        if self.threshold is None or not self.has_probabilities:
            return self.threshold or 0.0
        return float(np.log(self.threshold) - np.log1p(-self.threshold))

    @property
    def has_probabilities(self) -> bool:
        """Whether its loss gives probabilities of classes."""
        return self.loss == "softmax" or (self.loss, len(self.coef)) == ("logistic", 1)

    def probabilities(self, X: Any, offset: Any = None) -> np.ndarray | None:
        """One column for each class with the logistic and the softmax loss; else None."""
        if not self.has_probabilities:
            return None
        scores = self.decision(X, offset)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros_like(scores), scores])
        with np.errstate(over="ignore"):  # exp(-inf) is 0
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def raw_coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """(coef, intercept) for features before they are standardised."""
        with np.errstate(over="ignore", invalid="ignore"):  # of a scale near 0
            coef = self.coef / np.array(self.features.scale)
            return coef, self.intercept - coef @ np.array(self.features.centre)

    # Files --------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model: complete under its name, or not there at all."""
        path = Path(path)
        if os.path.isdir(path):
            raise ModelError(f"{path} is a folder, but the name of a file is needed.")
        if not os.path.isdir(path.parent):
            raise ModelError(f"There is no folder {path.parent} for {path.name}: make it first.")
        if os.path.exists(path) and not os.path.isfile(path):  # /dev/null would be replaced
            raise ModelError(f"{path} is not a plain file: give another name.")
        arrays = {"coef": self.coef, "intercept": self.intercept}
        if self.classes is not None:
            arrays["classes"] = self.classes
        meta = {name: getattr(self, name) for name in ("kind", "loss", "target", "about")}
        meta |= {"what": MARK, "format": FORMATS[0], "features": self.features.to_meta()}
        if self.offset is not None:
            meta |= {"format": FORMATS[1], "offset": self.offset}
        if self.id or self.threshold is not None or not self.features.plain:
            meta |= {"format": FORMATS[2], "offset": self.offset, "id": list(self.id)}
            meta |= {"threshold": self.threshold}
        try:
            return archive.write_arrays(path, arrays, meta)
        except archive.CheckpointError as error:
            raise ModelError(str(error)) from error
        except (TypeError, ValueError) as error:
            raise ModelError(f"{path} was not written, for JSON cannot hold all of it.") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """The model in a file, with every byte checked."""
        path = Path(path)
        foreign = f"{path} is damaged, or not a model of mossp."
        try:
            arrays, meta = archive.read_arrays(path)
        except archive.CheckpointError as error:
            why = error.__context__
            if isinstance(why, FileNotFoundError | IsADirectoryError | PermissionError):
                raise ModelError(f"{path} could not be read: {why.strerror}.") from error
            raise ModelError(foreign) from error
        try:
            if meta.get("what") != MARK:
                raise layout.LayoutError("it is something else")
            if meta.get("format") not in FORMATS:
                raise ModelError(
                    f"Its format is {shown(meta.get('format'))}, but only "
                    f"{' and '.join(map(str, FORMATS))} are known: update mossp."
                )
            layout.check(meta, FILE | LATER[meta["format"]])
            return cls(
                **{name: meta[name] for name in ("kind", "loss", "target", "about")},
                classes=arrays.get("classes"),
                coef=layout.array(arrays, "coef"),
                intercept=layout.array(arrays, "intercept"),
                features=Features.from_meta(meta["features"]),
                offset=meta.get("offset"),
                id=tuple(meta.get("id", ())),
                threshold=meta.get("threshold"),
            )
        except layout.LayoutError as error:
            raise ModelError(foreign) from error
        except (ModelError, TableError) as error:
            reason = str(error)
            raise ModelError(f"{path}: {reason[0].lower()}{reason[1:]}") from None


def _plain(classes: Any) -> np.ndarray:
    """Classes as an array of numbers, booleans or text, all finite and different."""
    values = np.asarray(classes)
    if values.dtype == object and len({type(value) for value in values.tolist()}) == 1:
        values = np.array(values.tolist())
    if values.ndim != 1 or values.dtype.kind not in "biufU":
        raise ModelError("The classes of a model must be all numbers, all booleans or all text.")
    finite = values.dtype.kind != "f" or np.isfinite(values).all()
    if not finite or len(np.unique(values)) != len(values):
        raise ModelError("The classes of a model must be finite and all different.")
    return values
