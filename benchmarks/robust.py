"""Small smooth problems of all sorts, against SciPy: who solves them, and who says so wrongly.

    python benchmarks/robust.py                 all 300
    python benchmarks/robust.py 3 product ratio   three a family, of these families

Twenty families of 15 problems with up to 10 variables: polynomials, exponentials, logarithms,
products and ratios, with equalities and inequalities. Losses are multiplied by 1e-4 to 1e4,
constraints by 1e-2 to 1e2. `mossp.solve` with its defaults, SLSQP and trust-constr with exact
derivatives start from the
same point. An answer counts as solved where NumPy finds a KKT point there, in the units of the
problem before it was scaled; a false success is one that says so and is none.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jax.tree_util import Partial

import mossp

EACH = 15
CRITICAL, FEASIBLE = 1e-5, 1e-6  # relative, for "solved"


class Case(NamedTuple):
    """One problem: functions of (coefficients, x), and the coefficients."""

    family: str
    number: int
    loss: Any
    equality: Any
    inequality: Any
    x0: np.ndarray
    loss_scale: float
    scale: float  # of the constraints


FAMILIES: dict[str, Callable[..., Any]] = {}


def family(function: Callable[..., Any]) -> Callable[..., Any]:
    """rng -> (loss, coefficients, equality, coefficients, inequality, coefficients, x0)."""
    FAMILIES[function.__name__] = function
    return function


def scaled(by: Any, function: Any, coefficients: Any, x: Any) -> Any:
    return by * function(coefficients, x)


def cases(each: int = EACH, names: Any = None) -> list[Case]:
    found = []
    for name, make in FAMILIES.items():
        if names and name not in names:
            continue
        for number in range(each):
            rng = np.random.default_rng([12, sorted(FAMILIES).index(name), number])
            loss, equality, inequality, x0 = make(rng)
            s, t = 10 ** rng.uniform(-4, 4), 10 ** rng.uniform(-2, 2)

            def of(given: Any, by: float) -> Any:
                return given and Partial(scaled, by, Partial(given[0]), given[1])

            found.append(
                Case(name, number, of(loss, s), of(equality, t), of(inequality, t), x0, s, t)
            )
    return found


# The families ------------------------------------------------------------------------------------


def definite(rng: Any, n: int, low: float = 0.5, high: float = 5.0) -> np.ndarray:
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return (Q * rng.uniform(low, high, n)) @ Q.T


def quadratic(p: Any, x: Any) -> Any:
    A, b = p
    return 0.5 * x @ A @ x - b @ x


def quartic(p: Any, x: Any) -> Any:
    A, b, w = p
    return 0.5 * x @ A @ x - b @ x + jnp.sum(w * x**4)


def linear(p: Any, x: Any) -> Any:
    return p @ x


def product(_: Any, x: Any) -> Any:
    return -jnp.prod(x)


def ellipsoid_value(p: Any, x: Any) -> Any:
    D, r = p
    return D @ x**2 - r


def affine(p: Any, x: Any) -> Any:
    A, b = p
    return A @ x - b


def exponentials(p: Any, x: Any) -> Any:
    A, b = p
    return jnp.sum(jnp.exp(A @ x - b))


def barrier(p: Any, x: Any) -> Any:
    c, w = p
    return c @ x - jnp.sum(w * jnp.log(x))


def rosenbrock_value(p: Any, x: Any) -> Any:
    a, b = p
    return jnp.sum(b * (x[1:] - x[:-1] ** 2) ** 2) + jnp.sum((a - x[:-1]) ** 2)


def monomials(p: Any, x: Any) -> Any:
    """Posynomials, one a row of exponents: sum_k w_k prod_i x_i^E_ki."""
    E, w = p
    return jnp.sum(w * jnp.prod(x**E, axis=1))


@family
def product_ellipsoid(rng: Any) -> Any:
    n = 3
    D, r = rng.uniform(1, 5, n), 10 ** rng.uniform(1, 3)
    return (product, np.zeros(0)), None, (ellipsoid_value, (D, r)), np.ones(n)


@family
def product_five(rng: Any) -> Any:
    n = 5
    D, r = rng.uniform(1, 5, n), rng.uniform(5, 50)
    return (product, np.zeros(0)), None, (ellipsoid_value, (D, r)), rng.uniform(0.2, 1, n)


@family
def product_sphere(rng: Any) -> Any:
    n = 4
    D, r = rng.uniform(1, 3, n), rng.uniform(2, 40)
    return (product, np.zeros(0)), (ellipsoid_value, (D, r)), None, rng.uniform(0.5, 1.5, n)


@family
def convex_quadratic(rng: Any) -> Any:
    n, m = 8, 5
    A, b = definite(rng, n), 3 * rng.standard_normal(n)
    B = rng.standard_normal((m, n))
    return (quadratic, (A, b)), None, (affine, (B, rng.uniform(0, 1, m))), rng.standard_normal(n)


@family
def indefinite_in_ball(rng: Any) -> Any:
    n = 6
    A, b = definite(rng, n, -3, 3), rng.standard_normal(n)
    inside = (ellipsoid_value, (np.ones(n), rng.uniform(1, 10)))
    return (quadratic, (A, b)), None, inside, rng.standard_normal(n)


@family
def quartic_on_plane(rng: Any) -> Any:
    n, m = 7, 2
    A, b, w = definite(rng, n, -2, 2), rng.standard_normal(n), rng.uniform(0.1, 1, n)
    B = rng.standard_normal((m, n))
    plane = (affine, (B, rng.standard_normal(m)))
    return (quartic, (A, b, w)), plane, None, rng.standard_normal(n)


@family
def banana_in_ball(rng: Any) -> Any:
    n = 4
    inside = (ellipsoid_value, (np.ones(n), rng.uniform(1, 8)))
    a, b = rng.uniform(0.5, 1.5, n - 1), rng.uniform(10, 100, n - 1)
    return (rosenbrock_value, (a, b)), None, inside, rng.uniform(-1, 1, n)


def exponential_constraint(p: Any, x: Any) -> Any:
    A, b, r = p
    return exponentials((A, b), x) - r


@family
def linear_under_exponentials(rng: Any) -> Any:
    n, k = 4, 8
    A = np.concatenate([np.eye(n), -np.eye(n)]) * rng.uniform(0.5, 2, (k, 1))
    inside = (exponential_constraint, (A, np.zeros(k), k * rng.uniform(2, 20)))
    return (linear, rng.standard_normal(n)), None, inside, rng.standard_normal(n) * 0.3


@family
def exponential_loss(rng: Any) -> Any:
    n, k = 5, 12
    A = 2 * rng.standard_normal((k, n))
    inside = (ellipsoid_value, (np.ones(n), rng.uniform(0.5, 9)))
    return (exponentials, (A, rng.standard_normal(k))), None, inside, rng.standard_normal(n)


def entropy(p: Any, x: Any) -> Any:
    return jnp.sum(x * jnp.log(x / p))


@family
def entropy_on_simplex(rng: Any) -> Any:
    n = 8
    plane = (affine, (np.stack([np.ones(n), rng.uniform(0, 2, n)]), np.array([1.0, 0.8])))
    return (entropy, rng.uniform(0.1, 2, n)), plane, None, np.full(n, 1 / n)


@family
def logarithms(rng: Any) -> Any:
    n = 6
    p = rng.standard_normal(n), rng.uniform(0.2, 2, n)
    plane = (affine, (rng.uniform(0.5, 1.5, (1, n)), np.array([float(n)])))
    return (barrier, p), plane, None, rng.uniform(0.3, 3, n)


def log_constraint(p: Any, x: Any) -> Any:
    w, r = p
    return r - w @ jnp.log(x)


@family
def linear_over_logarithms(rng: Any) -> Any:
    n = 5
    above = (log_constraint, (rng.uniform(0.2, 1, n), rng.uniform(-1, 2)))
    return (linear, rng.uniform(0.2, 3, n)), None, above, rng.uniform(0.5, 2, n)


def ratio_value(p: Any, x: Any) -> Any:
    a, b, c, d = p
    return (a @ x + b) / (c @ x**2 + d)


@family
def ratio(rng: Any) -> Any:
    n = 5
    p = rng.standard_normal(n), rng.standard_normal(), rng.uniform(0.5, 2, n), rng.uniform(0.5, 2)
    inside = (ellipsoid_value, (np.ones(n), rng.uniform(1, 10)))
    return (ratio_value, p), None, inside, rng.standard_normal(n)


def two_ratios(p: Any, x: Any) -> Any:
    a, b, r = p
    return jnp.stack([jnp.sum(a / x) - r[0], jnp.sum(b * x) / x[0] - r[1]])


@family
def ratios_in_constraints(rng: Any) -> Any:
    n = 4
    a, b = rng.uniform(0.5, 2, n), rng.uniform(0.5, 2, n)
    r = np.array([a.sum() * rng.uniform(0.3, 1.2), b.sum() * rng.uniform(1.2, 3)])
    start = rng.uniform(0.7, 1.5, n)
    return (linear, rng.uniform(0.5, 2, n)), None, (two_ratios, (a, b, r)), start


def below_one(p: Any, x: Any) -> Any:
    E, w, bound = p
    return jnp.concatenate([monomials((E, w), x)[None] - 1.0, 0.1 - x, x - bound])


@family
def geometric(rng: Any) -> Any:
    n, k = 4, 4
    loss = rng.uniform(-2, 1, (k, n)), rng.uniform(0.5, 2, k)
    E, w = rng.uniform(-0.5, 1, (k, n)), rng.uniform(0.02, 0.3, k)
    return (monomials, loss), None, (below_one, (E, w, 10.0)), rng.uniform(0.5, 2, n)


def circles(p: Any, x: Any) -> Any:
    centres, r = p
    return jnp.sum((x - centres) ** 2, axis=1) - r


@family
def two_spheres(rng: Any) -> Any:
    n = 5
    centres = np.stack([np.zeros(n), rng.standard_normal(n) * 0.4])
    on = (circles, (centres, rng.uniform(1, 4) * np.ones(2)))
    A = definite(rng, n, -2, 2)
    return (quadratic, (A, rng.standard_normal(n))), on, None, rng.standard_normal(n)


@family
def cubic_equalities(rng: Any) -> Any:
    n, m = 6, 3
    B, solution = rng.standard_normal((m, n)), rng.uniform(-1, 1, n)
    on = (cubes, (B, B @ (solution + 0.5 * solution**3)))
    A, b, w = definite(rng, n, -1, 2), rng.standard_normal(n), rng.uniform(0.1, 1, n)
    return (quartic, (A, b, w)), on, None, rng.standard_normal(n)


def cubes(p: Any, x: Any) -> Any:
    B, b = p
    return B @ (x + 0.5 * x**3) - b


def outside(p: Any, x: Any) -> Any:
    centres, r = p
    return r - jnp.sum((x - centres) ** 2, axis=1)


@family
def around_obstacles(rng: Any) -> Any:
    n, k = 2, 3
    holes = (outside, (rng.uniform(-2, 2, (k, n)), rng.uniform(0.2, 1.5, k)))
    A, b = np.eye(n), rng.standard_normal(n)
    return (quadratic, (A, b)), None, holes, 3 * rng.standard_normal(n)


def chain(p: Any, x: Any) -> Any:
    a, r = p
    return a * x[:-1] * x[1:] - r


@family
def products_in_constraints(rng: Any) -> Any:
    n = 6
    a, r = rng.uniform(0.5, 2, n - 1), rng.uniform(0.5, 3, n - 1)
    A, b = definite(rng, n, 0.2, 2), rng.standard_normal(n)
    return (quadratic, (A, b)), None, (above_chain, (a, r)), rng.uniform(0.5, 2, n)


def above_chain(p: Any, x: Any) -> Any:
    return -chain(p, x)


def portfolio_loss(p: Any, x: Any) -> Any:
    A, mean = p
    return -mean @ x / jnp.sqrt(x @ A @ x + 1e-4)


def simplex(p: Any, x: Any) -> Any:
    return -x


@family
def sharpe_ratio(rng: Any) -> Any:
    n = 10
    A, mean = definite(rng, n, 0.05, 1), rng.uniform(-0.2, 1, n)
    plane = (affine, (np.ones((1, n)), np.ones(1)))
    return (portfolio_loss, (A, mean)), plane, (simplex, np.zeros(0)), np.full(n, 1 / n)


# The solvers -------------------------------------------------------------------------------------


class Oracles(NamedTuple):
    """Values, first and second derivatives in double precision, for SciPy and for the check."""

    f: Any
    gradient: Any
    hessian: Any
    c: Any
    J: Any
    curvature: Any
    m_E: int


@jax.jit
def _f(loss: Any, x: Any) -> Any:
    return loss(x)


@jax.jit
def _gradient(loss: Any, x: Any) -> Any:
    return jax.grad(loss)(x)


@jax.jit
def _hessian(loss: Any, x: Any) -> Any:
    return jax.hessian(loss)(x)


def _joined(constraints: Any, x: Any) -> Any:
    return jnp.concatenate([jnp.atleast_1d(c(x)) for c in constraints])


@jax.jit
def _c(constraints: Any, x: Any) -> Any:
    return _joined(constraints, x)


@jax.jit
def _J(constraints: Any, x: Any) -> Any:
    return jax.jacobian(lambda x: _joined(constraints, x))(x)


@jax.jit
def _curvature(constraints: Any, x: Any, q: Any) -> Any:
    return jax.hessian(lambda x: q @ _joined(constraints, x))(x)


def oracles(case: Case) -> Oracles:
    given = tuple(c for c in (case.equality, case.inequality) if c is not None)
    m_E = 0 if case.equality is None else len(np.atleast_1d(case.equality(case.x0)))
    host = lambda g, *a: np.asarray(g(*a), float)  # noqa: E731
    return Oracles(
        lambda x: float(_f(case.loss, x)),
        lambda x: host(_gradient, case.loss, x),
        lambda x: host(_hessian, case.loss, x),
        lambda x: host(_c, given, x),
        lambda x: host(_J, given, x),
        lambda x, q: host(_curvature, given, x, q),
        m_E,
    )


def kkt(o: Oracles, x: np.ndarray, loss_scale: float, scale: float) -> tuple[float, float, float]:
    """(criticality, violation, complementarity) in the units of the unscaled problem, relative."""
    g, c, J = o.gradient(x) / loss_scale, o.c(x) / scale, o.J(x) / scale
    if not all(np.isfinite(a).all() for a in (x, g, c, J, o.f(x))):
        return np.inf, np.inf, np.inf
    size = max(1.0, float(np.linalg.norm(J, 2) * np.linalg.norm(x)))
    is_equality = np.arange(len(c)) < o.m_E
    violation = np.linalg.norm(np.where(is_equality, c, np.maximum(c, 0))) / size
    rows = is_equality | (c >= -FEASIBLE * size)
    q = np.zeros(len(c))
    if rows.any():
        low = np.where(is_equality, -np.inf, 0.0)[rows]
        # Rows of unit length: multipliers of very different size are found alike.
        lengths = np.maximum(np.linalg.norm(J[rows], axis=1), 1e-300)
        found = scipy.optimize.lsq_linear(
            (J[rows] / lengths[:, None]).T, -g, (low, np.inf), method="bvls", tol=1e-15
        )
        q[rows] = found.x / lengths
    terms = max(1.0, np.linalg.norm(g), np.abs(q[:, None] * J).max(initial=0.0))
    complementary = np.abs(np.where(is_equality, 0, q * c)).max(initial=0.0) / terms
    return float(np.linalg.norm(g + q @ J) / terms), float(violation), float(complementary)


def solved(o: Oracles, x: np.ndarray, case: Case) -> bool:
    u, v, slack = kkt(o, x, case.loss_scale, case.scale)
    return u <= CRITICAL and v <= FEASIBLE and slack <= CRITICAL


def with_scipy(case: Case, o: Oracles, method: str) -> tuple[np.ndarray, bool]:
    m_E, given = o.m_E, []
    if method == "SLSQP":
        options: dict[str, Any] = {"maxiter": 1000, "ftol": 1e-15}
        if case.equality is not None:
            given.append(
                {"type": "eq", "fun": lambda x: o.c(x)[:m_E], "jac": lambda x: o.J(x)[:m_E]}
            )
        if case.inequality is not None:
            given.append(
                {"type": "ineq", "fun": lambda x: -o.c(x)[m_E:], "jac": lambda x: -o.J(x)[m_E:]}
            )
        more: dict[str, Any] = {}
    else:
        options = {"maxiter": 2000, "gtol": 1e-9, "xtol": 1e-13, "barrier_tol": 1e-11}
        upper = np.zeros(len(o.c(case.x0)))
        lower = np.where(np.arange(len(upper)) < m_E, 0.0, -np.inf)
        given.append(scipy.optimize.NonlinearConstraint(o.c, lower, upper, o.J, o.curvature))
        more = {"hess": o.hessian}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            r = scipy.optimize.minimize(
                o.f, case.x0, jac=o.gradient, method=method, constraints=given, options=options,
                **more,
            )  # fmt: skip
        except (ValueError, np.linalg.LinAlgError):  # NaN inside of trust-constr
            return case.x0, False
    return r.x, bool(r.success)


def with_mossp(case: Case) -> mossp.Result:
    problem = mossp.Problem(case.loss, equality=case.equality, inequality=case.inequality)
    return mossp.solve(problem, case.x0)


def main() -> None:
    given = sys.argv[1:]
    each = int(given.pop(0)) if given and given[0].isdigit() else EACH
    rows: dict[str, list[Any]] = {}
    with jax.enable_x64(True):
        for case in cases(each, given):
            o = oracles(case)
            began = time.perf_counter()
            r = with_mossp(case)
            spent = time.perf_counter() - began
            ours = solved(o, r.x, case)
            theirs = [with_scipy(case, o, method) for method in ("SLSQP", "trust-constr")]
            row = [ours, *(solved(o, x, case) for x, _ in theirs), r.success and not ours, spent]
            rows.setdefault(case.family, []).append(row)
            if (not ours and any(row[1:3])) or row[3]:
                print(f"  {case.family} {case.number}: {r.status.name} {row[:3]} {r.message}")
    print(f"{'family':<28}{'problems':>9}{'mossp':>7}{'SLSQP':>7}{'trust-constr':>14}{'false':>7}")
    total = np.zeros(5)
    for name, table in rows.items():
        sums = np.array([[1, *row[:4]] for row in table], float).sum(axis=0)
        total += sums
        print(f"{name:<28}" + "{:9.0f}{:7.0f}{:7.0f}{:14.0f}{:7.0f}".format(*sums))
    print(f"{'all':<28}" + "{:9.0f}{:7.0f}{:7.0f}{:14.0f}{:7.0f}".format(*total))
    times = [row[4] for table in rows.values() for row in table]
    print(f"seconds a solve: median {np.median(times):.2f}, longest {max(times):.1f}")


if __name__ == "__main__":
    main()
