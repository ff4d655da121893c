"""What `solve` refuses, before anything is compiled."""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats

import mossp
import mossp.engine.loop
from mossp import losses, schedules
from tests.compilations import compilations
from tests.problems import (
    START,
    TRUTH,
    A,
    b,
    squared_rows,
)
from tests.solving.regression import bowl, regression, solve

# A shape of their own, so that no earlier test has compiled for it. A Problem copies its data to
# the device, which counts as a compilation the first time: `on_the_device` does that beforehand.
_seven = np.random.default_rng(7)
X7, y7, x7 = _seven.normal(size=(33, 7)), _seven.normal(size=33), np.zeros(7)


def with_numpy(x, batch):
    return np.mean(np.asarray(batch[0] @ x))


def not_a_scalar(x, batch):
    return batch[0] @ x


def equal(x):
    return x @ x == 1.0


def branches(x):
    return x.sum() if x[0] > 0 else x.sum() - 1.0


def seven(problem=None, x0=x7, **settings):
    problem = problem or mossp.Problem(loss=squared_rows, data=(X7, y7))
    return mossp.solve(problem, x0, **settings)


def stated(**changes):
    return mossp.Problem(**{"loss": squared_rows, "data": (X7, y7), **changes})


def penalised(regularizer):
    return seven(stated(regularizer=regularizer))


def on_the_device():
    """Copies the data there, for which JAX compiles small programs the first time.

    So it does for the first oracles of a process, whatever their shape.
    """
    with jax.enable_x64(True):
        mossp.Problem(squared_rows, (A, b)).oracles(START)
    stated()
    stated(data=(scipy.sparse.csr_matrix(X7), y7))


