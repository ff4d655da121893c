"""Constraints as text: values, derivatives, carets, one compilation, and texts that mean harm."""

import functools
import pickle
import re
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mossp import expressions
from mossp._base.units import Units
from mossp.expressions import Expression, ExpressionError, parse

RNG = np.random.default_rng(0)
NAMES = ["age", "bmi", "mean radius", "sum", "µ", "class", "max", "x"]
N, C = len(NAMES), 3
X = RNG.uniform(0.2, 1.5, size=N)  # positive, for log and sqrt
M = RNG.uniform(0.2, 1.5, size=(N, C))
B = 0.7  # the intercept of a vector x
i = np.array([0.4, -0.3, 0.2])  # intercepts, one for each class

VECTOR = {
    "sum(x**2) = 1": lambda x: np.sum(x**2) - 1,
    "norm(x[0:3]) <= 0.5": lambda x: np.linalg.norm(x[:3]) - 0.5,
    "age + 2*bmi >= 0": lambda x: -(x[0] + 2 * x[1]),
    'x["mean radius"] <= 1': lambda x: x[2] - 1,
    "x['age', 'sum'] <= x[0:2]": lambda x: x[[0, 3]] - x[:2],
    "dot(x, x) == 1": lambda x: x @ x - 1,
    "intercept*age <= 2": lambda x: B * x[0] - 2,
    "2 >= x": lambda x: x - 2,
    "-x**2 = -2": lambda x: -(x**2) + 2,
    "2*-x = 1": lambda x: -2 * x - 1,
    "(-x)**3 = +1": lambda x: -(x**3) - 1,
    "x - 1 - 2 = 8/4/2*x": lambda x: x - 3 - x,
    "1 - x*2 + x/4 <= 2**-1": lambda x: 1 - 2 * x + x / 4 - 0.5,
    "x**-1.5 + x**0.5 = 0": lambda x: x**-1.5 + x**0.5,
    "x**20 = x**0": lambda x: x**20 - 1,
    "x[-1] + x[::2] = x[::-2]": lambda x: x[-1] + x[::2] - x[::-2],
    "mean(exp(x) + log(x)) <= 1e-3": lambda x: np.mean(np.exp(x) + np.log(x)) - 1e-3,
    "sqrt(x)*sin(x)/cos(x) = tanh(x)": lambda x: np.sqrt(x) * np.tan(x) - np.tanh(x),
    "sin(pi/6)*x = sqrt(2)": lambda x: 0.5 * x - np.sqrt(2),
    "µ + max = x['class'] - x['sum']": lambda x: x[4] + x[6] - x[5] + x[3],
    "x['x'] - -x[7] = 0": lambda x: 2 * x[7],
    "norm(x - mean(x))**2 <= norm(3)": lambda x: np.sum((x - x.mean()) ** 2) - 3,
    "sum(x[1]) = dot(age, 2)": lambda x: x[1] - 2 * x[0],
}
MATRIX = {
    "x[0] = age": lambda x: 0 * x[0],
    "x[-1, 2] <= x['bmi', 0]": lambda x: x[-1, 2] - x[1, 0],
    "x[:, 1] >= 1": lambda x: 1 - x[:, 1],
    "x[0:3, 1] = x[2:5, -1]": lambda x: x[:3, 1] - x[2:5, 2],
    "x['age', 'bmi'] <= x[0]": lambda x: x[:2] - x[0],
    "x[1:3, ::2] = 1": lambda x: x[1:3, ::2] - 1,
    "dot(x, x) + sum(x) + mean(x) = norm(x)": (
        lambda x: np.sum(x * x) + x.sum() + x.mean() - np.sqrt(np.sum(x * x))
    ),
    "x + intercept <= intercept[1]": lambda x: x + i - i[1],
}
CASES: list[Any] = [(t, f, X, B, None) for t, f in VECTOR.items()]
CASES += [(t, f, M, i, C) for t, f in MATRIX.items()]


