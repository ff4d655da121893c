"""Neyman-Pearson classification: the loss of one class, false alarms of the other bounded.

    MOSSP_DATA=folder python benchmarks/neyman_pearson.py [a9a] [phishing] [--limit 60]

    min  mean over class 1 of log(1 + exp(-x'a)) + lam (||x||_1 - ||x||_2)
    s.t. mean over class 0 of sigmoid(x'a / 0.5) <= b,      b = 0.02, 0.04, ..., 0.2

on unit rows with a column of ones. `solve` has its defaults, from x = 0. At lam = 1e-3 the worst
of criticality, feasibility and complementarity is printed; at lam = 0 the problem is smooth, and
SciPy's SLSQP and trust-constr solve it too, from the same start, with compiled float64 values and
gradients from JAX in the same process, all with one thread for BLAS. Seconds are of second calls,
the median of three in which the solvers take turns (one where a call takes longer than LONG;
trust-constr no more than 500 iterations). The ratio is to the better of SciPy's two: the one with
the lower F among the feasible, the faster where they agree. At some b, lam = 0 has no minimiser;
the status says so. Where the infimum is 0, no F is relatively close to another: whether ours is no
higher is counted by the relative measure alone, and with a difference of 1e-10, the tolerance of
our certificates, allowed besides.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from threadpoolctl import threadpool_limits
from workload import dataset

import mossp

LAM = 1e-3
SOFTNESS = 0.5
BOUNDS = [round(0.02 * k, 2) for k in range(1, 11)]
LONG = 20.0  # seconds; what takes longer is timed once
FEASIBLE = 1e-8  # SciPy's own tolerance for constraints is of this order
AGREE = 1e-8  # relative; a lower F than this is a better one
NOTHING = 1e-10  # a difference in F by less is within the tolerances of all solvers
MOST_ITERATIONS = 500  # of trust-constr, a minute or so


class Classes(NamedTuple):
    one: np.ndarray
    zero: np.ndarray


class Point(NamedTuple):
    F: float
    violation: float
    seconds: float


def classes(name: str) -> Classes | None:
    found = dataset(name)
    if found is None:
        return None
    X, y = found
    X = np.c_[X, np.ones(len(y))]
    return Classes(X[y > 0], X[y < 0])


def false_alarms(x, A):
    return jnp.mean(jax.nn.sigmoid(A @ x / SOFTNESS))


def miss_loss(x, A):
    return jnp.mean(jax.nn.softplus(-(A @ x)))


def stated(rows: Classes, b: float, regularizer: Any) -> mossp.Problem:
    return mossp.Problem(
        mossp.losses.logistic, (rows.one, np.ones(len(rows.one))), regularizer,
        inequality=mossp.Expected(lambda x, A: false_alarms(x, A) - b, data=rows.zero),
    )  # fmt: skip


class Smooth:
    """The problem at lam = 0 as SciPy sees it: value and gradient in one compiled call each."""

    def __init__(self, rows: Classes, b: float) -> None:
        self.b, self.last = b, (np.empty(0), (0.0, np.empty(0)))
        with jax.enable_x64(True):
            one, zero = jnp.asarray(rows.one), jnp.asarray(rows.zero)
            self._f = jax.jit(jax.value_and_grad(lambda x: miss_loss(x, one)))
            self._c = jax.jit(jax.value_and_grad(lambda x: false_alarms(x, zero)))

    def f(self, x):
        with jax.enable_x64(True):
            value, gradient = self._f(x)
        return float(value), np.asarray(gradient)

    def both_of_c(self, x):
        """SciPy asks for the value and the gradient one after the other, at the same x."""
        if not np.array_equal(self.last[0], x):
            with jax.enable_x64(True):
                value, gradient = self._c(x)
            self.last = (x.copy(), (float(value) - self.b, np.asarray(gradient)))
        return self.last[1]

    def c(self, x):
        return self.both_of_c(x)[0]

    def c_gradient(self, x):
        return self.both_of_c(x)[1]


def slsqp(smooth: Smooth, x0: np.ndarray) -> np.ndarray:
    below = {"type": "ineq", "fun": lambda x: -smooth.c(x), "jac": lambda x: -smooth.c_gradient(x)}
    options = {"maxiter": 1000, "ftol": 1e-11}
    return scipy.optimize.minimize(
        smooth.f, x0, jac=True, method="SLSQP", constraints=below, options=options
    ).x


def trust_constr(smooth: Smooth, x0: np.ndarray) -> np.ndarray:
    below = scipy.optimize.NonlinearConstraint(
        smooth.c, -np.inf, 0.0, jac=smooth.c_gradient, hess=scipy.optimize.BFGS()
    )
    options = {"maxiter": MOST_ITERATIONS, "gtol": 1e-8, "xtol": 1e-12}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BFGS updates that are skipped
        return scipy.optimize.minimize(
            smooth.f, x0, jac=True, method="trust-constr", constraints=[below], options=options
        ).x


PEERS = {"SLSQP": slsqp, "trust-constr": trust_constr}


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return function(), time.perf_counter() - began


def second_calls(functions: dict[str, Callable[[], Any]]) -> dict[str, tuple[Any, float]]:
    """Each once to compile, then in turns: (answer, median seconds)."""
    answers = {name: function() for name, function in functions.items()}
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(3):
        for name, function in functions.items():
            if not seconds[name] or seconds[name][0] < LONG:
                answers[name], took = timed(function)
                seconds[name].append(took)
    return {name: (answers[name], float(np.median(seconds[name]))) for name in functions}


def compare(
    name: str, rows: Classes, b: float, limit: float | None, peers: list[str]
) -> tuple[float, bool, bool, float, float]:
    """Prints a row; (worst residual, whether F is no higher in both senses, the two ratios)."""
    x0, smooth = np.zeros(rows.one.shape[1]), Smooth(rows, b)
    sparse, plain = stated(rows, b, mossp.L1MinusL2(LAM)), stated(rows, b, None)
    with threadpool_limits(1, "blas"):  # matrices are small: more threads only wait
        runs = second_calls({
            "sparse": lambda: mossp.solve(sparse, x0, seconds=limit),
            "plain": lambda: mossp.solve(plain, x0, seconds=limit),
            **{peer: lambda peer=peer: PEERS[peer](smooth, x0) for peer in peers},
        })  # fmt: skip
    r, s = runs["sparse"][0], runs["plain"][0]
    theirs = {
        label: Point(smooth.f(x)[0], max(smooth.c(x), 0.0), seconds)
        for label, (x, seconds) in runs.items()
        if label in peers
    }
    best = better(list(theirs.values()))
    ours = Point(smooth.f(s.x)[0], max(smooth.c(s.x), 0.0), runs["plain"][1])
    excess = ours.F - best.F
    feasible = ours.violation <= FEASIBLE
    no_higher = feasible and excess <= AGREE * abs(best.F)
    nearly = feasible and excess <= max(AGREE * abs(best.F), NOTHING)
    c = r.certificate
    worst = max(c.criticality, c.feasibility, c.complementarity)
    ratios = runs["sparse"][1] / best.seconds, ours.seconds / best.seconds
    print(
        f"{name:<9} {b:4.2f} {r.status.name:<9} {worst:7.1e} {r.fun:12.9f} "
        f"{np.count_nonzero(r.x):4d} | {s.status.name:<9} {shown(ours)} | "
        f"{' | '.join(map(shown, theirs.values()))} | {runs['sparse'][1]:7.2f} "
        f"{ratios[0]:6.2f} {ratios[1]:6.2f}{'' if no_higher else f'  HIGHER by {excess:.1e}'}",
        flush=True,
    )
    return worst, no_higher, nearly, *ratios


def better(points: list[Point]) -> Point:
    """The lower F among the feasible; where they agree, the faster."""
    feasible = [p for p in points if p.violation <= FEASIBLE] or points
    least = min(p.F for p in feasible)
    equal = [p for p in feasible if p.F - least <= AGREE * abs(least)]
    return min(equal, key=lambda p: p.seconds)


def shown(point: Point) -> str:
    return f"{point.F:12.9f} {point.violation:6.0e} {point.seconds:7.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["a9a", "phishing"])
    parser.add_argument("--bounds", nargs="+", type=float, default=BOUNDS)
    parser.add_argument("--limit", type=float, help="seconds of one of our runs; none by default")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    asked = parser.parse_args()
    found = {name: classes(name) for name in asked.names}
    missing = [name for name, rows in found.items() if rows is None]
    if missing:
        sys.exit(f"Set MOSSP_DATA to a folder that has {' and '.join(missing)} (LIBSVM format).")
    theirs = "".join(f" | {peer:<27}" for peer in asked.peers)
    print(f"{'':37}lam = {LAM:g} | {'lam = 0: ours':<38}{theirs} |  lam > 0")
    each = f"{'F':>12} {'viol.':>6} {'s':>7}"
    print(
        f"{'data':<9} {'b':>4} {'status':<9} {'worst':>7} {'F':>12} {'nnz':>4} | "
        f"{'status':<9} {each}{f' | {each}' * len(asked.peers)} | {'s':>7} {'ratio':>6} "
        f"{'lam=0':>6}"
    )
    rows = [
        compare(name, found[name], b, asked.limit, asked.peers)
        for name in asked.names
        for b in asked.bounds
    ]
    worst, holds, nearly, ratio, plain = zip(*rows, strict=True)
    print(
        f"worst residual {max(worst):.1e} (bound 1e-10); F no higher in {sum(holds)} of "
        f"{len(holds)} ({sum(nearly)} with {NOTHING:g} allowed); largest ratio {max(ratio):.2f} "
        f"at lam = {LAM:g}, {max(plain):.2f} at lam = 0, medians {np.median(ratio):.2f} and "
        f"{np.median(plain):.2f} (bound 0.2)"
    )


if __name__ == "__main__":
    main()