BAD = {
    "not a problem": lambda: mossp.solve(squared_rows, x7),
    "loss is no function": lambda: stated(loss=3.0),
    "constraint is no function": lambda: stated(equality=np.zeros(7)),
    "regulariser is a number": lambda: stated(regularizer=0.1),
    "NaN in data": lambda: stated(data=(np.where(X7 > 2, np.nan, X7), y7)),
    "NaN in sparse data": lambda: stated(data=(scipy.sparse.csr_matrix(X7 * np.nan), y7)),
    "text in data": lambda: stated(data=(X7, y7.astype(str))),
    "lengths differ": lambda: stated(data=(X7, y7[:-1])),
    "no rows": lambda: stated(data=(X7[:0], y7[:0])),
    "labels 0 and 1": lambda: stated(loss=losses.logistic, data=(X7, (y7 > 0).astype(float))),
    "negative lam": lambda: stated(regularizer=mossp.L1(-1.0)),
    "NaN at x0": lambda: seven(x0=np.full(7, np.nan)),
    "infinite x0": lambda: seven(x0=np.full(7, np.inf)),
    "empty x0": lambda: seven(x0=np.zeros(0)),
    "text as x0": lambda: seven(x0="zeros"),
    "complex x0": lambda: seven(x0=np.zeros(7, complex)),
    "x0 of another size": lambda: seven(x0=np.zeros(8)),
    "x0 of another size, ready loss": lambda: seven(stated(loss=losses.squared), np.zeros(8)),
    "x0 of another size, sparse": lambda: seven(
        stated(data=(scipy.sparse.csr_matrix(X7), y7)), np.zeros(8)
    ),
    "weights of another size": lambda: penalised(mossp.Weighted(mossp.L1(1.0), np.ones(8))),
    "groups of another size": lambda: penalised(mossp.Group(mossp.L1(1.0), [0, 0, 1])),
    "bounds of another size": lambda: penalised(
        mossp.Box(mossp.L1(1.0), np.zeros(8), np.ones(8))
    ),
    "block that x has not": lambda: penalised(mossp.Blocks({"w": mossp.L1(1.0)})),
    "loss is not a scalar": lambda: seven(stated(loss=not_a_scalar)),
    "loss with NumPy": lambda: seven(stated(loss=with_numpy)),
    "loss takes no batch": lambda: seven(stated(loss=bowl)),
    "loss needs a batch": lambda: seven(mossp.Problem(loss=squared_rows)),
    "constraint is a comparison": lambda: seven(stated(equality=equal)),
    "constraint branches": lambda: seven(stated(inequality=branches)),
    "unknown method": lambda: seven(method="mosp"),
    "method is a class": lambda: seven(method=mossp.MoSSP),
    "method is a list": lambda: seven(method=["mossp-r"]),
    "unknown schedule": lambda: seven(schedule="best"),
    "unknown output": lambda: seven(output="first"),
    "unknown dtype": lambda: seven(dtype="float16"),
    "dtype is nonsense": lambda: seven(dtype="quick"),
    "steps = 0": lambda: seven(steps=0),
    "steps = 1.5": lambda: seven(steps=1.5),
    "steps = True": lambda: seven(steps=True),
    "steps infinite": lambda: seven(steps=float("inf")),
    "steps NaN": lambda: seven(steps=float("nan")),
    "steps is text": lambda: seven(steps="many"),
    "gradients = 0": lambda: seven(gradients=0),
    "too few gradients": lambda: seven(gradients=5),
    "seconds = 0": lambda: seven(seconds=0),
    "seconds NaN": lambda: seven(steps=100, seconds=float("nan")),
    "seconds with auto": lambda: seven(seconds=1.0, method="mossp-r"),
    "batch_size = 0": lambda: seven(batch_size=0),
    "batch_size = 2.5": lambda: seven(batch_size=2.5),
    "replicas = 0": lambda: seven(replicas=0),
    "seed = -1": lambda: seven(seed=-1),
    "seed too large": lambda: seven(seed=2**64),
    "seed is None": lambda: seven(seed=None),
    "tol = 0": lambda: seven(tol=0.0),
    "tol < 0": lambda: seven(tol=-1e-3),
    "tol NaN": lambda: seven(tol=float("nan")),
    "tol is text": lambda: seven(tol="small"),
    "callback is no function": lambda: seven(callback=3),
    "resume is nonsense": lambda: seven(resume="maybe"),
    "checkpoint is a folder": lambda: seven(checkpoint="/tmp"),
    "checkpoint in no folder": lambda: seven(checkpoint="/nowhere/at/all.npz"),
    "checkpoint is a number": lambda: seven(checkpoint=3.5),
    "beta = 0": lambda: mossp.MoSSP(beta=0.0),
    "alpha = 2": lambda: mossp.Polyak(2.0),
    "alpha = 0": lambda: mossp.Recursive(0.0),
    "mu = 0": lambda: schedules.Constant(rho=1.0, mu=0.0),
    "Sampler of no function": lambda: mossp.Sampler(3),
    "Stream of no iterable": lambda: mossp.Stream(3),
    "Stream without a batch": lambda: seven(stated(data=mossp.Stream([]))),
    "SVRG on a stream": lambda: seven(
        stated(data=mossp.Stream([(X7, y7)])), method=mossp.MoSSP(momentum=mossp.SVRG())
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_before_any_compilation(name):
    on_the_device()
    compilations.clear()
    with pytest.raises((ValueError, TypeError)) as caught:
        BAD[name]()
    said = str(caught.value)
    assert len(said) > 20 and " " in said and "Traced" not in said, said
    assert not compilations


def test_a_sum_is_not_a_mean():
    def total(x, batch):
        return 0.5 * jnp.sum((batch[0] @ x - batch[1]) ** 2)

    with pytest.raises(ValueError, match=r"jnp\.mean"):
        solve(regression(loss=total))


@jax.custom_jvp
def bent(x):
    return bowl(x)


@bent.defjvp
def _bent(primals, tangents):
    (x,), (v,) = primals, tangents
    return bent(x), (x - jnp.array(TRUTH.tolist())).at[3].multiply(2.0) @ v  # wrong in entry 3


def test_a_wrong_gradient_is_found():
    with pytest.raises(ValueError, match="3"):
        mossp.check_gradients(mossp.Problem(loss=bent), START)


def test_the_modules_that_tests_patch_exist():
    door = importlib.import_module("mossp.solving.run")
    assert door.CHECKPOINT_SECONDS > 0 and mossp.engine.loop.FIRST_CHUNK > 0
