"""Shapes in signatures are true: solves with every call of the typed modules verified."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("beartype")

SOLVES = """
import jax, jax.numpy as jnp, numpy as np
import conftest  # installs the hook
import mossp
from mossp import losses
from mossp._base.power import leading
from mossp.regularizers.prox import soft_threshold

rng = np.random.default_rng(0)
A = rng.normal(size=(60, 4))
b = A @ np.array([1.0, 0.0, 0.0, 2.0])
sphere = lambda x: x @ x - 1.0
bounds = lambda x: jnp.stack([x @ x - 1.0, x.sum() - 50.0, x[0] - 0.2])
start = np.full(4, 0.3)

def sample(key, size):
    rows = jax.random.normal(key, (size, 4))
    return rows, rows @ jnp.arange(4.0)

for data in ((A, b), mossp.Sampler(sample)):
    for given in ({"equality": sphere}, {"inequality": bounds}, {}):
        problem = mossp.Problem(losses.squared, data, mossp.L1MinusL2(0.05), **given)
        mossp.solve(problem, start, method="auto" if not given else "mossp-r", steps=20, tol=1e-2)
problem = mossp.Problem(losses.squared, (A, b), mossp.MCP(0.1), inequality=bounds)
mossp.stationarity(problem, start)
mossp.restore(problem, start)
mossp.check_gradients(problem, start)

try:
    soft_threshold(np.ones((2, 2)), 1.0)
except Exception as error:
    print(type(error).__name__)
"""


def test_shapes_are_those_of_the_signatures():
    root = Path(__file__).parents[1]
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"MOSSP_TYPECHECK": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-W", "ignore", "-c", SOLVES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["TypeCheckError"]
