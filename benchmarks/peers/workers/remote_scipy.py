"""SLSQP or trust-constr on a problem behind a pipe; x = p - q where there is a penalty."""

from __future__ import annotations

import functools
import sys
import warnings

import numpy as np
import scipy.optimize

from benchmarks.peers.workers.remote import Oracle, serve


def solve(method: str, oracle: Oracle) -> None:
    n, s, m_E = len(oracle.x0), oracle.slope, oracle.m_E
    split = bool(s.any())
    last = oracle.x0

    def x(v):
        return v[:n] - v[n:] if split else v

    def both(slope):
        return np.concatenate([slope, -slope], axis=-1) if split else slope

    def f(v):
        at = oracle(x(v))
        if not split:
            return float(at["f"] + at["penalty"]), at["gradient"] + at["subgradient"]
        point = x(v)
        # h - g with h = s'(p + q) smooth; the slope of g is s sign(x) - that of the penalty, 0 at 0
        g = s @ np.abs(point) - at["penalty"]
        slope = np.where(point == 0, 0.0, s * np.sign(point) - at["subgradient"])
        return float(at["f"] + s @ (v[:n] + v[n:]) - g), both(at["gradient"] - slope) + np.r_[s, s]

    def keep(v, *_):
        nonlocal last
        last = x(np.array(v, float))

    v0 = np.r_[np.maximum(oracle.x0, 0), np.maximum(-oracle.x0, 0)] if split else oracle.x0
    bounds = scipy.optimize.Bounds(np.zeros(2 * n), np.inf) if split else None
    m = len(oracle(oracle.x0)["c"])
    rows = slice(0, m_E), slice(m_E, m)
    if method == "SLSQP":
        given = [
            {"type": kind, "fun": lambda v, r=r, t=t: t * oracle(x(v))["c"][r],
             "jac": lambda v, r=r, t=t: t * both(oracle(x(v))["J"][r])}
            for kind, r, t in (("eq", rows[0], 1.0), ("ineq", rows[1], -1.0)) if r.start < r.stop
        ]  # fmt: skip
        options = {"maxiter": 10_000, "ftol": 1e-13}
    else:
        low = np.where(np.arange(m) < m_E, 0.0, -np.inf)
        given = scipy.optimize.NonlinearConstraint(
            lambda v: oracle(x(v))["c"], low, np.zeros(m), lambda v: both(oracle(x(v))["J"]),
            scipy.optimize.BFGS(),
        )  # fmt: skip
        options = {"maxiter": 10_000, "gtol": 1e-9, "xtol": 1e-12}
    try:
        found = scipy.optimize.minimize(
            f, v0, jac=True, method=method, bounds=bounds, constraints=given, options=options,
            callback=keep,
        )  # fmt: skip
    except (ValueError, np.linalg.LinAlgError):  # NaN inside of trust-constr
        Oracle.end(last, False)
        return
    Oracle.end(x(found.x), bool(found.success))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    serve(functools.partial(solve, sys.argv[1]))
