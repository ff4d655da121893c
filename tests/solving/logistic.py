"""Logistic regression on the sphere, which most tests of method="auto" solve."""

from __future__ import annotations

import functools

import numpy as np

import mossp
from mossp import losses
from tests.problems import sphere

N, n, LAM = 600, 10, 0.03
rng = np.random.default_rng(3)
X = rng.normal(size=(N, n))
TRUTH = np.array([1.5, -1.0, 0.8, 0, 0, 0, 0.4, 0, 0, 0])
Y = np.where(X @ TRUTH + 0.5 * rng.normal(size=N) > 0, 1.0, -1.0)
X0 = np.full(n, 0.3)


def logistic(reg, rows=N, **constraints):
    return mossp.Problem(losses.logistic, (X[:rows], Y[:rows]), reg, **constraints)


def on_sphere():
    return logistic(mossp.L1MinusL2(LAM), equality=sphere)


@functools.cache
def unbroken(**settings):
    """The run that others are compared with."""
    return mossp.solve(on_sphere(), X0, **settings)


def is_sentence(message):
    return message[0].isupper() and message.endswith(".") and " " in message


def same(a, b):
    """Bit for bit, but for the time it took."""
    assert np.array_equal(a.xs, b.xs) and np.array_equal(a.x, b.x)
    assert np.array_equal(a.funs, b.funs) and np.array_equal(a.violations, b.violations)
    assert a.steps == b.steps and a.status is b.status and a.message == b.message
    assert a.certificate.worst == b.certificate.worst
    assert np.array_equal(a.trace.objective, b.trace.objective, equal_nan=True)


def stop_after(looks):
    count = iter(range(looks))
    return lambda progress: next(count, None) is None