@pytest.mark.parametrize(("text", "f", "x", "b", "classes"), CASES, ids=[c[0] for c in CASES])
def test_value_gradient_and_precision(text, f, x, b, classes):
    (e,) = parse(text, NAMES, classes=classes)
    assert e.relation == ("<=" if re.search("[<>]=", text) else "=")
    assert e.text == text.replace("==", "=")
    single = jax.jit(e)(np.float32(x), np.float32(b))
    np.testing.assert_allclose(single, f(x), rtol=1e-3, atol=1e-3)
    weights = RNG.normal(size=np.shape(f(x)))

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def gradient_and_value(x):
        value = e(x, b)
        return jnp.sum(weights * value), value

    with jax.enable_x64(True):
        assert jax.eval_shape(e, np.float32(x), np.float32(b)).dtype == single.dtype == np.float32
        gradient, value = gradient_and_value(x)
        assert value.dtype == np.float64 and value.shape == np.shape(f(x))
        np.testing.assert_allclose(value, f(x), rtol=1e-12, atol=1e-12)
    direction, step = RNG.normal(size=x.shape), 1e-6
    slope = np.sum(weights * (f(x + step * direction) - f(x - step * direction))) / (2 * step)
    along = np.sum(np.asarray(gradient) * direction)
    np.testing.assert_allclose(along, slope, rtol=1e-6, atol=1e-6)


def test_chains():
    low, high = parse(" 0<= x <=  age ", NAMES)
    assert (low.text, high.text) == ("0 <= x", "x <= age")
    np.testing.assert_allclose(low(X), -X, rtol=1e-6)
    np.testing.assert_allclose(high(X), X - X[0], rtol=1e-6)
    assert [e.text for e in parse("1 >= age >= bmi >= 0", NAMES)][1:] == ["age >= bmi", "bmi >= 0"]
    assert [e.relation for e in parse("age = bmi == 1", NAMES)] == ["=", "="]


def test_a_wanted_relation():
    assert parse("x - 1", 2, relation="<=")[0].text == "x - 1 <= 0"
    assert parse("x - 1", 2, relation="=") == parse("x - 1 = 0", 2)
    assert parse("x >= 1", 2, relation="<=") == parse("x >= 1", 2)
    for text, relation, message in [
        ("x <= 1", "=", "`x <= 1` is an inequality: give it as inequality."),
        ("x = 1", "<=", "`x = 1` is an equality: give it as equality."),
        ("x", None, "There is no relation: write =, <= or >=, as in `x <= 1`."),
    ]:
        with pytest.raises(ExpressionError, match=re.escape(message)):
            parse(text, 2, relation)


def test_norm_has_derivatives_at_zero():
    zero = np.zeros(3, np.float32)
    for text in ("norm(x) = 1", "norm(x)**2 = norm(x[0:1])"):
        (e,) = parse(text, 3)
        assert np.all(np.asarray(jax.jit(jax.grad(e))(zero)) == 0)
        hessian = jax.jit(jax.hessian(e))
        for tiny in (0.0, 1e-25, 1e-22, 3e-20, 1e-18):
            assert np.isfinite(hessian(zero + np.float32(tiny))).all()
    assert np.isnan(parse("norm(x) = 1", 2)[0](np.array([np.nan, 0.0])))


def test_equal_texts_share_one_program():
    first, second = (parse("sum(x**2)  <= 1", NAMES)[0] for _ in range(2))
    assert first is not second and first == second and hash(first) == hash(second)
    assert first != parse("sum(x**2) <= 2", NAMES)[0] and not jax.tree.leaves(first)
    for jit in (jax.jit, eqx.filter_jit):
        traces: list[Expression] = []

        @jit
        def value(e, x, traces=traces):
            traces.append(e)
            return e(x)

        np.testing.assert_allclose(value(first, X), value(second, X))
        assert len(traces) == 1
    many = jax.vmap(first)(jnp.asarray(M.T))
    np.testing.assert_allclose(many, np.sum(M**2, axis=0) - 1, rtol=1e-5)
    assert pickle.loads(pickle.dumps(first)) == first


