"""What arguments may be, and how the others are refused."""

from __future__ import annotations

import decimal
import fractions

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp._base import validation
from mossp._base.printing import shown

HUGE = 10**400
NO_NUMBERS = {
    "text": "0.1",
    "None": None,
    "True": True,
    "np.True_": np.True_,
    "complex": 1 + 2j,
    "Decimal": decimal.Decimal("0.5"),
    "huge": HUGE,
    "range": range(3),
    "list": [1.0],
    "dict": {"a": 1.0},
    "a duration": np.timedelta64(3, "s"),
    "a key": jax.random.key(0),
    "a shape": jax.ShapeDtypeStruct((), np.float32),
    "objects": np.array([1.0, None]),
    "masked": np.ma.masked_array([1.0, 2.0], [True, False]),
    "a regulariser": mossp.L1(0.1),
}


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_what_is_no_real_number_is_said_when_the_object_is_made(name):
    given = NO_NUMBERS[name]
    makers = {
        "lam": mossp.L1,
        "theta": lambda v: mossp.CappedL1(1.0, v),
        "radius": lambda v: mossp.Ball(mossp.L1(1.0), v),
        "alpha": mossp.Polyak,
        "mu": lambda v: mossp.schedules.Constant(1.0, v),
        "beta": lambda v: mossp.MoSSP(beta=v),
        "delta": mossp.losses.Huber,
        "limit": lambda v: mossp.constraints.Budget([1.0], v),
    }
    for parameter, make in makers.items():
        if given is None and parameter == "alpha":
            continue  # left to the schedule
        with pytest.raises(ValueError, match=f"needs .*{parameter} = "):
            make(given)


@pytest.mark.parametrize(
    "given", [1, 1.0, np.float32(1), np.int8(1), np.array(1.0), fractions.Fraction(1), jnp.ones(())]
)
def test_real_numbers_of_any_type_are_taken(given):
    assert float(mossp.L1(given).lam) == 1.0 and float(mossp.losses.Huber(given).delta) == 1.0
    assert float(mossp.Ball(mossp.L1(1.0), given).radius) == 1.0
    assert validation.is_number(given)


@pytest.mark.parametrize("array", [np.ones(3), jnp.ones(1), np.zeros((0, 3))])
def test_an_array_in_place_of_a_number_is_said_at_once(array):
    for make in (mossp.L1, mossp.MCP, lambda v: mossp.Ball(mossp.L1(1.0), v)):
        with pytest.raises(ValueError, match=r"an array of shape .* in place of one number"):
            make(array)


def test_traced_numbers_pass():
    lams = jnp.array([0.5, -1.0])
    assert jax.vmap(lambda lam: mossp.MCP(lam).lam)(lams).tolist() == lams.tolist()
    assert jax.jit(lambda r: mossp.Ball(mossp.L1(r), r).radius)(2.0) == 2.0


def test_lists_are_taken_where_one_number_a_coordinate_is():
    box = mossp.Box(mossp.L1(0.0), [0, -1], (1.0, np.inf))
    assert box.prox_h(np.array([2.0, 9.0]), 1.0).tolist() == [1.0, 9.0]
    for lower, upper in (([0.0, "a"], 1.0), (np.nan, 1.0), ([0.0], np.array([1.0, np.nan]))):
        with pytest.raises(ValueError, match="Box needs numbers for"):
            mossp.Box(mossp.L1(0.0), lower, upper)
    with pytest.raises(ValueError, match="lower <= upper"):
        mossp.Box(mossp.L1(0.0), [0.0, 0.0], [1.0, 1.0, 1.0])


@pytest.mark.parametrize("given", [3.0, None, "l1", mossp.L1, np.ones(2), {"a": mossp.L1(1.0)}])
def test_wrappers_say_what_they_go_around(given):
    for make in (
        mossp.Nonnegative,
        lambda reg: mossp.Box(reg, 0, 1),
        lambda reg: mossp.Ball(reg, 1.0),
        lambda reg: mossp.Weighted(reg, [1.0]),
        lambda reg: mossp.Group(reg, [0, 0]),
    ):
        with pytest.raises(TypeError, match=r"goes around a regulariser such as mossp\.L1"):
            make(given)


@pytest.mark.parametrize("blocks", [None, np.ones(2), [], {1: mossp.L1(1.0)}, mossp.L1(1.0)])
def test_blocks_need_a_dict_of_paths(blocks):
    with pytest.raises(TypeError, match="Blocks needs a dict of paths"):
        mossp.Blocks(blocks)


def test_whole_numbers_and_positive_ones():
    assert validation.whole("steps", 3.0, 1) == 3 and validation.whole("steps", np.int8(3), 1) == 3
    assert validation.positive("tol", fractions.Fraction(1, 2)) == 0.5
    for given in (HUGE, 1e308, 10**5000):
        with pytest.raises(ValueError, match="steps must be at most"):
            validation.whole("steps", given, 1)
    with pytest.raises(ValueError, match="at least 1"):
        validation.whole("steps", -HUGE, 1)
    with pytest.raises(ValueError, match="positive and finite"):
        validation.positive("seconds", HUGE)
    for given in (0.5, np.nan, np.inf, True, None, "3", np.ones(1)):
        with pytest.raises(TypeError, match="steps must be a whole number"):
            validation.whole("steps", given, 1)


