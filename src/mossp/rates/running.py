"""Rates of a model that is fed: running estimates, and constraints on the rows that come.

A batch of a stream knows neither the shares of groups nor the rates. Both are estimated from all
rows so far, each seen by the model as it was before it learnt from them. Row i of N has the weight
i^3 / N^3: the later the model, the more it counts. With a_k and b_k such means of w_i s_ik d_ik and
w_i 1[i in group k], d_ik the decision on row i and s_ik its sign,

    rate_k = a_k / b_k,    W_ik = w_i s_ik 1[i in group k] / b_k

W is what a step's constraint takes the mean with. Its decisions are smooth, and the bounds are
moved by the difference of smooth and true means as last seen, so that true rates are steered by.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from mossp._base.module import Module
from mossp._base.types import Batch, ConstraintValues, HostArray, PyTree
from mossp.rates.algebra import Rate
from mossp.rates.binding import Unshared
from mossp.rates.bounded import LOSS, ONE, Bounded
from mossp.rates.proxies import Proxies

GROWTH = 3  # the exponent of a row's weight
STEP = 1e-6  # of differences


class StreamedProxies(Module):
    """`Proxies` whose temperature and shifts come with the rows, since they move from call to call.

    Batches are (A, b, w, M, W), or (A, b, w, offset, M, W): each row of M is the temperature, and
    one shift for each row of the bounds.
    """

    proxies: Proxies

    def __call__(self, x: PyTree, batch: Batch) -> ConstraintValues:
        A, b, _, *offset, M, W = batch
        scores = sum(offset, A @ x["coef"] + x.get("intercept", 0.0))
        here = dataclasses.replace(self.proxies, temperature=M[:, :1])
        means = jnp.mean(W * here.seen(scores, b), axis=0)
        matrix = jnp.asarray(self.proxies.matrix, means.dtype)
        constant = jnp.asarray(self.proxies.constant, means.dtype)
        return matrix @ means + constant - jnp.mean(M[:, 1:], axis=0)


@dataclasses.dataclass(frozen=True, eq=False)
class Running:
    """What the rows so far say of the rates.

    Attributes
    ----------
    bounded : Bounded
        The bounds, without rows.
    attributes : frozenset of str
        Columns that the groups are made of: every call must have them.
    shares : array of shape (columns,)
        b, the sum over rows of what each counts in a group.
    true, smooth, judged : arrays of shape (columns,)
        The sums behind a, with decisions and with smooth ones, and those behind b for the rows that
        a model has decided on: all but the first.
    products : array of shape (2 columns, 2 columns)
        Of what `true` and `judged` are sums of, the sums of products.
    grouped, count : float, int
        The weights of the rows behind `shares`, and their number.
    """

    bounded: Bounded
    attributes: frozenset[str]
    shares: HostArray
    true: HostArray
    smooth: HostArray
    judged: HostArray
    products: HostArray
    grouped: float = 0.0
    count: int = 0

    @classmethod
    def of(cls, first: Unshared) -> Running:
        """Before any row, for bounds whose columns are those of these rows."""
        bounded, zero = first.bounded, np.zeros(len(first.bounded.kinds))
        kept = dataclasses.replace(
            bounded, weights=np.zeros((0, len(zero))), labels=None, counted=np.zeros(0)
        )
        products = np.zeros((2 * len(zero), 2 * len(zero)))
        return cls(kept, frozenset(first.attributes), zero, zero, zero, zero, products)

    def grown(self, rows: Unshared) -> Running:
        """With the groups of more rows."""
        N, r = self.count, len(rows.members)
        old, new = weights_of(N, r)
        return dataclasses.replace(
            self, count=N + r, shares=old * self.shares + new @ rows.members,
            grouped=old * self.grouped + float(new.sum()), true=old * self.true,
            smooth=old * self.smooth, judged=old * self.judged, products=old**2 * self.products,
        )  # fmt: skip

    def seen(self, rows: Unshared, true: HostArray, smooth: HostArray) -> Running:
        """With what the model decides on the rows that `grown` was just given.

        Parameters
        ----------
        rows : Unshared
            Of which the decisions are.
        true, smooth : arrays of shape (rows, columns)
            Decisions, and smooth ones.
        """
        r = len(rows.members)
        new = weights_of(self.count - r, r)[1]
        decided, smoothed = rows.counted * true, rows.counted * smooth
        both = np.concatenate([decided, rows.members], axis=1)
        # Errors are of weighted means: squares of the weights.
        products = self.products + (both * new[:, None] ** 2).T @ both
        return dataclasses.replace(
            self, true=self.true + new @ decided, smooth=self.smooth + new @ smoothed,
            judged=self.judged + new @ rows.members, products=products,
        )  # fmt: skip

    # What they say ------------------------------------------------------------------------------

    def weights(self, rows: Unshared) -> HostArray:
        """W of some rows."""
        share = self.shares / self.grouped
        return rows.counted / np.where(share > 0, share, 1.0)

    @property
    def shift(self) -> HostArray:
        """By which smooth bounds are moved; 0 before any row was judged."""
        gap = self.smooth - self.true
        means = np.divide(gap, self.judged, out=np.zeros_like(gap), where=self.judged > 0)
        return np.asarray(self.bounded.matrix @ means)

    def values(self) -> dict[str, tuple[float, float]]:
        """The rate and its standard error by text; NaN where no row counts.

        A rate does not change with the size of the sums, so that its slope is orthogonal to them,
        and what is left of a row's own part is its distance from the rate. The error is at least
        what one row of the group changes: decisions that were all alike so far need not stay so.
        """
        K, at = len(self.true), np.concatenate([self.true, self.judged])
        with np.errstate(divide="ignore", invalid="ignore"):
            one_row = np.diag(self.products)[K:] / self.judged**2
        decided = np.array([kind not in (LOSS, ONE) for kind in self.bounded.kinds])
        found = {}
        for number, bound in enumerate(self.bounded.bounds):
            here, slope = self._value(bound.rate, at), self._slope(bound.rate, at)
            if not np.isfinite(here):
                found[bound.text] = (np.nan, np.nan)
                continue
            of = [j for j, row in enumerate(self.bounded.rows) if row.bound == number]
            used = (self.bounded.matrix[of] != 0).any(axis=0) & decided
            error = float(np.sqrt(max(slope @ self.products @ slope, 0.0)))
            found[bound.text] = here, max(error, float(one_row[used].max(initial=0.0)))
        return found

    def _value(self, rate: Rate, at: HostArray) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            means = at[: len(self.true)] / at[len(self.true) :]
        return self.bounded.value(rate, means)

    def _slope(self, rate: Rate, at: HostArray) -> HostArray:
        """By central differences; 0 in what the rate does not depend on."""
        sizes = STEP * np.maximum(np.abs(at), STEP * np.abs(at).max(initial=0.0))
        found = np.zeros(len(at))
        for k in np.flatnonzero(sizes > 0):
            e = np.zeros(len(at))
            e[k] = sizes[k]
            found[k] = (self._value(rate, at + e) - self._value(rate, at - e)) / (2 * sizes[k])
        return np.where(np.isfinite(found), found, 0.0)


def weights_of(N: int, r: int) -> tuple[float, HostArray]:
    """(what the weights of N rows are multiplied by when r more come, the weights of these)."""
    total = float(N + r)
    return (N / total) ** GROWTH, (np.arange(N + 1, N + r + 1) / total) ** GROWTH