def test_what_is_called_must_fit():
    (e,) = parse("intercept <= x[4]", 5)
    with pytest.raises(ValueError, match="speaks of intercept, but no intercept was given"):
        e(jnp.ones(5))
    with pytest.raises(ValueError, match=r"x of shape \(5,\), but x has shape \(4,\)"):
        e(jnp.ones(4), 1.0)  # JAX would take the last entry
    assert float(e(np.arange(5), 1)) == -3.0  # whole numbers become real
    wrong: list[Any] = [(3, 2), ("x = 1", "ab"), ("x", 0), ("x", 2, ">="), ("x = 1", 2, None, 0)]
    for arguments in wrong:
        with pytest.raises((TypeError, ValueError), match=r"^[^\n]*\.$") as caught:
            parse(*arguments)
        assert not isinstance(caught.value, ExpressionError)


# text, where the caret stands, part of the sentence; columns are NAMES
CARETS = [
    ("x < 1", 2, "use <="), ("1 > x", 2, "use >="), ("x != 1", 2, "no constraint"),
    ("x ≤ 1", 2, "written <="), ("x => 1", 2, "written >="), ("x := 1", 2, "write ="),
    ("(x <= 1)", 3, "inside of brackets"), ("x = 1 # one", 6, "comments"),
    ("age = bmi <= 1", 10, "do not mix"), ("0 <= x >= 1", 7, "do not mix"),
    ("", 0, "missing"), ("= 1", 0, "missing"), ("x <= ", 5, "missing"), ("x = = 1", 4, "missing"),
    ("x + <= 1", 3, "missing"), ("1 = µ*", 6, "missing"), ("1 = 1", 0, "constrains nothing"),
    ("x >= 0 >= sum(1)", 5, "constrains nothing"), ("x = mean radia", 9, 'x["its name"]'),
    ("µ + µ µ = 1", 6, "product"), ("µ = 2x", 4, "product"), ("class = 1", 0, 'x["its name"]'),
    ("1 = 'µ' + y", 4, "x['µ']"), ("µ + y = 1", 4, "no column `y`"), ("x=µ-y", 4, "no column `y`"),
    ("agee = 1", 0, "`age`"), ("1 = mean_radius", 4, "`x['mean radius']`"),
    ("x['bim'] = 1", 2, "`bmi`"), ("x['age', 'b\\d'] = 1", 9, "no column"),
    ("sum = 1", 0, "x['sum']"), ("exp = 1", 0, "is a function"), ("summ(x) = 1", 0, "`sum`"),
    ("1 + age(2) = 1", 4, "no function"), ("sum(x, x) = 1", 0, "here is 2"),
    ("1 + max(x) = 2", 4, "not smooth"), ("sum(abs(x)) = 1", 4, "regulariser"),
    ("x.sum() = 1", 1, "sum(x)"), ("(x) .T = 1", 4, "dot"), ("age, bmi = 1", 3, "comma"),
    ("x and x = 1", 2, "two constraints"), ("x is 1", 2, "not read"), ("1(2) = x", 0, "not read"),
    ("x^2 = 1", 1, "write **"), ("x = (µ) @ x", 8, "dot(a, b)"), ("x % 2 = 1", 2, "not read"),
    ("x**2**3 = 1", 4, "exponent"), ("2**x = 1", 3, "exponent"), ("x**-21 = 1", 3, "-20 and 20"),
    ("x*1e999 = 1", 2, "too large"), ("x*1" + "0" * 400 + " = 1", 2, "too large"),
    ("x*2j = 1", 2, "real numbers"), ("True*x = 1", 0, "real numbers"),
    ("x + 1/0 = 1", 5, "finite"), ("x = (-1)**0.5", 8, "finite"), ("x = log(0)", 4, "finite"),
    ("x[8] = 1", 2, "8 columns, 0 to 7"), ("µ = x[-9]", 6, "8 columns"), ("x[0:9] = 1", 4, "9 is"),
    ("x[5:2] = 1", 2, "none of the 8"), ("x[::0] = 1", 2, "none"), ("x[1.0] = 1", 2, "whole"),
    ("x[age] = 1", 2, "whole"), ("x[0, 1] = 1", 0, "shape (8,)"), ("x[()] = 1", 0, "0 indices"),
    ("x[0][0] = 1", 0, "one pair"), ("pi[0] = x", 0, "Only x"), ("intercept[0] = 1", 0, "shape ()"),
    ("µ*(x[0:3]) + (x[0:2]) = 1", 11, "(3,) and (2,)"), ("x <= x[0:3]", 2, "(8,) and (3,)"),
    ("µ + dot(x, age) = 1", 4, "same shape"), ("x = 1)", 5, "never opened"),
    ("µ + (x = 1", 7, "inside"), ("x = (1 + (2)", 4, "never closed"), ("x['age = 1", 2, "quote"),
    ("x\t= 1", 1, "U+0009"), ("x = 1\n", 5, "U+000A"), ("x \u200b= 1", 2, "U+200B"),
    ("(" * 21 + "x", 20, "20 brackets"), ("x" * 501, 500, "501 characters"),
    ("-" * 60 + "x = 1", 50, "too deep"), ("x = " + "+1" * 60, 22, "too deep"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "position", "part"), CARETS)
