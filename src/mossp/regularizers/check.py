"""Looks for mistakes in a regulariser, by the inequalities that its five methods must satisfy."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import numpy as np

from mossp._base.types import AnyNumber, AnyVector, HostVector
from mossp.regularizers.base import Regularizer


def check_regularizer(
    reg: Regularizer, n: int = 6, seed: int = 0, trials: int = 40, tol: float = 1e-8
) -> None:
    """Raise a ValueError that names the first mistake found in `reg` on vectors of length n.

    Parameters
    ----------
    reg : Regularizer
        What is tested.
    n : int
        Entries of the vectors.
    seed, trials : int
        Random points, and how many.
    tol : float
        Relative error that counts as rounding.

    Notes
    -----
    Tested at random points, with ties and zeros among them, in double precision:

    * `p = prox_{mu phi}(v)` satisfies
      `phi(x) + |x-v|^2/2mu >= phi(p) + |p-v|^2/2mu + |x-p|^2/2mu` for every x, near and far, for
      `phi = h` and `phi = g`; exactly the proximal point does;
    * h and g are convex at midpoints;
    * `s = subgradient_g(x)` satisfies `g(y) >= g(x) + <s, y - x>`;
    * values are single numbers, vectors have n entries, nothing is NaN.

    Examples
    --------
    >>> from mossp.regularizers import MCP
    >>> check_regularizer(MCP(0.5))
    """
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        for trial in range(trials):
            v, other = _point(rng, n, trial), _point(rng, n, trial + 1)
            mu = float(10 ** rng.uniform(-2, 1))
            p, q = _check_prox("h", reg.h, reg.prox_h, v, mu, other, rng, tol)
            _check_midpoints("h", reg.h, (p, q, v, other), tol)
            p, q = _check_prox("g", reg.g, reg.prox_g, v, mu, other, rng, tol)
            _check_midpoints("g", reg.g, (p, q, v, other), tol)
            _check_subgradient(reg, v, other, rng, tol)
            _check_subgradient(reg, p, other, rng, tol)


def _point(rng: np.random.Generator, n: int, trial: int) -> HostVector:
    """A random vector: every second one with ties, every third with zeros, sometimes 0 itself."""
    x = rng.normal(size=n) * 10 ** rng.uniform(-1, 0.7)
    if trial % 2:
        x = rng.choice([-1.0, 1.0], size=n) * rng.choice(np.abs(x[: max(1, n // 3)]), size=n)
    if trial % 3 == 0:
        x[rng.random(n) < 0.5] = 0.0
    return x if trial % 11 else 0 * x


def _nearby(rng: np.random.Generator, p: HostVector) -> list[HostVector]:
    """Points near p and far from it; a random part of the entries is moved."""
    return [
        p + size * rng.normal(size=p.shape) * (rng.random(p.shape) < 0.6)
        for size in (1e-4, 1e-2, 0.3, 3.0)
        for _ in range(4)
    ]


def _value(name: str, phi: Callable[[HostVector], AnyNumber], x: HostVector) -> float:
    value = np.asarray(phi(x))
    if value.ndim:
        raise ValueError(
            f"{name}(x) must be a single number, but at x = {_show(x)} it has shape {value.shape}."
        )
    if np.isnan(value) or value == -np.inf or (name == "g" and not np.isfinite(value)):
        raise ValueError(f"{name}(x) must be a number, but at x = {_show(x)} it is {value}.")
    return float(value)


def _vector(name: str, value: AnyVector, x: HostVector, where: str) -> HostVector:
    value = np.asarray(value, dtype=float)
    if value.shape != x.shape:
        raise ValueError(
            f"{name} must return a vector of shape {x.shape}, but at {where} it returned one of "
            f"shape {value.shape}."
        )
    if not np.all(np.isfinite(value)):
        raise ValueError(
            f"{name} must return finite numbers, but at {where} it returned {_show(value)}."
        )
    return value


def _check_prox(
    name: str,
    phi: Callable[[HostVector], AnyNumber],
    prox: Callable[[HostVector, float], AnyVector],
    v: HostVector,
    mu: float,
    other: HostVector,
    rng: np.random.Generator,
    tol: float,
) -> tuple[HostVector, HostVector]:
    where = f"v = {_show(v)}, mu = {mu:.6g}"
    p = _vector(f"prox_{name}", prox(v, mu), v, where)
    q = _vector(f"prox_{name}", prox(other, mu), v, f"v = {_show(other)}, mu = {mu:.6g}")
    at_p = _value(name, phi, p)
    if at_p == np.inf:
        raise ValueError(
            f"prox_{name} is wrong: at {where} it returned {_show(p)}, where {name} is infinite."
        )
    lowest = at_p + (p - v) @ (p - v) / (2 * mu)
    for x in [*_nearby(rng, p), *_nearby(rng, q), q, v, 0 * v, 0.5 * p, 0.5 * (p + q)]:
        value = _value(name, phi, x)
        terms = np.array([value, (x - v) @ (x - v), lowest, (x - p) @ (x - p)])
        terms[[1, 3]] /= 2 * mu
        gap = terms[0] + terms[1] - terms[2] - terms[3]
        # Far points have large squares that cancel: their rounding is not a mistake.
        if gap < -tol * (1 + abs(lowest)) - 1e-14 * np.sum(np.abs(terms)):
            raise ValueError(
                f"prox_{name} is wrong: at {where} it returned p = {_show(p)}, but "
                f"{name}(x) + |x-v|^2/2mu >= {name}(p) + |p-v|^2/2mu + |x-p|^2/2mu fails at "
                f"x = {_show(x)} by {-gap:.3g}. (If the map is right, then {name} is not convex "
                "or its value is wrong.)"
            )
    return p, q


def _check_midpoints(
    name: str, phi: Callable[[HostVector], AnyNumber], points: tuple[HostVector, ...], tol: float
) -> None:
    values = [_value(name, phi, x) for x in points]
    for (x, at_x), (y, at_y) in itertools.combinations(zip(points, values, strict=True), 2):
        middle, ends = _value(name, phi, (x + y) / 2), at_x + at_y
        if middle > ends / 2 + tol * (1 + abs(ends)):
            raise ValueError(
                f"{name} is not convex: half way between x = {_show(x)} and y = {_show(y)} it is "
                f"above the mean of its values there by {middle - ends / 2:.3g}."
            )


def _check_subgradient(
    reg: Regularizer, x: HostVector, other: HostVector, rng: np.random.Generator, tol: float
) -> None:
    s = _vector("subgradient_g", reg.subgradient_g(x), x, f"x = {_show(x)}")
    at_x = _value("g", reg.g, x)
    for y in [*_nearby(rng, x), other, 0 * x, -x, 2 * x]:
        at_y = _value("g", reg.g, y)
        gap = at_y - at_x - s @ (y - x)
        if gap < -tol * (1 + abs(at_x) + abs(at_y)):
            raise ValueError(
                f"subgradient_g is wrong: at x = {_show(x)} it returned s = {_show(s)}, but "
                f"g(y) >= g(x) + <s, y - x> fails at y = {_show(y)} by {-gap:.3g}."
            )


def _show(x: HostVector) -> str:
    return np.array2string(np.asarray(x), precision=6, separator=", ", threshold=20)
