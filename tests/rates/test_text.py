"""Bounds of rates as text and as objects: what is read, what is printed, what is refused."""

import copy
import pickle
import random

import numpy as np
import pytest

from mossp import rates
from mossp.rates import RateError, parse

F, M = {"sex": "F"}, {"sex": "M"}

SAME = {
    "fpr <= 0.05": lambda: rates.fpr() <= 0.05,
    "0.05 >= fpr": lambda: rates.fpr() <= 0.05,
    "tpr[sex=F] >= 80 %": lambda: rates.tpr(F) >= 0.8,
    "|selection[sex=F] - selection[sex=M]| <= 0.02": lambda: (
        abs(rates.selection(sex="F") - rates.selection(sex="M")) <= 0.02
    ),
    "abs(selection[sex=F]-selection[sex=M])<=2%": lambda: (
        abs(rates.selection(F) - rates.selection(M)) <= 0.02
    ),
    "recall >= 0.6": lambda: rates.tpr() >= 0.6,
    "specificity[sex=F] >= 0.6": lambda: rates.tnr(F) >= 0.6,
    "precision >= 0.9": lambda: rates.precision() >= 0.9,
    "mean loss[sex=F] <= 0.4": lambda: rates.mean_loss(sex="F") <= 0.4,
    "tpr == 0.5": lambda: rates.tpr() == 0.5,
    "tnr[class=virginica, sex=F] >= .9": lambda: rates.tnr(F, class_="virginica") >= 0.9,
    "accuracy['marital status'=\"it's\"] >= 1e-1": lambda: (
        rates.accuracy({"marital status": "it's"}) >= 0.1
    ),
    "2 * tpr - fnr / 4 + 0.1 >= 0.5": lambda: 2 * rates.tpr() - rates.fnr() / 4 + 0.1 >= 0.5,
    "-(fpr - 1) >= 0.5": lambda: 1 - rates.fpr() >= 0.5,
    "tpr[sex=F] >= tpr[sex=M] - 0.1": lambda: rates.tpr(F) >= rates.tpr(M) - 0.1,
    "|tpr - 0.5| + 2 * |fpr - 0.1| <= 0.2": lambda: (
        abs(rates.tpr() - 0.5) + 2 * abs(rates.fpr() - 0.1) <= 0.2
    ),
    "selection[age=30] <= 0.5": lambda: rates.selection(age=np.int64(30)) <= 0.5,
}


@pytest.mark.parametrize("text", SAME)
def test_text_and_object_are_one_bound(text):
    read, made = parse(text), SAME[text]()
    assert read == made and hash(read) == hash(made)
    assert read.text == text
    assert made.text == str(made) == str(read)


@pytest.mark.parametrize("text", [*SAME, "0.2 <= selection <= 0.4", "0.4 >= selection >= 0.2"])
def test_printed_bounds_are_read_as_themselves(text):
    bound = parse(text)
    assert parse(str(bound)) == bound
    assert pickle.loads(pickle.dumps(bound)) == bound == copy.deepcopy(bound)


def test_a_chain_has_two_ends():
    bound = parse("0.4 >= selection >= 0.2")
    assert (bound.lower, bound.upper) == (0.2, 0.4)
    assert bound == parse("0.2 <= selection <= 0.4") != parse("0.2 <= selection <= 0.5")


def test_a_value_alone_is_of_a_class():
    (term, _), = parse("tpr[virginica, sex=F] >= 0.9").rate.terms  # fmt: skip
    assert [tuple(c) for c in term.conditions] == [(None, "virginica"), ("sex", "F")]


