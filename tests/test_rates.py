"""Orders of Theorems 3.1 and 3.2 on a short range of K; benchmarks/rates.py has the long one."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp.schedules import Theorem

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "rates.py"


@pytest.fixture(scope="module")
def rates():
    spec = importlib.util.spec_from_file_location("rates", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("momentum", "order"), [(mossp.Polyak(), 0.4), (mossp.Recursive(), 0.5)], ids=["P", "R"]
)
def test_criticality_falls_at_the_theorems_order(rates, momentum, order):
    problem = mossp.Problem(
        loss=rates.loss,
        data=mossp.Sampler(rates.sample),
        regularizer=mossp.L1MinusL2(0.05),
        equality=mossp.constraints.Sphere(),
    )
    x0, Ks, seen = np.ones(10) / 10**0.5, (1024, 8192), []
    with jax.enable_x64(True):
        oracles = problem.oracles(x0)
        for K in Ks:
            made = Theorem().schedule(momentum, K, rates.CONSTANTS)
            schedule = jax.tree.map(jnp.asarray, made)
            method = mossp.MoSSP(momentum=momentum)
            means, longest = rates.averages(
                oracles, method, schedule, x0, jax.random.key(1), K, b0=16
            )
            assert longest <= rates.REGION  # where the constants hold
            seen.append(np.asarray(means))
    slopes = np.log(seen[1] / seen[0]) / np.log(Ks[1] / Ks[0])
    assert slopes[0] <= -order  # E||u||^2
    assert slopes[2] <= -0.15  # E||c||^2, which settles later
