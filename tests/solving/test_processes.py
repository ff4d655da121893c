"""Two processes, each with rows of its own: one answer, and an end when one of them is lost."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from tests.children import child

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="uses Gloo")]

WORKER = """
import sys, mossp
index, address, folder, steps = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
mossp.distributed(address, 2, index)
import numpy as np
from tests.solving.test_processes import START, problem_of
part = slice(0, 70) if index == 0 else slice(70, None)
problem = problem_of(lambda X, y: mossp.Sharded(X[part], y[part]))
long = {"method": "mossp-p", "polish": False, "trace": 400} if steps > 1000 else {}
says = lambda seen: print(seen.step, flush=True) if long else None
result = mossp.solve(problem, START, steps=steps, callback=says, **long)
np.savez(f"{folder}/{index}.npz", x=result.x, fun=result.fun, ok=result.success,
         u=result.certificate.criticality, F=result.trace.objective, t=result.trace.seconds)
"""
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 6))
y = np.sign(X[:, 0] - X[:, 1] + rng.normal(size=300))
START = np.full(6, 6**-0.5)


def problem_of(rows):
    mean_score = mossp.Expected(lambda x, batch: jnp.mean(batch[0] @ x) - 0.05)
    return mossp.Problem(
        mossp.losses.logistic, rows(X, y), mossp.L1(0.01),
        equality=mossp.constraints.Sphere(), inequality=mean_score,
    )  # fmt: skip


def started(folder, steps):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    return [child(WORKER, index, address, folder, steps) for index in (0, 1)]


def test_two_processes_have_one_answer(tmp_path):
    jobs = started(tmp_path, 200)
    ends = [job.communicate(timeout=200) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], ends[0][1][-1500:] + ends[1][1][-1500:]
    first, second = (np.load(tmp_path / f"{i}.npz") for i in (0, 1))
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    alone = mossp.solve(problem_of(lambda X, y: mossp.Sharded(X, y)), START, steps=200)
    assert first["ok"] and first["u"] < 1e-9
    np.testing.assert_allclose(first["x"], alone.x, atol=1e-9)


def test_a_killed_process_ends_the_other_with_a_sentence(tmp_path):
    jobs = started(tmp_path, 10**7)
    for job in jobs:
        while (line := job.stdout.readline()) and not line.strip().isdigit():
            pass  # until steps are taken
    began = time.monotonic()
    os.kill(jobs[1].pid, signal.SIGKILL)
    _, said = jobs[0].communicate(timeout=60)
    jobs[1].communicate(timeout=60)
    assert time.monotonic() - began < 60 and jobs[0].returncode != 0
    assert "another process of this run has ended" in said