WRONG = {
    "frp <= 0.05": ("There is no rate `frp`: did you mean `fpr`?", 0),
    "recal >= 0.8": ("did you mean `tpr`?", 0),
    "0.1 + zzzz <= 1": ("there are selection, tpr, fpr", 6),
    "mean <= 0.1": ("did you mean `mean loss`?", 0),
    "fpr <= 5": ("`fpr` lies between 0 and 1, but its bound is 5: for 5 % write 0.05.", 0),
    "tpr >= -0.5": ("lies between 0 and 1, but its bound is -0.5.", 0),
    "tpr - fpr <= 2": ("lies between -1 and 1", 0),
    "mean loss <= -1": ("lies at least 0, but its bound is -1.", 0),
    "|tpr - fpr| <= 1.5": ("lies between 0 and 1", 0),
    "fpr < 0.1": ("`<` is strict", 4),
    "fpr > 0.1": ("`>` is strict", 4),
    "fpr ≤ 0.1": ("written <=", 4),
    "fpr => 0.1": ("written >=", 4),
    "fpr != 0.1": ("is no constraint", 4),
    "fpr": ("There is no relation", 3),
    "fpr <=": ("Something is missing here.", 6),
    "": ("Something is missing here.", 0),
    "tpr[sex=] >= 0.1": ("A column or a value is missing here.", 8),
    "tpr[sex=F,] >= 0.1": ("A column or a value is missing here.", 10),
    "tpr[sex=F": ("This bracket is never closed.", 3),
    "tpr[sex='F] >= 0.1": ("This quote is never closed.", 8),
    "tpr[sex=''] >= 0.1": ("There is nothing between these quotes.", 8),
    r"tpr[sex='\xZ'] >= 0.1": ("an escape that is none", 8),
    "tpr[job=never worked] >= 0.1": ("needs quotes", 14),
    "tpr[a=1, a=2] >= 0.1": ("`a` stands here twice.", 9),
    "tpr * fpr <= 0.1": ("Only multiples", 4),
    "tpr / fpr <= 1": ("bound a difference, as in tpr[sex=F] - 0.8", 4),
    "tpr / 0 <= 1": ("must be a number other than 0", 4),
    "precision - fpr >= 0.1": ("it is a ratio and can only be bounded alone", 0),
    "2 * precision >= 0.1": ("can only be bounded alone", 0),
    "|precision - 0.5| <= 0.1": ("can only be bounded alone", 0),
    "|tpr - fpr| >= 0.1": ("asks for an absolute value to be large", 0),
    "|tpr - fpr| = 0.1": ("asks for an absolute value to be large", 0),
    "||tpr| - fpr| <= 0.1": ("inside another one", 0),
    "(tpr <= 0.1": ("This is never closed.", 0),
    "|tpr <= 0.1": ("This is never closed.", 0),
    "tpr) <= 0.1": ("`)` is not read here.", 3),
    "tpr 0.5": ("`0.5` is not read here.", 4),
    "5tpr <= 1": ("is not read here.", 0),
    "0.1 <= tpr >= 0.2": ("A chain is number <= rate <= number", 11),
    "tpr = fpr = 0.1": ("A chain is number <= rate <= number", 10),
    "tpr <= 0.2 <= fpr": ("The ends of a chain must be numbers", 4),
    "0.4 <= tpr <= 0.2": ("cannot be at least 0.4 and at most 0.2", 0),
    "0.1 <= 0.2": ("constrains nothing", 0),
    "tpr - tpr <= 0.1": ("constrains nothing", 0),
    "1e999 <= tpr": ("too large", 0),
    "1e300 * 1e300 * tpr <= 1": ("not a finite number", 6),
    "tpr <=\t0.1": ("U+0009 is invisible", 6),
    "(" * 30 + "tpr" + ")" * 30 + " <= 1": ("more than 20 brackets", 20),
    "tpr + " * 100 + "tpr <= 1": ("608 characters", 500),
    " + ".join(f"|tpr - 0.{k}|" for k in range(1, 6)) + " <= 1": ("5 absolute values", 0),
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_text_is_one_sentence_with_a_caret(text):
    sentence, place = WRONG[text]
    with pytest.raises(RateError) as caught:
        parse(text)
    error = caught.value
    assert sentence in error.reason
    assert error.position == place
    assert error.reason.rstrip("?").endswith(".") or error.reason.endswith("?")
    assert str(error).splitlines()[-1].index("^") == place
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_wrong_objects():
    with pytest.raises(TypeError, match="For a <= rate <= b give two bounds"):
        assert 0.2 <= rates.selection() <= 0.4
    with pytest.raises(TypeError, match="strict"):
        _ = rates.fpr() < 0.1
    with pytest.raises(TypeError, match="strict"):
        _ = rates.fpr() > 0.1
    with pytest.raises(TypeError, match="no constraint"):
        _ = rates.fpr() != 0.1
    with pytest.raises(TypeError, match="product of rates"):
        rates.fpr() * rates.tpr()
    with pytest.raises(TypeError, match="ratio of rates"):
        rates.fpr() / rates.tpr()
    with pytest.raises(TypeError, match="number or another rate"):
        _ = rates.fpr() <= "0.1"
    with pytest.raises(TypeError, match="unsupported operand"):
        rates.fpr() + "0.1"
    with pytest.raises(TypeError, match="mapping such as"):
        rates.fpr("F")
    with pytest.raises(TypeError, match="name of a column must be text"):
        rates.fpr({1: "F"})
    with pytest.raises(ValueError, match="finite number"):
        _ = rates.mean_loss() <= float("nan")
    with pytest.raises(TypeError, match=r"'fpr <= 0\.05' or an object"):
        parse(3)


def test_any_text_is_a_bound_or_one_error():
    """Fuzzing: random strings of tokens and of characters either are read or raise RateError."""
    rng = random.Random(0)
    tokens = [
        "tpr", "fpr", "precision", "mean loss", "abs", "[", "]", "(", ")", "|", "<=", ">=", "=",
        "+", "-", "*", "/", "%", "0.1", "1", "1e9", "sex", "F", ",", "'", '"', " ", "  ", "é", "\\",
        "\u4f53", "<", "\n", "\x00", "1.2.3", "sex=F", "[sex=F]", "[virginica]",
    ]  # fmt: skip
    read = 0
    for _ in range(4000):
        text = "".join(rng.choice(tokens) for _ in range(rng.randrange(1, 12)))
        read += attempted(text)
    for text in SAME:  # and texts that are nearly right
        for _ in range(200):
            at = rng.randrange(len(text) + 1)
            cut = rng.randrange(0, 3)
            read += attempted(text[:at] + rng.choice(tokens) + text[at + cut :])
    assert read > 100  # otherwise nothing was tried


def attempted(text: str) -> bool:
    try:
        bound = parse(text)
    except RateError as error:
        assert 0 <= error.position <= len(text)
        assert "\n" not in error.reason
        assert str(error).count("\n") == 2
        return False
    assert parse(str(bound)) == bound
    return True