def test_carets(text, position, part):
    with pytest.raises(ExpressionError) as caught:
        parse(text, NAMES)
    error = caught.value
    assert part in error.reason and error.reason[-1] in ".?:" and "\n" not in error.reason
    assert (error.text, error.position) == (text, position)
    assert error.__cause__ is None and len(str(error).splitlines()) == 3
    reason, shown, caret = str(error).split("\n")
    assert reason == error.reason and len(shown) == min(len(text), 501)
    assert caret == " " * position + "^"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.position, again.text) == (str(error), position, text)


def test_other_columns():
    columns: Any
    for columns, text, part in [
        (4, "age = 1", "but x[0] to x[3]: names come with a data frame"),
        (["a", "a"], "a = 1", "2 columns are called 'a'"),
        (["a\nb"], "ab = 1", "x['a\\nb']"),
        (["身長", "b"], "身長*c = 1", "no column `c`"),
    ]:
        with pytest.raises(ExpressionError, match=re.escape(part)) as caught:
            parse(text, columns)
        assert len(str(caught.value).splitlines()) == 3
    assert str(caught.value).endswith("\n\u3000\u3000 ^")  # spaces as wide as the characters
    with pytest.raises(ExpressionError, match="there are 3 classes, 0 to 2"):
        parse("x[0, 3] = 1", NAMES, classes=3)
    columns = np.int64(3)  # as counted by NumPy
    assert parse("x[0] + x[2] = 1", columns)[0](np.ones(3)) == 1


HARMFUL = [
    "__import__('os').system('ls')", "x.__class__", "().__class__", "9**9**9**9", "x**1e9",
    "(" * 1000, "x" * 10**6, "((" * 10 + "x" + "))" * 10 + "()", "ｘ", "ｓｕｍ(x)", "х", "x\0",
    "x[10**9]", "x[True]", "x[1.0]", 'f"{x}"', "[i for i in x]", "(x := 1)", 'exec("")',
    "x if x else x", "-" * 1000 + "x", "-" * 490 + "x", '"a"*10**9', "x" + "[0]" * 150, "\ud800",
    "x[0](1)", "lambda: x", "sum(*x)", "sum(**x)", "x[...]", "x[None]", "x['age':'bmi']", "{x: x}",
    "await x", "(yield x)", "x[[0, 1]]", "x[0, *x]", "sum.__globals__", "x['\\N{foo}']", "b'a'",
    "x[-True]", "x[--1]", "x[0:1:10**9]", "not x", "~x", "x // 1", "x << 1", "\\", "x;x", "`x`",
    "open('/etc/passwd')", "getattr(x, 'T')", "sum(i for i in x)", "x[9" + "9" * 400 + "]", "e*x",
    "1e308*10*x", "finfo(x)", "save(x, x)", "jnp.save(x)", "_value(x)", "negative(x)", "nan*x",
    "+".join(["(x+1+1+1)"] * 40), "x if", "1" * 490 + "*x", "x**(2*1)", "x**2**2", "sum(x)(x)",
]  # fmt: skip