def test_what_was_given_is_shown_on_one_short_line():
    class Unprintable:
        def __repr__(self):
            raise RuntimeError

    for given in ("a" * 5000, np.ones((9, 9)), print, (n for n in ()), 10**5000, "\x1b[31m\0"):
        text = shown(given)
        assert len(text) < 100 and text.isprintable() and " at 0x" not in text
    assert shown(Unprintable()) == "<Unprintable>"
    with pytest.raises(ValueError) as error:
        mossp.L1("a" * 5000)
    assert len(str(error.value)) < 200


def test_whole_numbers_that_are_counted():
    assert mossp.TruncatedL1(1.0, fractions.Fraction(2)).k == 2
    for k in (HUGE, 10**30, 1e308, fractions.Fraction(1, 2), np.array([1, 2]), "1", True):
        with pytest.raises(ValueError, match="TruncatedL1 needs a whole number k >= 0"):
            mossp.TruncatedL1(1.0, k)


def test_sources_that_are_none():
    for given in (np.array(1.0), jax.random.key(0), 3):
        with pytest.raises(TypeError, match="Stream needs an iterable of batches"):
            mossp.Stream(given)
    problem = mossp.Problem(mossp.losses.squared, mossp.Sampler(mossp.L1(0.1)))
    with pytest.raises(ValueError, match="The sampler cannot be evaluated"):
        problem.oracles(np.zeros(3))


# What a solve is asked ------------------------------------------------------------------------

X, Y = np.eye(4, 3), np.arange(4.0)


def solve(problem=None, x0=None, **settings):
    problem = problem or mossp.Problem(mossp.losses.squared, (X, Y), mossp.L1(0.1))
    return mossp.solve(problem, np.zeros(3) if x0 is None else x0, method="mossp-r", **settings)


ASKED = {
    "dtype": ({"dtype": "float"}, None),
    "dtype text": ({"dtype": "text"}, "dtype must be 'float64' or 'float32', but 'text'"),
    "dtype array": ({"dtype": np.ones(2)}, "dtype must be 'float64' or 'float32'"),
    "output": ({"output": np.ones(2)}, "output must be 'last'"),
    "resume": ({"resume": np.ones(2)}, "resume must be True"),
    "polish": ({"polish": np.ones(2)}, "polish must be True"),
    "progress": ({"progress": np.ones(2)}, "progress must be True"),
    "checkpoint": ({"checkpoint": "a" * 5000}, "checkpoint must be the name of a file, but .*…"),
    "checkpoint NUL": ({"checkpoint": "a\0"}, "checkpoint must be the name of a file"),
    "checkpoint 3": ({"checkpoint": 3}, "checkpoint must be the name of a file, but 3"),
    "tol": ({"tol": HUGE}, "tol must be positive and finite"),
    "method": ({"x0": {"w": np.zeros(3)}}, "'Array' and 'dict'"),
    "masked x0": ({"x0": np.ma.masked_array(np.zeros(3), [1, 0, 0])}, "x0 must be an array"),
}


@pytest.mark.parametrize("case", ASKED)
def test_what_a_solve_is_asked_is_refused_in_a_sentence(case):
    settings, words = ASKED[case]
    if words is None:
        assert solve(steps=2, **settings).x.dtype == np.float64
        return
    with pytest.raises((ValueError, TypeError), match=words) as error:
        solve(steps=2, **settings)
    assert len(str(error.value)) < 400


def test_masked_rows_are_missing_and_refused():
    rows = np.ma.masked_array(X, X == 1)
    with pytest.raises(ValueError, match="data has masked entries"):
        mossp.Problem(mossp.losses.squared, (rows, Y))
    assert mossp.Problem(mossp.losses.squared, (np.ma.masked_array(X), Y)).samples == 4


RETURNED = {
    "a key": jax.random.key(0),
    "text": "text",
    "dates": np.zeros(3, "datetime64[s]"),
    "records": np.zeros(3, [("a", float)]),
    "a class": dict,
    "huge": HUGE,
    "complex": 1j,
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", RETURNED)
def test_what_a_function_may_not_return_is_said(name):
    value = RETURNED[name]
    for parts, what in (
        ({"loss": lambda x: value}, "The loss"),
        ({"loss": lambda x: x @ x, "equality": lambda x: value}, "The equality constraint"),
    ):
        with pytest.raises((ValueError, TypeError), match=what) as error:
            mossp.Problem(**parts).oracles(np.zeros(3))
        assert "Tracer" not in str(error.value) and "attribute" not in str(error.value)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("returned, words", [(None, "NoneType"), ((1.0, 2.0), "tuple")])
def test_a_loss_returns_one_number(returned, words):
    with pytest.raises(ValueError, match=f"one real number, .* but it returns {words}"):
        mossp.Problem(lambda x: returned).oracles(np.zeros(3))


@pytest.mark.parametrize("function", [mossp.stationarity, mossp.restore])
def test_points_are_checked_everywhere(function):
    problem = mossp.Problem(lambda x: x @ x, equality=lambda x: x @ x - 1.0)
    for x in ("text", [None, "a"], np.array(["a"]), jax.random.key(0), 1 + 2j, HUGE):
        with pytest.raises(TypeError, match="x must be an array of real numbers"):
            function(problem, x)
    for x in ((), {}, None, np.zeros(0)):
        with pytest.raises(ValueError, match="x is empty"):
            function(problem, x)
    with pytest.raises(ValueError, match="'dict'") as error:
        function(problem, {"a": np.ones(2)})
    assert "Tracer" not in str(error.value)
    with pytest.raises(TypeError, match=rf"{function.__name__} needs a mossp\.Problem"):
        function(3, np.ones(2))
