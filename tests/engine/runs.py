"""The run that checkpoints and saved results are of, and when two runs are the same."""

from __future__ import annotations

import dataclasses

import numpy as np

import mossp
from mossp import losses
from tests.problems import BATCH, START, A, b, plane

K = 1000


def problem(**changes):
    given = {"loss": losses.squared, "data": (A, b), "equality": plane}
    return mossp.Problem(**{**given, "regularizer": mossp.L1(0.01), **changes})


def solve(p=None, x0=START, **settings):
    given = {"method": "mossp-r", "steps": K, "batch_size": BATCH, "seed": 0}
    return mossp.solve(p or problem(), x0, **{**given, **settings})


def stop_at(step):
    return lambda progress: progress.step >= step


def same_run(a, c):
    """Bit for bit."""
    assert a.steps == c.steps and a.gradients == c.gradients
    assert np.array_equal(a.xs, c.xs) and np.array_equal(a.funs, c.funs)
    assert np.array_equal(a.violations, c.violations)
    assert_same(a.expectation, c.expectation)
    for name in ("steps", "gradients", "objective", "violation", "proximity"):
        assert np.array_equal(getattr(a.trace, name), getattr(c.trace, name)), name
    assert a.certificate.criticality == c.certificate.criticality
    assert a.status is c.status


LONG = 3_000_000


def assert_same(a, c):
    assert type(a) is type(c), (type(a), type(c))
    if dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            assert_same(getattr(a, field.name), getattr(c, field.name))
    elif isinstance(a, dict):
        assert set(a) == set(c)
        for key in a:
            assert_same(a[key], c[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(c)
        for left, right in zip(a, c, strict=True):
            assert_same(left, right)
    elif isinstance(a, np.ndarray):
        assert a.dtype == c.dtype and a.shape == c.shape
        assert np.array_equal(a, c, equal_nan=a.dtype.kind == "f")
    elif isinstance(a, float):
        assert a == c or (np.isnan(a) and np.isnan(c))
    else:
        assert a == c