@pytest.mark.parametrize("text", HARMFUL, ids=range(len(HARMFUL)))
def test_harmful_texts_are_refused(text):
    for whole in (text + " = 1", "1 = " + text):
        with pytest.raises(ExpressionError) as caught:
            parse(whole, NAMES)
        assert 0 <= caught.value.position <= len(whole) and len(str(caught.value)) < 1500


TOKENS = [
    "x", "age", "µ", "intercept", "sum(", "dot(", "norm(", "exp(", "x[", "x[0:3]", "x[1]", "'age'",
    *"()[]{},:.+-*/01=<'\"\\ ", "**", "2.5", "-1", "<=", ">=", "==", "f'", " if ", " is ",
]  # fmt: skip


def calls_of(act):
    """What it returns, and how many functions it calls: its time, on whatever machine."""
    count, before = 0, sys.getprofile()

    def listen(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(listen)
    try:
        return act(), count
    finally:
        sys.setprofile(before)


def parsed(text, classes):
    try:
        return parse(text, NAMES, classes=classes)
    except ExpressionError as error:
        assert 0 <= error.position <= len(text) and len(str(error).splitlines()) == 3
        return []


def check(text, classes=None):
    found, calls = calls_of(lambda: parsed(text, classes))
    assert calls < 2000  # the most that these texts have taken is 600
    shape = (N,) if classes is None else (N, classes)
    for e in found:
        assert isinstance(e, Expression) and isinstance(hash(e.tree), int)
        jax.eval_shape(e, np.ones(shape), np.ones(shape[1:]))


@settings(derandomize=True, deadline=None, max_examples=600, database=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=12).map("".join), st.sampled_from([None, 3]))
def test_any_tokens(text, classes):
    check(text, classes)
    check(f"x[0] = {text}", classes)


@settings(derandomize=True, deadline=None, max_examples=300, database=None)
@given(st.text(max_size=40))
@example("x = '''a] <= '''")
def test_any_text(text):
    check(text)
    check(f"x['{text}'] <= {text}")


def test_public_names_exist():
    assert all(hasattr(expressions, name) for name in expressions.__all__)


def test_a_name_that_needs_quotes_is_read_without_them_where_nothing_else_is_meant():
    names = ["age", "plan=basic", "plan=pro", "age-group", "support calls", "a", "b", "a-b"]
    for text, meant in {
        "plan=basic >= 0.5": 'x["plan=basic"] >= 0.5',
        "plan=basic = 0": 'x["plan=basic"] = 0',
        "age <= plan=pro": 'age <= x["plan=pro"]',
        "1 <= age-group": '1 <= x["age-group"]',
        "2 * support calls <= plan=basic": '2 * x["support calls"] <= x["plan=basic"]',
    }.items():
        assert parse(text, names)[0].text == meant
    assert parse("a-b <= 1", names)[0].text == "a-b <= 1"  # a difference, as it always was
    for text, part in {
        "plan <= 1": 'x["plan=basic"], x["plan=pro"]',
        "plan=basics <= 1": "do not mix",
        "support calls": "no relation",
    }.items():
        with pytest.raises(ExpressionError, match=re.escape(part)):
            parse(text, names)


@pytest.mark.parametrize("classes", [None, 3])
def test_units_of_the_data(classes):
    """The constraint on raw coefficients, written out by hand."""
    rng = np.random.default_rng(0)
    centre, scale = rng.normal(size=2), rng.uniform(1, 9, 2)
    shape = (2,) if classes is None else (2, classes)
    x, b = rng.normal(size=shape), rng.normal(size=shape[1:])
    raw = x / (scale if classes is None else scale[:, None])
    (c,) = parse("age + intercept <= 3*bmi", ["age", "bmi"], "<=", classes, Units(centre, scale))
    expected = raw[0] + b - centre @ raw - 3 * raw[1]
    np.testing.assert_allclose(c(x, b), expected, rtol=1e-5)
