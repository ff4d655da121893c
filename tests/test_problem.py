"""The problem: what it refuses and in which words, and the oracles it gives to methods."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from tests.statements import X0, X, Y, quadratic, square

pytestmark = pytest.mark.usefixtures("x64")


def is_sentence(message):
    """A text of some words that ends as a sentence or quotes a reason after a colon."""
    return len(message.split()) >= 6 and (message.rstrip().endswith((".", ")")) or ": " in message)


def with_value(value, place=(1, 1)):
    bad = X.copy()
    bad[place] = value
    return bad


# Refused when the problem is stated -------------------------------------------------------

STATED = {
    "loss": ({"loss": 3}, TypeError, "loss must be a function"),
    "no-loss": ({"loss": None}, TypeError, "loss must be a function"),
    "equality": ({"equality": 1.0}, TypeError, "equality constraint must be a function of x"),
    "inequality": ({"inequality": "x"}, TypeError, "inequality constraint must be a function of x"),
    "number": ({"regularizer": 0.1}, TypeError, "regularizer must be"),
    "class": ({"regularizer": mossp.L1}, TypeError, "regularizer must be"),
    "lengths": ({"data": (X, Y[:3])}, ValueError, r"same number of rows.*\(4, 3\), \(3,\)"),
    "sparse-lengths": (
        {"data": (scipy.sparse.csr_matrix(X), Y[:3])},
        ValueError,
        "same number of rows",
    ),
    "nan": ({"data": (with_value(np.nan), Y)}, ValueError, r"1 NaN or infinite value in"),
    "inf": ({"data": (with_value(np.inf, 0), Y)}, ValueError, "3 NaN or infinite values"),
    "nan-labels": ({"data": (X, Y * np.nan)}, ValueError, "NaN"),
    "jax-nan": ({"data": (jnp.asarray(with_value(np.nan), jnp.float32), Y)}, ValueError, "NaN"),
    "objects": ({"data": (X.astype(object), Y)}, TypeError, "numeric.*object"),
    "strings": ({"data": (X, np.array(["a"] * 4))}, TypeError, "numeric"),
    "complex": ({"data": (X * 1j, Y)}, TypeError, "numeric.*complex"),
    "no-rows": ({"data": (X[:0], Y[:0])}, ValueError, "no rows"),
    "empty": ({"data": ()}, ValueError, "empty"),
    "scalar": ({"data": 3.0}, TypeError, "one row a sample"),
    "labels": (
        {"loss": mossp.losses.logistic, "data": (X, (Y + 1) / 2)},
        ValueError,
        r"labels -1 and \+1.*2\*y - 1",
    ),
    "classes": ({"loss": mossp.losses.softmax, "data": (X, Y)}, ValueError, "labels"),
}


@pytest.mark.parametrize("case", STATED)
def test_refused_when_stated(case):
    settings, kind, words = STATED[case]
    with pytest.raises(kind, match=words) as error:
        mossp.Problem(**{"loss": square, **settings})
    assert is_sentence(str(error.value))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_nan_in_any_sparse_format_is_refused(form):
    with pytest.raises(ValueError, match="1 NaN or infinite value"):
        mossp.Problem(square, (scipy.sparse.csr_matrix(with_value(np.nan)).asformat(form), Y))


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csc_matrix])
def test_large_numbers_are_finite_though_their_sum_is_not(form):
    problem = mossp.Problem(square, (form(np.full((len(Y), 3), 1e308)), Y))
    assert problem.samples == len(Y)


# Refused when x0 is known -----------------------------------------------------------------


def branches(x):
    return x @ x if x[0] > 0 else x[0]


def forgets_to_return(x):
    x @ x - 1.0


POSED = {
    "vector-loss": ({"loss": lambda x: x}, ValueError, r"one real number.*shape \(3,\)"),
    "one-entry-loss": ({"loss": lambda x: x[:1]}, ValueError, r"one real number.*shape \(1,\)"),
    "no-value": ({"loss": forgets_to_return}, ValueError, "one real number.*NoneType"),
    "two-values": ({"loss": lambda x: (x @ x, x)}, ValueError, "one real number.*tuple"),
    "whole-loss": ({"loss": lambda x: jnp.sum(x > 0)}, ValueError, "one real number.*int"),
    "bool-loss": ({"loss": lambda x: jnp.all(x > 0)}, ValueError, "one real number.*bool"),
    "complex-loss": ({"loss": lambda x: (x @ x) * 1j}, ValueError, "one real number.*complex"),
    "numpy-loss": ({"loss": lambda x: np.sum(np.sin(x))}, TypeError, "The loss.*jax.numpy"),
    "branching-loss": ({"loss": branches}, TypeError, "The loss cannot be traced.*`if`"),
    "float-loss": ({"loss": lambda x: float(x[0])}, TypeError, "The loss cannot be traced"),
    "no-batch": ({"data": (X, Y)}, ValueError, "The loss cannot be evaluated"),
    "columns": (
        {"loss": square, "data": (X[:, :2], Y)},
        ValueError,
        r"The loss cannot be evaluated at x0 of shape \(3,\) on a batch of shapes \(4, 2\), \(4,\)",
    ),
    "sparse-columns": (
        {"loss": square, "data": (scipy.sparse.csr_matrix(X[:, :2]), Y)},
        ValueError,
        "2 columns cannot multiply",
    ),
    "ready-loss": (
        {"loss": mossp.losses.squared, "data": (X[:, :2], Y)},
        ValueError,
        "The loss cannot be evaluated",
    ),
    "bool": ({"equality": lambda x: x @ x == 1.0}, TypeError, "equality.*bool.*not `x @ x =="),
    "whole": (
        {"inequality": lambda x: jnp.sum(x > 0)},
        TypeError,
        "inequality.*real numbers.*int",
    ),
    "nothing": ({"equality": forgets_to_return}, (TypeError, ValueError), "equality constraint"),
    "nothing-<=": ({"inequality": lambda x: {}}, (TypeError, ValueError), "inequality constr"),
    "numpy": ({"equality": lambda x: np.linalg.norm(x)}, TypeError, "equality.*jax.numpy"),
    "branching": ({"inequality": branches}, TypeError, "The inequality constraint cannot be tr"),
    "shapes": (
        {"equality": lambda x: x @ jnp.ones(4)},
        ValueError,
        "The equality constraint cannot be evaluated",
    ),
    "ready": (
        {"equality": mossp.constraints.Linear(np.ones((2, 4)), np.ones(2))},
        ValueError,
        "The equality constraint cannot be evaluated",
    ),
    "paths": ({"regularizer": mossp.Blocks({"w": mossp.L1(0.1)})}, ValueError, "'w'"),
    "weights": (
        {"regularizer": mossp.Weighted(mossp.L1(0.1), np.ones(5))},
        ValueError,
        "(?i)weight",
    ),
    "groups": (
        {"regularizer": mossp.Group(mossp.L1(0.1), [0, 0, 1, 1, 1])},
        ValueError,
        "(?i)group",
    ),
}


@pytest.mark.parametrize("case", POSED)
def test_refused_when_x0_is_known(case):
    settings, kind, words = POSED[case]
    problem = mossp.Problem(**{"loss": quadratic, **settings})
    with pytest.raises(kind) as error:
        problem.oracles(X0)
    assert re.search(words, str(error.value), re.DOTALL), str(error.value)
    assert is_sentence(str(error.value))


def test_a_refused_start_does_not_spoil_the_next():
    problem = mossp.Problem(square, (X, Y))
    with pytest.raises(ValueError):
        problem.oracles(np.ones(2))
    assert problem.oracles(X0).structure.size == 3


def test_none_is_the_zero_regulariser():
    assert isinstance(mossp.Problem(quadratic, regularizer=None).regularizer, mossp.Zero)
    assert mossp.Problem(square, (X, Y)).samples == 4
    assert mossp.Problem(quadratic).samples is None


def test_oracles_of_own_functions_are_made_once_and_follow_the_regulariser():
    rng = np.random.default_rng(0)
    data, weights = (rng.normal(size=(6, 3)), rng.normal(size=6)), np.ones(3)
    problem = mossp.Problem(mossp.losses.squared, data, mossp.Weighted(mossp.L1(0.5), weights))
    first = problem.oracles(X0)
    assert problem.oracles(X0 + 1) is first
    assert problem.oracles(X0, np.float32) is not first
    weights[0] = 3.0  # the caller's own array
    later = problem.oracles(X0)
    x = np.array([1.0, 0.0, 0.0])
    assert later is not first and later.loss is first.loss and later.source is first.source
    assert float(first.regularizer(x)) == 0.5 and float(later.regularizer(x)) == 1.5
    assert not first.same_functions(later) and later.same_functions(problem.oracles(X0))


def test_oracles_of_other_functions_are_traced_as_they_are_now():
    shift = [1.0]
    problem = mossp.Problem(lambda x: jnp.sum((x - shift[0]) ** 2), regularizer=mossp.L1(0.5))
    first = problem.oracles(X0)
    shift[0] = 2.0
    assert not first.same_functions(problem.oracles(X0))


def test_programs_belong_to_a_structure():
    problem = mossp.Problem(square, (X, Y))
    assert problem.oracles(X0).programs is problem.oracles(X0 + 1).programs
    assert problem.oracles(X0).programs is not problem.oracles(X0, np.float32).programs
