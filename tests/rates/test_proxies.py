"""Smooth rates: gradients, the limit of a small temperature, batches, compilations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mossp import losses, rates
from mossp.rates.binding import bind
from mossp.rates.proxies import Proxies

pytestmark = pytest.mark.usefixtures("x64")
N, n = 60, 4
TWO = ["fpr <= 0.3", "|selection[z=a] - selection[z=b]| <= 0.1", "precision >= 0.6",
       "accuracy[z=a] >= 0.5", "tnr[no] >= 0.4", "mean loss[z=b] <= 0.7", "tpr = 0.5"]  # fmt: skip
THREE = ["tpr[class=u] >= 0.5", "accuracy >= 0.2", "accuracy[v] >= 0.3", "precision[v] >= 0.1",
         "mean loss[class=v] <= 2"]  # fmt: skip


def case(kind):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(N, n))
    z = {"z": rng.choice(["a", "b"], N)}
    w = rng.random(N) + 0.5
    if kind == "two":
        y = rng.integers(0, 2, N)
        texts, classes, b, loss, tail = TWO, ["no", "yes"], 2.0 * y - 1, losses.logistic, ()
    else:
        y = rng.integers(0, 3, N)
        texts, classes, tail = THREE, ["t", "u", "v"], (3,)
        b, loss = y, losses.softmax
        if kind == "hinge":
            b, loss = np.where(y[:, None] == np.arange(3), 1.0, -1.0), losses.huberized_hinge
    bounded = bind([rates.parse(t) for t in texts], y, classes, w, z, check=False)
    x = {"coef": rng.normal(size=(n, *tail)), "intercept": rng.normal(size=tail)}
    return bounded, loss, jax.tree.map(jnp.asarray, x), (A, b, w, bounded.weights), y


@pytest.mark.parametrize("kind", ["two", "three", "hinge"])
def test_gradients_are_those_of_finite_differences(kind):
    bounded, loss, x, batch, _ = case(kind)
    proxies = Proxies.of(bounded, 0.7, loss, np.linspace(0, 0.1, len(bounded.rows)))
    jacobian = jax.jacrev(proxies)(x, batch)
    step = 1e-6
    for name, leaf in x.items():
        for place in np.ndindex(leaf.shape):
            up = {**x, name: leaf.at[place].add(step)}
            down = {**x, name: leaf.at[place].add(-step)}
            slope = (proxies(up, batch) - proxies(down, batch)) / (2 * step)
            np.testing.assert_allclose(jacobian[name][(..., *place)], slope, atol=1e-8)


@pytest.mark.parametrize("kind", ["two", "three", "hinge"])
def test_a_small_temperature_gives_the_true_rates(kind):
    bounded, loss, x, batch, _ = case(kind)
    scores = np.asarray(batch[0] @ x["coef"] + x["intercept"])
    decisions = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
    each = np.asarray(loss.rows(jnp.asarray(scores), jnp.asarray(batch[1])))
    means = bounded.means(decisions, each)
    found = Proxies.of(bounded, 1e-6, loss)(x, batch)
    np.testing.assert_allclose(found, bounded.matrix @ means + bounded.constant, atol=1e-9)
    assert np.abs(Proxies.of(bounded, 1.0, loss)(x, batch) - found).max() > 1e-3


@pytest.mark.parametrize("kind", ["two", "three", "hinge"])
def test_the_mean_of_batches_is_that_of_all_rows(kind):
    bounded, loss, x, batch, _ = case(kind)
    proxies = Proxies.of(bounded, 0.7, loss)
    halves = [tuple(part[k : k + N // 2] for part in batch) for k in (0, N // 2)]
    mean = sum(proxies(x, half) for half in halves) / 2
    np.testing.assert_allclose(proxies(x, batch), mean, atol=1e-12)


def test_moving_a_bound_compiles_nothing():
    bounded, loss, x, batch, _ = case("two")
    traced = []

    @jax.jit
    def value(proxies, x, batch):
        traced.append(1)
        return proxies(x, batch)

    first = value(Proxies.of(bounded, 0.5, loss), x, batch)
    moved = value(Proxies.of(bounded, 0.5, loss, np.full(len(bounded.rows), 0.1)), x, batch)
    value(Proxies.of(bounded, 0.25, loss), x, batch)
    np.testing.assert_allclose(first - moved, 0.1)
    assert len(traced) == 1


def test_single_precision_stays_single():
    bounded, loss, x, batch, _ = case("two")
    small = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (x, batch))
    assert Proxies.of(bounded, 0.7, loss)(*small).dtype == jnp.float32


def test_without_an_intercept():
    bounded, loss, x, batch, _ = case("two")
    zero = {**x, "intercept": jnp.zeros(())}
    alone = {"coef": x["coef"]}
    proxies = Proxies.of(bounded, 0.7, loss)
    np.testing.assert_array_equal(proxies(alone, batch), proxies(zero, batch))
