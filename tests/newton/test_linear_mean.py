"""c, J and the Hessian of q'c by products, against differentiation of the whole function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp.certificates.first_order import first_order
from mossp.newton import linear_mean as module
from mossp.newton.hessian import Hessian, _products
from mossp.newton.linear_mean import LOSS, linear_mean
from mossp.newton.meter import Meter
from mossp.newton.residual import KKT

N, n = 90, 5
rng = np.random.default_rng(0)
X = rng.normal(size=(N, n)) * (rng.random((N, n)) < 0.6)
y = np.where(X[:, 0] + rng.normal(size=N) > 0, 1.0, -1.0)
d = mossp.group_weights(X[:, 1] > 0) - mossp.group_weights(X[:, 1] <= 0)
OWN = rng.normal(size=(41, n))
START = {"w": np.zeros(n), "b": np.zeros(())}


def loss(x, batch):
    A, b, _ = batch
    return jnp.mean(jax.nn.softplus(-b * (A @ x["w"] + x["b"])))


def rates(x, batch):
    A, b, d = batch
    decided = jax.nn.sigmoid((A @ x["w"] + x["b"]) / 0.5)
    return jnp.stack([jnp.mean(d * decided), -jnp.mean(d * decided), jnp.mean(b * decided)]) - 0.1


def stated(A) -> mossp.Problem:
    return mossp.Problem(
        loss, (A, y, d), mossp.L1MinusL2(0.01),
        equality=lambda x: x["w"] @ x["w"] - 1.0,
        inequality={
            "rates": mossp.Expected(rates),
            "own": mossp.Expected(lambda x, B: jnp.mean((B @ x["w"]) ** 2) - 3.0, data=OWN),
        },
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("sparse", [False, True])
def test_against_differentiation(sparse, dtype):
    accuracy = 1e-12 if dtype == np.float64 else 1e-4
    with jax.enable_x64(dtype == np.float64):
        oracles = stated(scipy.sparse.csr_array(X) if sparse else X).oracles(START, dtype)
        kkt = KKT(oracles, np.dtype(dtype))
        assert kkt.terms is not None
        assert len(kkt.terms.means) == 2
        assert kkt.terms.left.tolist() == [0]  # the sphere is no mean
        x = np.linspace(-1, 1, n + 1).astype(dtype).astype(float)
        q = np.array([0.3, 0.1, 0.4, 0.2, 0.5]).astype(dtype).astype(float)
        at = kkt.evaluate(x, q, 0.1)
        f, gradient, c, J = oracles.first_order(jnp.asarray(x, dtype))
        np.testing.assert_allclose(at.F - kkt.regularizer(x), f, rtol=accuracy)
        for ours, whole in ((at.gradient, gradient), (at.c, c), (at.J, J)):
            np.testing.assert_allclose(ours, whole, atol=10 * accuracy)
        every = np.arange(n + 1)
        H = np.asarray(_products(oracles, *(jnp.asarray(a, dtype) for a in (x, q, np.eye(n + 1)))))
        hessian = Hessian(kkt, Meter())
        np.testing.assert_allclose(hessian.products(at, np.eye(n + 1)), H, atol=10 * accuracy)
        np.testing.assert_allclose(hessian.square(at, every), H, atol=10 * accuracy)
        some = np.array([0, 2, 5])
        part = Hessian(kkt, Meter()).square(at, some)
        np.testing.assert_allclose(part, H[np.ix_(some, some)], atol=10 * accuracy)


def test_on_some_entries():
    """A working set sees the columns of its own entries."""
    with jax.enable_x64(True):
        oracles = stated(X).oracles(START)
        some, q = np.array([0, 2, 4]), np.array([0.3, 0.1, 0.4, 0.2, 0.5])
        part, whole = KKT(oracles.restricted(some), np.dtype(float)), KKT(oracles, np.dtype(float))
        x = np.zeros(n + 1)
        x[some] = 0.5, -1.0, 2.0
        mine, other = part.evaluate(x[some], q, 0.1), whole.evaluate(x, q, 0.1)
        np.testing.assert_allclose(mine.gradient, other.gradient[some], atol=1e-14)
        np.testing.assert_allclose(mine.J, other.J[:, some], atol=1e-14)
        every = np.arange(3)
        H = Hessian(part, Meter()).square(mine, every)
        np.testing.assert_allclose(H, Hessian(whole, Meter()).square(other, some), atol=1e-13)


def test_bounded_is_above_the_hessian():
    """|D_i| + kappa |slope_i| row by row: M - Hess is positive semidefinite, and M grows."""
    with jax.enable_x64(True):
        oracles = stated(X).oracles(START)
        mean = linear_mean(oracles, 2)  # the sphere, own, rates
        assert mean is not None
        x, q, every = np.linspace(-1, 2, n + 1), np.array([0.5, 0.0, 2.0]), np.arange(n + 1)
        H, below = mean.block(x, every, q), -np.inf
        assert np.linalg.eigvalsh(H)[0] < 0  # of sigmoids, some bend down
        for kappa in (0.0, 0.1, 1.0):
            M = mean.bounded(x, every, q, kappa)
            least = np.linalg.eigvalsh(M - H)[0]
            assert least >= -1e-12
            assert np.trace(M) > below
            below = np.trace(M)
        endless = np.full_like(q, np.inf)  # multipliers of bounds that contradict one another
        with np.errstate(invalid="ignore"):
            assert not np.isfinite(mean.bounded(x, every, endless, 1.0)).all()


def test_finite_differences():
    with jax.enable_x64(True):
        mean = linear_mean(stated(X).oracles(START), LOSS)
        assert mean is not None
        x, e, size = np.linspace(-1, 1, n + 1), np.cos(np.arange(n + 1)), 1e-6
        ahead, behind = (mean.first_order(x + s * e) for s in (size, -size))
        slope = (ahead[0] - behind[0]) / (2 * size)
        np.testing.assert_allclose(mean.first_order(x)[1] @ e, slope, rtol=1e-8)
        bend = (ahead[1] - behind[1]) / (2 * size)
        np.testing.assert_allclose(mean.products(x, e[None])[0], bend, rtol=1e-6, atol=1e-9)


def test_what_is_no_mean_falls_back(monkeypatch):
    """Slopes that are not those of the function as a whole are noticed, and not used."""
    with jax.enable_x64(True):
        oracles = stated(X).oracles(START)
        honest = module._first

        def wrong(*args):
            values, slopes = honest(*args)
            return values, 1.001 * slopes

        monkeypatch.setattr(module, "_first", wrong)
        monkeypatch.setattr(module, "_agreed", type(module._agreed)())
        assert linear_mean(oracles, LOSS) is None
        assert KKT(oracles, np.dtype(float)).terms is None


def test_rows_that_repeat_themselves_are_taken_once():
    rows = np.repeat(OWN[:9], 5, axis=0)
    problem = mossp.Problem(
        lambda x: x @ x, inequality=mossp.Expected(lambda x, B: jnp.mean(jnp.exp(B @ x)), data=rows)
    )
    x, q, places = np.linspace(-1, 1, n), np.array([0.7]), np.arange(n)
    with jax.enable_x64(True):
        mean = linear_mean(problem.oracles(np.zeros(n)), 0)
        assert mean is not None
        assert len(mean.table.A) == 9
        c, J = mean.values_and_jacobian(x)
        H, bounded = mean.block(x, places, q), mean.bounded(x, places, q, 0.1)
        along = mean.products(x, np.eye(n), q)
    e = np.exp(rows @ x)
    np.testing.assert_allclose(c, e.mean())
    np.testing.assert_allclose(J[0], rows.T @ e / len(e))
    np.testing.assert_allclose(H, 0.7 * (rows.T * e) @ rows / len(e))
    np.testing.assert_allclose(along, H)
    np.testing.assert_allclose(bounded, 1.1 * H)


def test_a_certificate_takes_no_constraints_over_from_the_search():
    """Means remember values and slopes at their last point, which a certificate must not see."""
    fair = mossp.Expected(lambda x, batch: jnp.mean(jax.nn.sigmoid(batch[0] @ x)) - 0.1)
    problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.L1(0.01), inequality=fair)
    x = np.linspace(-1, 1, n)
    with jax.enable_x64(True):
        kkt = KKT(problem.oracles(x), np.dtype(float))
        assert kkt.linear.hosted and kkt.terms is not None
        expected = first_order(kkt.oracles, x)
        kkt.evaluate(x, np.zeros(1), 1.0)
        (_, mean), *_ = kkt.terms.means
        mean.known = mean.known._replace(values=0 * mean.known.values, J=0 * mean.known.J)
        for mine, theirs in zip(kkt.afresh(kkt.oracles, x), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-13, atol=1e-15)
