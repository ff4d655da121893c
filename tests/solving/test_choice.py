"""What method="auto", the default, chooses."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import pytest
import scipy.optimize
import scipy.sparse

import mossp
from mossp import losses
from mossp.solving import arguments
from tests.solving.logistic import LAM, X0, N, X, Y, is_sentence, logistic, n, on_sphere, unbroken


def asked(problem, x0=X0, **settings):
    """What `solve` makes of its arguments, before anything is compiled."""
    given = inspect.signature(mossp.solve).parameters.items()
    defaults = {k: p.default for k, p in given if p.default is not inspect.Parameter.empty}
    del defaults["mesh"]  # which divides the rows of the problem before
    return arguments.checked(problem, x0, **{**defaults, **settings})


def rows_of(count):
    return lambda x: jnp.ones((count, n)) @ x


def draw(key, size):
    rows = jax.random.normal(key, (size, n))
    return rows, jnp.sign(rows[:, 0])


def batches():
    return [(X[i : i + 32], Y[i : i + 32]) for i in range(0, 576, 32)]


DATA = {
    "few rows": (lambda: (X[:256], Y[:256]), "full gradients: 256 rows"),
    "more rows": (lambda: (X[:257], Y[:257]), "SVRG gradients: 257 rows"),
    "few sparse rows": (
        lambda: (scipy.sparse.csr_array(X[:100]), Y[:100]),
        "full gradients: 100 rows",
    ),
    "sparse rows": (lambda: (scipy.sparse.csr_array(X), Y), "SVRG gradients: 600 rows"),
    "a Sampler": (lambda: mossp.Sampler(draw), "recursive gradients: samples without end"),
    "a Stream": (lambda: mossp.Stream(batches()), "recursive gradients: samples without end"),
    "none": (lambda: None, "full gradients: no data"),
}
ENDLESS = ("a Sampler", "a Stream")


@pytest.mark.parametrize("m", [0, 1, 32, 33, 40])
@pytest.mark.parametrize("name", DATA)
def test_the_choice_follows_the_table(name, m):
    data, why = DATA[name]
    constraints = {"equality": rows_of(m)} if m else {}
    loss = losses.logistic if name != "none" else (lambda x: x @ x)
    a = asked(mossp.Problem(loss, data(), mossp.L1(LAM), **constraints))
    method = "sqp-dc" if m <= 32 else "mossp-al"
    method = "mossp-r" if name in ENDLESS and not m else method
    assert a.name == method and a.polish is (name not in ENDLESS)
    many = f"{m} constraint" if m == 1 else f"{m} constraints"
    assert a.chosen == f"{method} with {why}, {many}"
    assert a.tol == (1e-2 if name in ENDLESS else 1e-10)
    assert a.method.exact is (name not in ENDLESS)


def test_inequalities_count_like_equalities():
    a = asked(logistic(mossp.L1(LAM), equality=rows_of(20), inequality=rows_of(13)))
    assert a.name == "mossp-al" and "33 constraints" in a.chosen


@pytest.mark.parametrize("settings", [{"schedule": "theorem"}, {"output": "random"}])
@pytest.mark.parametrize("m", [0, 1, 40])
def test_a_setting_of_the_paper_gets_the_papers_method(settings, m):
    constraints = {"equality": rows_of(m)} if m else {}
    a = asked(logistic(mossp.L1(LAM), **constraints), **settings)
    assert a.name == "mossp-r" and not a.polish and a.tol == 1e-2
    assert "a setting of the paper was asked for" in a.chosen


@pytest.mark.parametrize(
    ("problem", "dtype", "tol"),
    [
        (on_sphere, "float64", 1e-10),
        (on_sphere, "float32", 1e-4),
        (lambda: mossp.Problem(losses.logistic, mossp.Sampler(draw)), "float64", 1e-2),
        (lambda: mossp.Problem(losses.logistic, mossp.Sampler(draw)), "float32", 1e-2),
    ],
)
def test_the_tolerance_left_out(problem, dtype, tol):
    assert asked(problem(), dtype=dtype).tol == tol
    assert asked(problem(), dtype=dtype, tol=0.25).tol == 0.25


@pytest.mark.parametrize("data", [lambda: mossp.Sampler(draw), lambda: mossp.Stream(batches())])
def test_polishing_data_without_end_is_refused(data):
    with pytest.raises(ValueError, match="polish needs all of the data"):
        mossp.solve(mossp.Problem(losses.logistic, data()), X0, polish=True)


def test_the_result_says_what_was_chosen():
    r = unbroken()
    assert "Chosen: sqp-dc with full gradients: 600 rows, 1 constraint." in r.message
    assert f"After {r.steps} steps with full gradients, polished by" in r.message
    assert is_sentence(r.message)
    s = r.settings
    assert s["method"] == "sqp-dc" and s["samples"] == N and s["constraints"] == 1
    assert s["variables"] == n and s["regularizer"] == "L1MinusL2" and s["schedule"] == "Auto"
    assert r.tol == 1e-10 and s["dtype"] == "float64"
    assert "sqp-dc" in r.summary().splitlines()[0]
