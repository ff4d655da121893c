"""Fairness as a constraint: the margin must not go along with a protected attribute.

With z the attribute and a'w the margin (score) of a row, the covariance over the rows of a set R

    cov(w) = mean_{R} (z_i - mean_R z) a_i'w  =  d'w,    d = mean_R (z_i - mean_R z) a_i

is bounded by -bound <= d'w <= bound, one bound for every value of the attribute but the first (two
values: one; a number: itself). d is computed once, so that the constraint is linear in w and costs
nothing. Two sets of rows, as in Zafar et al. 2017:

    DemographicParity    R = all rows: decisions do not depend on the attribute
    EqualOpportunity     R = rows of the (positive) class: nor do those of the deserving

The intercept drops out. Small covariance is a proxy for equal rates, and the rates themselves are
what to evaluate afterwards: `selection_rates`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from mossp._base.module import Module
from mossp._base.printing import short
from mossp._base.types import (
    AnyArray,
    AnyKey,
    ArrayLike,
    ConstraintValues,
    HostArray,
    Number,
    PyTree,
)

__all__ = ["DemographicParity", "EqualOpportunity", "selection_rates"]


class Covariances(Module):
    """(c - bound, -c - bound), c = d'w + constant, for d of shape (count, n), or (count, n, C)."""

    directions: AnyArray
    bound: Number
    constant: AnyArray = 0.0  # the covariance of an offset

    def __call__(self, x: PyTree) -> ConstraintValues:
        x = jnp.asarray(x)
        d = jnp.asarray(self.directions, x.dtype)
        cov = jnp.sum(d * x, axis=1)  # of the score of each class, where there are several
        cov = cov + jnp.asarray(self.constant, x.dtype)
        return jnp.concatenate([jnp.ravel(cov), -jnp.ravel(cov)]) - self.bound


class Covariance(abc.ABC):
    """What both notions share. Given to the classifier as `inequality`, or in a list of them.

    Parameters
    ----------
    bound : float
        On the absolute covariance; 0 forbids any (1e-3 of the margin's scale is a usual choice).
    attribute : str or int, optional
        A column of X: its name (for a data frame) or its number. Left out, the attribute is what
        `fit(X, y, sensitive=z)` is given, which need not be a column of X.
    """

    def __init__(self, bound: float, attribute: str | int | None = None) -> None:
        if isinstance(bound, bool) or not isinstance(bound, (int, float, np.number)):
            raise TypeError(f"bound must be a number, but {bound!r} was given.")
        if not 0 <= bound < np.inf:
            raise ValueError(f"bound must be at least 0 and finite, but {bound} was given.")
        self.bound, self.attribute = float(bound), attribute

    def __repr__(self) -> str:
        given = "" if self.attribute is None else f", attribute={self.attribute!r}"
        return f"{type(self).__name__}({self.bound:g}{given})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), self.bound, self.attribute))

    @abc.abstractmethod
    def rows(self, labels: HostArray, classes: int | None = None) -> HostArray:
        """Which rows count, as 0 and 1: one line per score."""

    def on(
        self,
        X: AnyArray,
        labels: HostArray,
        weights: HostArray,
        *,
        sensitive: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        classes: int | None = None,
        offset: HostArray | None = None,
    ) -> Covariances:
        """The constraint on these data; X is an array or a scipy.sparse matrix, never made dense.

        Parameters
        ----------
        X : array or scipy.sparse matrix of shape (rows, n)
        labels : array of shape (rows,)
            -1 and +1, or 0, ..., C - 1 where there are C = `classes` scores.
        weights : array of shape (rows,)
            Of the samples.
        sensitive : array of shape (rows,), optional
            The attribute, where it is no column of X.
        names : sequence of str, optional
            Of the columns of X.
        classes : int, optional
            How many scores there are, where there are several.
        offset : array of shape (rows,) or (rows, classes), optional
            What is added to the scores.

        Returns
        -------
        Covariances
        """
        z = indicators(self._values(X, sensitive, names))
        counted = self.rows(labels, classes) * np.asarray(weights, np.float64)
        if (counted.sum(axis=1) == 0).any():
            raise ValueError(f"{self!r} has no row to look at: a class has no sample.")
        share = counted / counted.sum(axis=1, keepdims=True)
        added = np.zeros(len(labels)) if offset is None else np.asarray(offset)
        added = added[:, None] if added.ndim == 1 else added  # one column a score
        parts, constants = [], []
        for column in z.T:
            about = column - (share @ column)[:, None]  # one row per score
            parts.append(np.asarray(X.T @ (share * about).T))  # (n, scores)
            constants.append(np.sum((share * about).T * added, axis=0))
        directions, constant = np.stack(parts), np.stack(constants)
        if classes is None:
            return Covariances(directions[:, :, 0], self.bound, constant[:, 0])
        return Covariances(directions, self.bound, constant)

    def _values(
        self, X: AnyArray, sensitive: ArrayLike | None, names: Sequence[str] | None
    ) -> HostArray:
        if self.attribute is None:
            if sensitive is None:
                raise ValueError(
                    f"{self!r} needs the protected attribute of every row: fit(X, y, sensitive=z), "
                    "or name a column of X, attribute='sex'."
                )
            z = np.asarray(sensitive)
            if z.ndim != 1 or len(z) != X.shape[0]:
                raise ValueError(
                    f"sensitive must have one value for each of the {X.shape[0]} rows, but its "
                    f"shape is {z.shape}."
                )
            return z
        where = self.attribute
        if isinstance(where, str):
            known = [] if names is None else list(names)
            if where not in known:
                some = ", ".join(map(short, known[:10]))
                listed = some or "no names: give its number, or a data frame"
                raise ValueError(f"{self!r} names a column that X does not have; X has {listed}.")
            where = known.index(where)
        if not -X.shape[1] <= where < X.shape[1]:
            raise ValueError(f"{self!r} names column {where}, but X has {X.shape[1]} columns.")
        column = X[:, [where]]
        return np.ravel(column.toarray() if hasattr(column, "toarray") else column)


