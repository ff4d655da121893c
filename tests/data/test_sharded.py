"""Rows that are divided between devices: the sums are those of all rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp._base import crew
from mossp._base.keys import Purpose, generator
from mossp.data import Finite
from tests.problems import START, A, b, squared_rows

pytestmark = pytest.mark.usefixtures("x64")
rng = np.random.default_rng(3)
N, n = 301, 5
X, y = rng.normal(size=(N, n)), np.sign(rng.normal(size=N))


def test_draws_are_those_of_rows_in_memory():
    rows, memory = mossp.Sharded(X, y), Finite.of((X, y), N, np.float64)
    drawn = rows.draw(generator(0, Purpose.STEPS), 6, 4)
    places = memory.draw(generator(0, Purpose.STEPS), 6, 4)
    for mine, other in zip(rows.batches(drawn, 4), memory.batches(places, 4), strict=True):
        np.testing.assert_array_equal(mine, other)
    for mine, other in zip(rows.some_rows(50), memory.some_rows(50), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_solve_is_that_in_memory():
    make = lambda data: mossp.Problem(squared_rows, data, mossp.L1(0.01))  # noqa: E731
    memory, divided = (
        mossp.solve(make(data), START, steps=400) for data in ((A, b), mossp.Sharded(A, b))
    )
    assert divided.success and "divided between 1 device" in divided.message
    np.testing.assert_allclose(divided.x, memory.x, atol=1e-9)


def test_what_cannot_be_divided_is_said():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    no_rows = mossp.Problem(lambda x: jnp.sum(x**2))
    with pytest.raises(ValueError, match="has none that can be divided"):
        mossp.solve(no_rows, np.ones(2), mesh=mesh)
    with pytest.raises(TypeError, match=r"must be a jax\.sharding\.Mesh"):
        mossp.solve(no_rows, np.ones(2), mesh=3)
    with pytest.raises(TypeError, match="this process's rows"):
        mossp.Sharded()
    with pytest.raises(ValueError, match="NaN"):
        mossp.Sharded(X, np.full(N, np.nan))
    with pytest.raises(ValueError, match=r"labels -1 and \+1"):
        mossp.Problem(mossp.losses.logistic, mossp.Sharded(X, y + 1))


def test_one_process_alone_agrees_with_itself():
    assert mossp.distributed() == (0, 1)
    with pytest.raises(ValueError, match="count and index"):
        mossp.distributed("127.0.0.1:1")
    with crew.at_work(crew.mesh_of()):
        assert crew.of_first(2.5) == 2.5 and crew.of_any(True) and not crew.of_any(False)
        assert crew.is_first() and crew.all_same(1.0)


FOUR = """
import json, sys, jax, jax.numpy as jnp, numpy as np, scipy.sparse, mossp
from mossp._base import crew
from mossp.data import reading
reading.BLOCK_BYTES = 1
folder = sys.argv[1]
data = np.load(folder + "/data.npz")
X, y, S = data["X"], data["y"], scipy.sparse.csr_matrix(data["S"])
np.save(folder + "/X.npy", X), np.save(folder + "/y.npy", y)
out = {"devices": len(jax.devices())}
cubed = lambda r: jnp.mean((r[0] @ jnp.arange(1.0, X.shape[1] + 1)) ** 3 * (2 + r[1]))
with jax.enable_x64(True):
    disk = mossp.OnDisk((folder + "/X.npy", folder + "/y.npy"))
    kinds = {"dense": (X, y), "sparse": (S, y), "disk": (disk,)}
    for name, given in kinds.items():
        rows = mossp.Sharded(*given)
        def slopes_of(s):
            slope = jax.grad(lambda w, r: jnp.mean((r[0] @ w) ** 2))
            return jax.vmap(lambda w: s.mean(lambda r: slope(w, r)))(jnp.eye(X.shape[1]))
        def run(function, source):
            program = jax.jit(crew.run_by_all(function, rows.mesh))
            return crew.taken(program(crew.placed(source, rows.mesh)))
        source = rows.compiled(None)
        value, slopes = run(lambda s: (s.mean(cubed), slopes_of(s)), source)
        thin = run(lambda s: s.mean(cubed), source.thinned(10**6))
        out[name] = [float(value), np.asarray(slopes).tolist(), float(thin)]
problem = mossp.Problem(mossp.losses.squared, (X, y), mossp.L1(0.01))
mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
out["x"] = mossp.solve(problem, np.zeros(X.shape[1]), mesh=mesh, steps=100).x.tolist()
out["alone"] = mossp.solve(problem, np.zeros(X.shape[1]), steps=100).x.tolist()
print(json.dumps(out))
"""


def test_four_devices_sum_up_what_one_does(tmp_path):
    S = np.where(np.abs(X) > 1, X, 0)
    S[-1] = 1.0  # a long row: further segments
    np.savez(tmp_path / "data.npz", X=X, y=y, S=S)
    flags = "--xla_force_host_platform_device_count=4"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FOUR, str(tmp_path)], check=False,
        env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    out = json.loads(ran.stdout.splitlines()[-1])
    assert out["devices"] == 4
    for name, matrix in (("dense", X), ("sparse", S), ("disk", X)):
        mean = np.mean((matrix @ np.arange(1.0, n + 1)) ** 3 * (2 + y))
        value, slopes, thin = out[name]
        np.testing.assert_allclose([value, thin], mean, rtol=1e-12)
        np.testing.assert_allclose(slopes, 2 * matrix.T @ matrix / N, atol=1e-13)
    np.testing.assert_allclose(out["x"], out["alone"], atol=1e-9)


def test_sparse_rows_come_back():
    matrix = scipy.sparse.csr_matrix(np.where(np.abs(X) > 1.2, X, 0))
    back = Finite.of((matrix, y), N, np.float64).as_given()
    assert (back[0] != matrix).nnz == 0
    np.testing.assert_array_equal(back[1], y)
