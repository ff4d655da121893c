"""The walk along answers without -g: where it ends, and when steps follow it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp.newton import relaxations
from mossp.newton.globalization import Polished
from mossp.newton.relaxations import Walk

LAM, GAMMA = 0.1, 3.0


def data(seed: int = 0, N: int = 400, n: int = 6):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(N, n)) + 0.6 * rng.normal(size=(N, 1))
    return A, A @ np.array([1.0, -0.8, 0.5, 0, 0, 0]) + 0.5 * rng.normal(size=N)


def mcp(a: np.ndarray) -> float:
    a = np.abs(a)
    return float(np.where(a <= GAMMA * LAM, LAM * a - a**2 / (2 * GAMMA), GAMMA * LAM**2 / 2).sum())


def lowest(A: np.ndarray, b: np.ndarray) -> float:
    """Over all pieces of MCP: zero, bent with either sign, or flat, in every entry."""
    H, c, best = A.T @ A / len(b), A.T @ b / len(b), np.inf
    for pieces in itertools.product((0, 1, -1, 2), repeat=A.shape[1]):
        kinds = np.array(pieces)
        S = np.flatnonzero(kinds)
        bent = np.abs(kinds[S]) == 1
        M = H[np.ix_(S, S)] - np.diag(bent / GAMMA)
        if not len(S) or np.linalg.eigvalsh(M)[0] <= 0:
            continue
        x = np.zeros(A.shape[1])
        x[S] = np.linalg.solve(M, c[S] - LAM * np.where(bent, kinds[S], 0))
        best = min(best, float(np.mean((A @ x - b) ** 2)) / 2 + mcp(x))
    return min(best, float(np.mean(b**2)) / 2)


def test_it_ends_at_the_lowest_point_and_takes_no_steps():
    A, b = data()
    r = mossp.solve(mossp.Problem(mossp.losses.squared, (A, b), mossp.MCP(LAM, GAMMA)), np.zeros(6))
    assert r.success and r.steps == 0 and "Polished by" in r.message
    assert r.fun == pytest.approx(lowest(A, b), abs=1e-9)
    assert r.fun == pytest.approx(np.mean((A @ r.x - b) ** 2) / 2 + mcp(r.x), abs=1e-12)


@pytest.mark.parametrize("x0, given", [(0.0, {"replicas": 2}), (0.0, {"steps": 50}), (1.0, {})])
def test_steps_are_taken_where_they_are_asked_for_and_from_another_start(x0, given):
    problem = mossp.Problem(mossp.losses.squared, data(), mossp.MCP(LAM, GAMMA))
    assert mossp.solve(problem, np.full(6, x0), **given).steps > 0


def test_of_many_sparse_columns_one_answer_settles_it():
    """Steps with noise would pass over a long x thousands of times, and end no lower."""
    rng, N, n = np.random.default_rng(1), 6000, 4200
    columns = (10 * (n / 10 + 1) ** rng.random(12 * N) - 10).astype(int)  # as words in texts
    places = rng.integers(N, size=12 * N), columns
    A = scipy.sparse.csr_matrix((rng.normal(size=12 * N), places), (N, n))
    b = np.where(A @ np.repeat([2.0, 0.0], [5, n - 5]) + rng.normal(size=N) > 0, 1.0, -1.0)
    lam = float(np.abs(A.T @ b).max()) / (2 * N) / 3
    problem = mossp.Problem(mossp.losses.logistic, (A, b), mossp.MCP(lam, GAMMA))
    r = mossp.solve(problem, np.zeros(n))
    assert r.success and r.steps == 0 and r.expectation is None
    assert mossp.stationarity(problem, r.x) <= 1e-10
    assert not r.x[100:].any() and r.x[:5].all()


class Landscape:
    """Ends with a given F for every part of h; no problem behind them."""

    def __init__(self, values: dict[float, float], endless_below: float = -np.inf) -> None:
        self.values, self.tried, self.endless_below = values, [], endless_below
        self.part = None

    def relaxed(self, part) -> float:
        return float(part)

    def newton(self, oracles, x, tol=None) -> Polished:
        if oracles is not self:
            self.part = oracles
            self.tried.append(oracles)
            return self.polished(np.nan)
        return self.polished(self.values[self.part])

    def polished(self, value: float) -> Polished:
        class At:
            x = np.zeros(2)

        return Polished(At(), 0.0, True, 1, 0, 0, value)

    def walk(self, monkeypatch) -> tuple[bool, float]:
        class OnHost:
            on_host = True

        monkeypatch.setattr(relaxations, "KKT", lambda oracles, dtype: OnHost())
        walk = Walk(self, 1e-10, self.newton, lambda found: found.value < self.endless_below)
        settled = walk.run(np.zeros(2))
        return settled, walk.best.value


def test_it_goes_on_as_long_as_F_falls(monkeypatch):
    one = Landscape({1.0: 5.0, 0.25: 4.0, 0.1: 4.5})
    assert one.walk(monkeypatch) == (True, 4.0) and one.tried == [1.0, 0.25, 0.1]
    far = Landscape({1.0: 5.0, 0.25: 4.0, 0.1: 3.0, 0.04: 2.0, 0.016: 2.5})
    assert far.walk(monkeypatch) == (True, 2.0) and far.tried == [1.0, 0.25, 0.1, 0.04, 0.016]
    down = Landscape({p: p for p in (1.0, *relaxations.WEAKER)})
    assert down.walk(monkeypatch) == (False, relaxations.WEAKER[-1])


def test_a_first_step_up_is_checked_half_way(monkeypatch):
    rule = Landscape({1.0: 3.0, 0.25: 4.0, 0.5: 3.0})
    assert rule.walk(monkeypatch) == (True, 3.0) and rule.tried == [1.0, 0.25, 0.5]
    exception = Landscape({1.0: 3.0, 0.25: 4.0, 0.5: 2.0})
    assert exception.walk(monkeypatch) == (False, 2.0)
    same = Landscape({1.0: 3.0, 0.25: 3.0})
    assert same.walk(monkeypatch) == (True, 3.0) and same.tried == [1.0, 0.25]


def test_it_ends_on_the_way_to_infinity(monkeypatch):
    far = Landscape({1.0: 3.0, 0.25: 0.5, 0.1: 0.1}, endless_below=1.0)
    assert far.walk(monkeypatch) == (True, 0.5) and far.tried == [1.0, 0.25]