class DemographicParity(Covariance):
    """Covariance of attribute and margin within a bound, over all rows.

    Decisions then depend little on the attribute.

    Parameters
    ----------
    bound : float
        On the absolute covariance; 0 forbids any.
    attribute : str or int, optional
        A column of X by name or number; otherwise what `fit(X, y, sensitive=z)` is given.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    >>> c = DemographicParity(0.1).on(X, np.ones(4), np.ones(4), sensitive=["f", "m", "f", "m"])
    >>> np.round(c(np.array([1.0, 5.0])), 6).tolist()  # cov = -0.25
    [-0.35, 0.15]
    """

    def rows(self, labels: HostArray, classes: int | None = None) -> HostArray:
        return np.ones((classes or 1, len(labels)))


class EqualOpportunity(Covariance):
    """Covariance of attribute and margin within a bound, over the rows of one class.

    The class is +1 where there are two, and each one for its own score where there are more.

    Parameters
    ----------
    bound : float
        On the absolute covariance; 0 forbids any.
    attribute : str or int, optional
        A column of X by name or number; otherwise what `fit(X, y, sensitive=z)` is given.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[1.0], [0.0], [4.0], [0.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    >>> c = EqualOpportunity(0.1).on(X, y, np.ones(4), sensitive=[0, 1, 0, 1])
    >>> np.round(c(np.array([1.0])), 6).tolist()
    [-0.35, 0.15]
    """

    def rows(self, labels: HostArray, classes: int | None = None) -> HostArray:
        if classes is None:
            return (labels == 1)[None].astype(float)
        return (np.arange(classes)[:, None] == labels).astype(float)


def indicators(z: HostArray) -> HostArray:
    """The attribute as columns: numbers as they are, else one column per value but the first."""
    z = np.asarray(z)
    if z.dtype == object:
        missing = np.array([value is None or value != value for value in z])
        if missing.any():
            raise ValueError(
                f"The protected attribute is missing in {int(missing.sum())} rows, first in row "
                f"{int(missing.argmax())}."
            )
        z = z.astype(str)
    values = np.unique(z)
    if len(values) < 2:
        raise ValueError(
            f"The protected attribute has one value only, {short(values[0])}: there is nothing to "
            "compare."
        )
    numeric = z.dtype.kind in "fiub"
    if numeric and not np.isfinite(z.astype(float)).all():
        raise ValueError("The protected attribute has missing or infinite values.")
    if numeric and len(values) > 2:
        return z.astype(float)[:, None]
    return np.stack([(z == value).astype(float) for value in values[1:]], axis=1)


def selection_rates(
    decisions: ArrayLike, sensitive: ArrayLike, truth: ArrayLike | None = None
) -> dict[AnyKey, float]:
    """How often each value of the attribute is decided for.

    Parameters
    ----------
    decisions : array of bool
        True or 1 for the favourable class.
    sensitive : array
        The attribute.
    truth : array of bool, optional
        Only rows where it is true count: those who deserve it.

    Returns
    -------
    dict
        The rate of every value.

    Examples
    --------
    >>> selection_rates([1, 0, 1, 1], ["f", "f", "m", "m"])
    {'f': 0.5, 'm': 1.0}
    """
    decided, z = np.asarray(decisions, bool), np.asarray(sensitive)
    counted = np.ones(len(z), bool) if truth is None else np.asarray(truth, bool)
    return {
        value: float(decided[(z == value) & counted].mean())
        for value in np.unique(z).tolist()
        if ((z == value) & counted).any()
    }
