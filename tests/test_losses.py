"""Ready losses: values, gradients, extreme margins, wrong labels, and one compilation each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.special
from sklearn.metrics import mean_tweedie_deviance

from mossp import losses
from mossp.losses import (
    Gamma,
    Huber,
    HuberizedHinge,
    LinearModel,
    Logistic,
    Loss,
    Poisson,
    Quantile,
    Softmax,
    Squared,
    Tweedie,
    gamma,
    huber,
    huberized_hinge,
    logistic,
    named,
    poisson,
    quantile,
    softmax,
    squared,
    tweedie,
)

ROWS, FEATURES, CLASSES = 7, 4, 3


def problem(loss, rng=None):
    """Return (x, A, b) in NumPy with labels that suit the loss."""
    rng = rng or np.random.default_rng(0)
    A = rng.normal(size=(ROWS, FEATURES))
    if isinstance(loss, Softmax):
        return rng.normal(size=(FEATURES, CLASSES)), A, rng.integers(0, CLASSES, size=ROWS)
    x = rng.normal(size=FEATURES)
    if isinstance(loss, Logistic | HuberizedHinge):
        return x, A, rng.choice([-1.0, 1.0], size=ROWS)
    if isinstance(loss, Gamma):
        return x, A, rng.gamma(2.0, size=ROWS)
    if isinstance(loss, Poisson | Tweedie):
        return x, A, rng.integers(0, 5, size=ROWS).astype(float)
    return x, A, 3.0 * rng.normal(size=ROWS)


def reference(loss, x, A, b):
    """Compute the loss row by row from its textbook definition."""
    t = A @ x
    if isinstance(loss, Logistic):
        rows = [np.log1p(np.exp(-label * score)) for label, score in zip(b, t, strict=True)]
    elif isinstance(loss, Softmax):
        rows = [scipy.special.logsumexp(s) - s[label] for label, s in zip(b, t, strict=True)]
    elif isinstance(loss, Huber):
        rows = scipy.special.huber(loss.delta, t - b)
    elif isinstance(loss, HuberizedHinge):
        short, d = 1 - b * t, loss.delta
        rows = np.where(short > d, short - d / 2, np.maximum(short, 0) ** 2 / (2 * d))
    elif isinstance(loss, Quantile):
        r, tau, d = b - t, loss.tau, loss.delta
        rows = np.where(r > d * tau, tau * r - d * tau**2 / 2, r**2 / (2 * d))
        rows = np.where(r < d * (tau - 1), (tau - 1) * r - d * (1 - tau) ** 2 / 2, rows)
    elif isinstance(loss, Poisson):
        rows = np.exp(t) - b * t
    elif isinstance(loss, Gamma):
        rows = b / np.exp(t) + t
    elif isinstance(loss, Tweedie):
        m, q = np.exp(t), loss.power
        rows = m ** (2 - q) / (2 - q) + b * m ** (1 - q) / (q - 1)
    else:
        rows = (t - b) ** 2 / 2
    return np.mean(rows)


READY = [
    logistic,
    huberized_hinge,
    HuberizedHinge(2.0),
    softmax,
    squared,
    huber,
    Huber(0.3),
    quantile,
    Quantile(0.9, 2.0),
    poisson,
    gamma,
    tweedie,
    Tweedie(1.9),
]


@pytest.mark.parametrize("loss", READY, ids=repr)
@pytest.mark.parametrize("x64", [False, True])
def test_value_and_precision(loss, x64):
    x, A, b = problem(loss)
    dtype = np.float64 if x64 else np.float32
    with jax.enable_x64(x64):
        value = loss(jnp.asarray(x, dtype), (jnp.asarray(A, dtype), jnp.asarray(b)))
        assert value.shape == () and value.dtype == dtype
        np.testing.assert_allclose(value, reference(loss, x, A, b), rtol=1e-13 if x64 else 1e-5)


@pytest.mark.parametrize("loss", READY, ids=repr)
def test_single_precision_survives_in_double_context(loss):
    x, A, b = problem(loss)
    with jax.enable_x64(True):
        batch = (jnp.asarray(A, np.float32), jnp.asarray(b, np.float32))
        value, gradient = jax.value_and_grad(loss)(jnp.asarray(x, np.float32), batch)
        assert value.dtype == gradient.dtype == np.float32


@pytest.mark.parametrize("loss", READY, ids=repr)
def test_gradient_against_finite_differences(loss):
    x, A, b = problem(loss)
    with jax.enable_x64(True):
        gradient = np.asarray(jax.grad(loss)(jnp.asarray(x), (jnp.asarray(A), jnp.asarray(b))))
    step = 1e-6
    for index in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[index] = step
        slope = (reference(loss, x + e, A, b) - reference(loss, x - e, A, b)) / (2 * step)
        assert gradient[index] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("loss", READY, ids=repr)
def test_mean_over_rows(loss):
    x, A, b = problem(loss)
    with jax.enable_x64(True):
        rows = [
            loss(jnp.asarray(x), (jnp.asarray(A[[i]]), jnp.asarray(b[[i]]))) for i in range(ROWS)
        ]
        whole = loss(jnp.asarray(x), (jnp.asarray(A), jnp.asarray(b)))
        single = jax.vmap(lambda a, y: loss(jnp.asarray(x), (a, y)))(jnp.asarray(A), jnp.asarray(b))
    np.testing.assert_allclose(np.mean(rows), whole, rtol=1e-14)
    np.testing.assert_allclose(single, rows, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("margin", [-1e4, 0.0, 1e4])
def test_logistic_at_extreme_margins(margin, dtype):
    with jax.enable_x64(True):
        batch = (jnp.ones((1, 1), dtype), jnp.ones(1, dtype))
        x = jnp.full(1, margin, dtype)
        value, gradient = jax.value_and_grad(logistic)(x, batch)
        curvature = jax.hessian(logistic)(x, batch)
    np.testing.assert_allclose(value, np.logaddexp(0.0, -margin), rtol=1e-6)
    np.testing.assert_allclose(gradient, [-scipy.special.expit(-margin)], rtol=1e-6)
    assert np.isfinite(curvature).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("label", [0, 1])
def test_softmax_at_extreme_margins(label, dtype):
    with jax.enable_x64(True):
        x = jnp.array([[1e4, -1e4]], dtype)
        batch = (jnp.ones((1, 1), dtype), jnp.array([label]))
        value, gradient = jax.value_and_grad(softmax)(x, batch)
    np.testing.assert_allclose(value, 2e4 * label, rtol=1e-6)
    np.testing.assert_allclose(gradient, [[float(label), -float(label)]], atol=1e-6)


def test_softmax_keeps_small_losses_at_large_scores():
    # log(1 + e^-5) with both scores near 1e4: subtracting after the logarithm would leave 3 digits.
    x = jnp.array([[1e4, 1e4 - 5.0]], jnp.float32)
    value = softmax(x, (jnp.ones((1, 1)), jnp.array([0])))
    np.testing.assert_allclose(value, np.log1p(np.exp(-5.0)), rtol=1e-5)


@pytest.mark.parametrize("residual", [-1e4, -1.0, -0.5, 0.0, 0.5, 1.0, 1e4])
def test_huber_gradient_is_the_clipped_residual(residual):
    with jax.enable_x64(True):
        gradient = jax.grad(huber)(jnp.array([residual]), (jnp.ones((1, 1)), jnp.zeros(1)))
    np.testing.assert_allclose(gradient, [np.clip(residual, -1.0, 1.0)])


@pytest.mark.parametrize("loss", [squared, huber], ids=repr)
def test_several_outputs_are_summed_in_a_row(loss):
    rng = np.random.default_rng(1)
    x, A, b = rng.normal(size=(4, 2)), rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    with jax.enable_x64(True):
        whole = loss(jnp.asarray(x), (jnp.asarray(A), jnp.asarray(b)))
        parts = [
            loss(jnp.asarray(x[:, j]), (jnp.asarray(A), jnp.asarray(b[:, j]))) for j in range(2)
        ]
    np.testing.assert_allclose(whole, np.sum(parts), rtol=1e-13)
    loss.check((A, b), x)


class Doubled:
    """Stands for sparse rows: answers `@` and has a shape, nothing more."""

    def __init__(self, A):
        self.A, self.shape = A, A.shape

    def __matmul__(self, x):
        return 2.0 * (self.A @ x)


@pytest.mark.parametrize("loss", READY, ids=repr)
def test_features_are_used_through_matmul_only(loss):
    x, A, b = (jnp.asarray(part) for part in problem(loss))
    assert loss(x, (Doubled(A), b)) == pytest.approx(float(loss(x, (2.0 * A, b))), rel=1e-5)


@pytest.mark.parametrize("make", [Logistic, Squared, Huber, lambda: Huber(0.5), Softmax])
def test_equal_instances_compile_once(make):
    first, second = make(), make()
    assert first == second and hash(first) == hash(second)
    x, A, b = (jnp.asarray(part) for part in problem(first))
    traces = []

    @jax.jit
    def value(loss, x, batch):
        traces.append(loss)
        return loss(x, batch)

    assert value(first, x, (A, b)) == value(second, x, (A, b))
    assert len(traces) == 1


def test_module_instances_are_the_classes():
    assert (logistic, squared, huber, softmax) == (Logistic(), Squared(), Huber(1.0), Softmax())
    assert Huber(1.0) != Huber(2.0)
    assert logistic != squared


def test_delta_is_a_leaf():
    x, A, b = (jnp.asarray(part) for part in problem(huber))
    assert jax.tree.leaves(Huber(2)) == [2.0]
    traces = []

    @jax.jit
    def value(loss):
        traces.append(loss)
        return loss(x, (A, b))

    several = jax.vmap(lambda delta: Huber(delta)(x, (A, b)))(jnp.array([0.5, 2.0]))
    np.testing.assert_allclose(several, [value(Huber(0.5)), value(Huber(2))], rtol=1e-6)
    assert len(traces) == 1


@pytest.mark.parametrize("delta", [0.0, -1.0, np.nan, np.inf])
def test_delta_must_be_positive(delta):
    with pytest.raises(ValueError, match="positive, finite delta"):
        Huber(delta)


@pytest.mark.parametrize("loss", READY, ids=repr)
@pytest.mark.parametrize("convert", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_check_accepts_good_data(loss, convert):
    x, A, b = problem(loss)
    loss.check((convert(A), b))
    loss.check([convert(A), b], x)


FEATURES_ONLY = np.ones((4, 2))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 1, 1, 0]), r"hold 0 and 1: use 2\*y - 1\.$"),
        (np.array([False, True, True, False]), r"hold 0 and 1: use 2\*y - 1\.$"),
        (np.array([0, 1, 1, 0], np.uint8), r"use 2\*y\.astype\(float\) - 1\.$"),
        (np.array([1, 2, 2, 1]), r"hold 1 and 2: use numpy\.where\(y == 2, 1, -1\)"),
        (np.array([0, 1, 2, 1]), "hold 0, 1 and 2: .*softmax"),
        (np.array([0.1, 0.2, 0.3, 0.4]), "squared or mossp.losses.huber"),
        (np.array([1.0, -1.0, np.nan, 1.0]), "1 of 4 are NaN or infinite, the first in row 2"),
        (np.array(["a", "b", "a", "b"]), "needs real numbers"),
        (np.ones((4, 1)), r"b has shape \(4, 1\): use y.ravel\(\)"),
        (np.ones(3), "A has 4 rows and b has 3"),
    ],
)
def test_logistic_says_which_labels_are_wrong(labels, message):
    with pytest.raises(ValueError, match=message):
        logistic.check((FEATURES_ONLY, labels))


def test_remedy_for_zero_one_labels_works():
    for dtype in (bool, int, float):
        y = np.array([0, 1, 1, 0], dtype)
        logistic.check((FEATURES_ONLY, 2 * y - 1))
    y = np.array([0, 1, 1, 0], np.uint8)
    logistic.check((FEATURES_ONLY, 2 * y.astype(float) - 1))


@pytest.mark.parametrize(
    ("labels", "x", "message"),
    [
        (np.array([0.5, 1.0, 0.0, 0.0]), None, "whole numbers.*hold 0, 0.5 and 1"),
        (np.array([-1, 1, 1, -1]), None, r"hold -1 and 1: use numpy.unique\(y, return_inverse"),
        (
            np.array([1, 2, 3, 1]),
            np.zeros((2, 3)),
            "needs labels 0 to 2, but the data hold 1, 2 and 3",
        ),
        (np.array([0, 1, 1, 0]), np.zeros(2), r"x of shape \(features, classes\)"),
        (np.array([0, 1, 1, 0]), np.zeros((5, 2)), "A has 2 features"),
    ],
)
def test_softmax_says_which_labels_are_wrong(labels, x, message):
    with pytest.raises(ValueError, match=message):
        softmax.check((FEATURES_ONLY, labels), x)


def test_many_labels_are_shortened():
    with pytest.raises(ValueError, match=r"hold 0, 1, 2, 3 and 6 others: "):
        logistic.check((np.ones((10, 1)), np.arange(10)))


def test_softmax_label_without_a_class_is_not_silent():
    x, A, _ = (jnp.asarray(part) for part in problem(softmax))
    value, gradient = jax.value_and_grad(softmax)(x, (A, jnp.full(ROWS, CLASSES)))
    assert np.isnan(value) and np.isnan(gradient).any()


@pytest.mark.parametrize("loss", READY, ids=repr)
@pytest.mark.parametrize("batch", [np.ones((4, 2)), (np.ones((4, 2)),), (1, 2, 3)])
def test_batch_must_be_a_pair(loss, batch):
    with pytest.raises(ValueError, match=r"data = \(A, b\)"):
        loss.check(batch)


@pytest.mark.parametrize("loss", [logistic, squared, huber], ids=repr)
def test_column_of_labels_does_not_broadcast(loss):
    with pytest.raises(ValueError, match="same shape"):
        loss(jnp.ones(2), (jnp.ones((4, 2)), jnp.ones((4, 1))))


@pytest.mark.parametrize("loss", [logistic, squared, huber, softmax], ids=repr)
def test_features_must_be_a_matrix(loss):
    with pytest.raises(ValueError, match=r"\(rows, features\)"):
        loss.check((np.ones(4), np.ones(4)))


def test_user_loss_needs_no_check():
    class Absolute(Loss):
        def __call__(self, x, batch):
            return jnp.mean(jnp.abs(batch @ x["w"]))

    Absolute().check("anything")
    assert Absolute() == Absolute()


def test_public_names_exist():
    assert all(hasattr(losses, name) for name in losses.__all__)


def test_linear_model_adds_an_intercept_and_weights():
    for loss in (logistic, softmax, squared):
        x, A, b = problem(loss)
        w, shift = np.arange(1.0, ROWS + 1), np.ones(x.shape[1:]) * 0.3
        with_ones = np.column_stack([A, np.ones(ROWS)])
        longer = np.concatenate([x, shift[None]])
        expected = np.mean(
            [
                w[i] * reference(loss, longer, with_ones[i : i + 1], b[i : i + 1])
                for i in range(ROWS)
            ]
        )
        with jax.enable_x64(True):
            model, data = LinearModel(loss), (jnp.asarray(A), jnp.asarray(b), jnp.asarray(w))
            value = model({"coef": jnp.asarray(x), "intercept": jnp.asarray(shift)}, data)
            assert float(value) == pytest.approx(expected, rel=1e-12)
            alone = model({"coef": jnp.asarray(x)}, (*data[:2], jnp.ones(ROWS)))
            assert float(alone) == pytest.approx(reference(loss, x, A, b), rel=1e-12)
        assert model.convex and model == LinearModel(loss)


def test_losses_by_name():
    assert named("huber:2") == Huber(2.0) and named("softmax") == softmax
    assert named(" quantile : 0.9, 0.05") == Quantile(0.9, 0.05)
    for text, says in {
        "hubr": "Did you mean 'huber'",
        "squared:1": "has 1 number, which does not suit Squared",
        "huber:one": "numbers are needed",
        "huber:nan": "numbers are needed",
        "huber:-1": "positive, finite delta",
        "quantile:1.5": "tau between 0 and 1",
        "tweedie:2": "power between 1 and 2",
    }.items():
        with pytest.raises(ValueError, match=says):
            named(text)
    with pytest.raises(TypeError, match="must be text"):
        named(3)


@pytest.mark.parametrize(("loss", "b", "says"), [
    (huberized_hinge, [0.0, 1.0], "labels -1 and \\+1, but the data hold 0 and 1"),
    (poisson, [1.0, -2.0], "1 of 2 targets are negative, the smallest -2"),
    (quantile, [1.0, np.nan], "finite labels"),
    (gamma, [1.0, -2.0], "needs positive numbers, but 1 of 2 targets are negative"),
    (gamma, [1.0, 0.0], "1 of 2 targets are 0: use mossp.losses.tweedie"),
    (tweedie, [1.0, -2.0], "needs numbers, at least 0, but 1 of 2 targets are negative"),
])  # fmt: skip
def test_targets_that_do_not_suit(loss, b, says):
    with pytest.raises(ValueError, match=says):
        loss.check((np.eye(2), np.array(b)))


@pytest.mark.parametrize("loss", [poisson, gamma, tweedie, Tweedie(1.2)], ids=repr)
def test_a_logarithmic_link_against_deviances_of_scikit_learn(loss):
    """The loss above its least one is half the unit deviance, at the mean that is predicted."""
    _, A, b = problem(loss)
    b = np.maximum(b, 0.1)
    power = {Poisson: 1, Gamma: 2}.get(type(loss)) or loss.power
    t = A[:, 0]
    with jax.enable_x64(True):
        rows = np.asarray(loss.rows(jnp.asarray(t), jnp.asarray(b)))
    for i in range(ROWS):
        deviance = mean_tweedie_deviance(b[[i]], loss.mean(t[[i]]), power=power)
        assert 2 * (rows[i] - loss.least(b)[i]) == pytest.approx(deviance, rel=1e-9, abs=1e-12)
    assert Poisson().least(np.zeros(1)) == 0 and tweedie.least(np.zeros(1)) == 0
    assert loss.mean(np.array([1e5])) == np.inf


@pytest.mark.parametrize("loss", READY, ids=repr)
def test_no_prediction_is_below_the_least_loss(loss):
    _, _, b = problem(loss)
    for p in (-5.0, -0.5, 0.0, 0.3, 2.0):
        t = np.full((ROWS, CLASSES) if isinstance(loss, Softmax) else ROWS, p)
        with jax.enable_x64(True):
            assert (
                np.asarray(loss.rows(jnp.asarray(t), jnp.asarray(b))) >= loss.least(b) - 1e-12
            ).all()


@pytest.mark.parametrize("loss", [poisson, logistic, softmax], ids=repr)
def test_an_offset_is_a_column_whose_coefficient_is_one(loss):
    x, A, b = problem(loss)
    rng = np.random.default_rng(4)
    o, w = rng.normal(size=(A @ x).shape), rng.random(ROWS)
    model = LinearModel(loss, offset=True)
    with jax.enable_x64(True):
        value = model({"coef": jnp.asarray(x), "intercept": 0.5}, (A, jnp.asarray(b), w, o))
        rows = np.asarray(loss.rows(jnp.asarray(A @ x + 0.5 + o), jnp.asarray(b)))
    assert float(value) == pytest.approx(np.mean(w * rows), rel=1e-12)
    model.check((A, b, w, o), {"coef": x})
    with pytest.raises(ValueError, match=r"needs data \(A, b, w, o\)"):
        model.check((A, b, w), {"coef": x})
    with pytest.raises(ValueError, match="shape of the predictions"):
        model.check((A, b, w, o[:-1]), {"coef": x})
    assert model != LinearModel(loss)


@pytest.mark.parametrize("loss", [logistic, squared], ids=lambda loss: type(loss).__name__)
def test_rows_on_the_host_are_those_of_jax(loss):
    """Also where exp overflows."""
    z = np.array([-800.0, -40.0, -3.0, -1e-9, 0.0, 0.5, 7.0, 40.0, 800.0])
    b = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0])
    found = loss.on_host(z, b)
    if not isinstance(loss, Logistic):
        assert found is None  # JAX is asked
        return
    with jax.enable_x64(True):
        slopes = jax.grad(lambda z: jnp.sum(loss.rows(z, b)))
        np.testing.assert_allclose(found.values, loss.rows(z, b), rtol=1e-14, atol=1e-300)
        np.testing.assert_allclose(found.slopes, slopes(z), rtol=1e-14, atol=1e-300)
        curvatures = jax.jvp(slopes, (z,), (np.ones_like(z),))[1]
        np.testing.assert_allclose(found.curvatures(), curvatures, rtol=1e-12, atol=1e-15)


def test_rows_of_several_classes_on_the_host_are_those_of_jax():
    """Also where exp overflows; a small loss is exact to its last digits, as no sum with 1 is."""
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(size=(20, 3)), [[800, -800, 0], [40, 0, 1], [0, 0, -900]]])
    b = np.append(rng.integers(0, 3, 20), [0, 0, 2])
    found = softmax.on_host(z, b)
    with jax.enable_x64(True):
        one = lambda z, b: softmax.rows(z[None], b[None])[0]  # noqa: E731
        z_, b_ = jnp.asarray(z), jnp.asarray(b)
        np.testing.assert_allclose(found.values, softmax.rows(z_, b_), rtol=1e-13, atol=1e-16)
        slopes, hessians = jax.vmap(jax.grad(one))(z_, b_), jax.vmap(jax.hessian(one))(z_, b_)
    np.testing.assert_allclose(found.slopes, slopes, rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(found.curvatures(), hessians, rtol=1e-12, atol=1e-16)
    assert found.values[-2] == pytest.approx(np.exp(-40) + np.exp(-39), rel=1e-15)
    assert np.isnan(softmax.on_host(z[:1], np.array([7])).values).all()


def test_a_class_of_its_own_has_no_rows_on_the_host():
    class Steeper(Logistic):
        def rows(self, prediction, b):
            return 2 * super().rows(prediction, b)

    assert Steeper().on_host(np.zeros(2), np.ones(2)) is None
