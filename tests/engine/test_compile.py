"""A second solve of the same shape compiles nothing (case 18 of "What must not break")."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp import constraints, losses, schedules
from tests.compilations import compiled_by
from tests.problems import ball, plane

pytestmark = pytest.mark.slow


n = 5
rng = np.random.default_rng(0)
A = rng.normal(size=(416, n))
b = A @ np.array([1.0, 0, 0, 2.0, 0]) + 0.1 * rng.normal(size=416)
LABELS = np.where(b > 0, 1.0, -1.0)


def problem(lam=0.01, rows=slice(400), **changes):
    given = {"loss": losses.squared, "data": (A[rows], b[rows]), "equality": plane}
    return mossp.Problem(**{**given, "regularizer": mossp.L1(lam), **changes})


def solve(p=None, x0=None, **settings):
    x0 = np.zeros(n) if x0 is None else x0
    given = {"method": "mossp-r", "steps": 2000, "batch_size": 16, "seed": 0}
    return mossp.solve(p or problem(), x0, **{**given, **settings})


CONSTANT = {"schedule": schedules.Constant(rho=5.0, mu=0.01, alpha=0.1)}

CHANGES = {
    "nothing": (lambda: solve(), lambda: solve()),
    "lam": (lambda: solve(), lambda: solve(problem(0.02))),
    "lam, a whole number": (lambda: solve(), lambda: solve(problem(1))),
    "seed": (lambda: solve(), lambda: solve(seed=7)),
    "steps": (lambda: solve(), lambda: solve(steps=3333)),
    "fewer steps": (lambda: solve(), lambda: solve(steps=37)),
    "many steps": (lambda: solve(), lambda: solve(steps=30_000)),
    "gradients": (lambda: solve(), lambda: solve(steps=None, gradients=50_000)),
    "tol": (lambda: solve(), lambda: solve(tol=0.05)),
    "output": (lambda: solve(), lambda: solve(output="random")),
    "x0": (lambda: solve(), lambda: solve(x0=np.full(n, 0.2))),
    "whole numbers as x0": (lambda: solve(), lambda: solve(x0=np.ones(n, int))),
    "values of the data": (
        lambda: solve(),
        lambda: solve(problem(data=(2 * A[:400] + 1, b[:400] - 1))),
    ),
    "rows within a bucket": (lambda: solve(), lambda: solve(problem(rows=slice(401)))),
    "rows up to the bucket's end": (lambda: solve(), lambda: solve(problem(rows=slice(416)))),
    "a fresh function": (
        lambda: solve(problem(equality=lambda x: x.sum() - 3.0)),
        lambda: solve(problem(equality=lambda x: x.sum() - 2.5)),
    ),
    "a fresh loss, with other numbers and arrays": (
        lambda: solve(problem(loss=shifted(0.5, np.ones(n)))),
        lambda: solve(problem(loss=shifted(0.0, np.arange(5.0)))),
    ),
    "a warm start": (lambda: solve(), lambda: solve(x0=solve())),
    "rho": (
        lambda: solve(**CONSTANT),
        lambda: solve(schedule=schedules.Constant(rho=50.0, mu=0.001, alpha=0.2)),
    ),
    "a whole number as rho": (
        lambda: solve(**CONSTANT),
        lambda: solve(schedule=schedules.Constant(rho=50, mu=0.001)),
    ),
    "theorem to corollary": (
        lambda: solve(schedule="theorem"),
        lambda: solve(schedule="corollary", steps=3000),
    ),
    "a method by name and as an object": (
        lambda: solve(),
        lambda: solve(method=mossp.MoSSP(momentum=mossp.Recursive())),
    ),
    "an interrupted run": (lambda: solve(), lambda: solve(callback=lambda progress: True)),
    "the caller's precision": (lambda: solve(), lambda: in_double(solve)),
    "ready losses and constraints made anew": (
        lambda: solve(problem(loss=losses.Huber(1.0), equality=constraints.Sphere(1.0))),
        lambda: solve(problem(loss=losses.Huber(2.0), equality=constraints.Sphere(2.0))),
    ),
    "values in a Partial": (
        lambda: solve(problem(equality=jax.tree_util.Partial(ball, np.array(1.0)))),
        lambda: solve(problem(equality=jax.tree_util.Partial(ball, np.array(2.0)))),
    ),
    "numbers of a regulariser and of a linear constraint": (
        lambda: solve(
            problem(
                regularizer=mossp.MCP(0.01, 3.0),
                equality=constraints.Linear(np.ones((2, n)), np.ones(2)),
            )
        ),
        lambda: solve(
            problem(
                regularizer=mossp.MCP(0.02, 5.0),
                equality=constraints.Linear(np.eye(2, n), np.zeros(2)),
            )
        ),
    ),
}


def shifted(weight, center):
    def loss(x, batch):
        return jnp.mean((batch[0] @ x - batch[1]) ** 2) + weight * jnp.sum((x - center) ** 2)

    return loss


def in_double(function):
    with jax.enable_x64(True):
        return function()


@pytest.mark.parametrize("name", CHANGES)
def test_second_solve_compiles_nothing(name):
    first, again = CHANGES[name]
    first()
    assert compiled_by(again) == 0


def test_something_is_counted():
    """The listener works: a function that no one has seen before compiles."""
    assert compiled_by(lambda: solve(problem(equality=lambda x: jnp.sinh(x.sum() / 9)))) > 0


@pytest.mark.parametrize("dtype", ["float32"])
def test_single_precision(dtype):
    solve(dtype=dtype)
    assert compiled_by(lambda: solve(problem(0.03), seed=3, steps=777, dtype=dtype)) == 0


def test_replicas():
    solve(replicas=2)
    assert compiled_by(lambda: solve(problem(0.03), replicas=2, seed=1)) == 0


def test_classification_folds():
    """Folds of 400 and 401 rows, one lam after another: one program."""
    fold = lambda rows, lam: mossp.Problem(  # noqa: E731
        loss=losses.logistic, data=(A[rows], LABELS[rows]), regularizer=mossp.L1MinusL2(lam)
    )
    solve(fold(slice(400), 0.01))
    for size, lam in ((401, 0.01), (400, 0.1), (410, 0.02)):
        assert compiled_by(lambda s=size, t=lam: solve(fold(slice(s), t))) == 0


def test_checkpoints_compile_nothing(tmp_path):
    def broken_run(file):
        solve(checkpoint=file, callback=lambda progress: progress.step > 500)
        solve(checkpoint=file)

    broken_run(tmp_path / "one.npz")  # the first one copies to the device, which counts
    assert compiled_by(lambda: broken_run(tmp_path / "two.npz")) == 0


def test_stationarity_and_restore():
    mossp.stationarity(problem(), np.ones(n))
    mossp.restore(problem(), np.ones(n))
    assert compiled_by(lambda: mossp.stationarity(problem(0.3), np.zeros(n))) == 0
    assert compiled_by(lambda: mossp.restore(problem(0.3), np.arange(5.0))) == 0


def test_a_result_of_jax_arrays_is_not_needed():
    assert isinstance(solve().x, np.ndarray) and not isinstance(solve().fun, jnp.ndarray)
