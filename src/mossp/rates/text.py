"""Bounds of rates as text: "tpr[sex=F] >= 0.8", "|selection[sex=F] - selection[sex=M]| <= 0.02".

    bound       side (<= | >= | =) side, or number <= side <= number
    side        part (+ | -) part ...
    part        factor (* | /) factor ...
    factor      0.05, 5 %, - factor, (side), |side|, abs(side), rate
    rate        name, or name[condition, ...]
    condition   column=value, class=value, or a value alone: a class, or of `sensitive`

Names and values of letters, digits and . + - _ stand as they are, others in quotes.
"""

from __future__ import annotations

import ast
import math
import re
from typing import NamedTuple, NoReturn

from mossp._base import naming
from mossp._base.carets import LONGEST, TextError
from mossp._base.printing import short, shown
from mossp.rates.algebra import NAMES, Bound, Condition, Elementary, Rate, related

MAX_DEPTH = 20  # of brackets
TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
          |(?P<word>[^\W\d]\w*)
          |(?P<sign><=|>=|==|=<|=>|!=|<>|[-+*/%()|\[\]=<>≤≥≠])
          |(?P<other>\S))""",
    re.VERBOSE,
)
QUOTED = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")
BARE = re.compile(r"[\w.+-]+")
RELATIONS = {"<=": "<=", ">=": ">=", "=": "=", "==": "="}
REFUSED = {
    "<": "`<` is strict, which no method can promise: use <=.",
    ">": "`>` is strict, which no method can promise: use >=.",
    **dict.fromkeys(("=<", "≤"), "This relation is written <=."),
    **dict.fromkeys(("=>", "≥"), "This relation is written >=."),
    **dict.fromkeys(("!=", "<>", "≠"), "`!=` is no constraint: use =, <= or >=."),
}
# Other names that are read.
SAME = {"recall": "tpr", "sensitivity": "tpr", "specificity": "tnr", "mean_loss": "mean loss"}
# Names of like things, for a hint.
SYNONYMS = {
    **dict.fromkeys(("recall", "sensitivity", "tp", "hit"), "tpr"),
    **dict.fromkeys(("fallout", "fp"), "fpr"),
    **dict.fromkeys(("specificity", "tn"), "tnr"),
    **dict.fromkeys(("miss", "fn"), "fnr"),
    **dict.fromkeys(("ppv",), "precision"),
    **dict.fromkeys(("positive", "pr", "ppr", "rate"), "selection"),
    **dict.fromkeys(("error", "acc"), "accuracy"),
    **dict.fromkeys(("loss", "mean", "mean_loss"), "mean loss"),
}


class RateError(TextError):
    """A text that is no bound of rates: what is wrong, the text, and a caret under the place.

    Examples
    --------
    >>> try:
    ...     parse("recal >= 0.8")
    ... except RateError as error:
    ...     print(error)
    There is no rate `recal`: did you mean `tpr`?
    recal >= 0.8
    ^
    """


def parse(text: str) -> Bound:
    """Read a bound of rates.

    Parameters
    ----------
    text : str
        As in "fpr <= 0.05", "tpr[sex=F] >= 0.8",
        `"|selection[sex=F] - selection[sex=M]| <= 0.02"`, "0.2 <= selection <= 0.4",
        "tpr[virginica] = 0.9" or "mean loss['marital status'=single] <= 0.4".

    Returns
    -------
    Bound

    Examples
    --------
    >>> bound = parse("tpr[class=virginica, sex=F] >= 90 %")
    >>> print(bound.rate, bound.lower)
    tpr[class=virginica, sex=F] 0.9
    """
    if not isinstance(text, str):
        raise TypeError(
            "A bound of rates is text such as 'fpr <= 0.05' or an object such as "
            f"mossp.rates.fpr() <= 0.05, but {shown(text)} was given."
        )
    return _Reader(text).bound()


class _Token(NamedTuple):
    kind: str  # "number", "word", "sign" or "end"
    text: str
    at: int


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.position, self.depth = text, 0, 0
        if len(text) > LONGEST:
            self.fail(
                f"This has {len(text)} characters, of {LONGEST} at most: write less.", LONGEST
            )
        for at, character in enumerate(text):
            if not character.isprintable():
                self.fail(f"U+{ord(character):04X} is invisible: write one line of text.", at)

    def fail(self, reason: str, at: int) -> NoReturn:
        raise RateError(reason, self.text, at) from None

    # Tokens -------------------------------------------------------------------------------------

    def peek(self) -> _Token:
        found = TOKEN.match(self.text, self.position)
        if found is None:  # spaces at most
            return _Token("end", "", len(self.text.rstrip()))
        kind = str(found.lastgroup)
        return _Token(kind, found[kind], found.start(kind))

    def take(self) -> _Token:
        found = TOKEN.match(self.text, self.position)
        token = self.peek()
        self.position = len(self.text) if found is None else found.end()
        return token

    def takes(self, *signs: str) -> _Token | None:
        """The next token if it is one of these signs."""
        token = self.peek()
        return self.take() if token.kind == "sign" and token.text in signs else None

    def close(self, sign: str, opened: int) -> None:
        if not self.takes(sign):
            token = self.peek()
            if token.kind == "end" or token.text in RELATIONS:
                self.fail("This is never closed.", opened)
            self.unexpected(token)

    def unexpected(self, token: _Token) -> NoReturn:
        if token.kind == "end":
            self.fail("Something is missing here.", token.at)
        if token.text in REFUSED:
            self.fail(REFUSED[token.text], token.at)
        self.fail(f"`{token.text}` is not read here.", token.at)

    # The grammar --------------------------------------------------------------------------------

    def bound(self) -> Bound:
        first = self.peek().at
        sides, signs = [self.side()], []
        while (sign := self.takes(*RELATIONS)) is not None:
            signs.append(sign)
            sides.append(self.side())
        if (token := self.peek()).kind != "end":
            self.unexpected(token)
        text = self.text.strip()
        relations = [RELATIONS[sign.text] for sign in signs]
        if not signs:
            self.fail("There is no relation: write <=, >= or =, as in fpr <= 0.05.", token.at)
        try:
            if len(signs) == 1:
                return related(sides[0], relations[0], sides[1], text)
            if len(signs) > 2 or relations[0] != relations[1] or relations[0] == "=":
                self.fail("A chain is number <= rate <= number: give two bounds.", signs[1].at)
            if not (sides[0].is_number and sides[2].is_number):
                self.fail("The ends of a chain must be numbers: give two bounds.", signs[0].at)
            ends = [sides[0].constant, sides[2].constant]
            lower, upper = ends if relations[0] == "<=" else ends[::-1]
            return Bound(sides[1], lower, upper, text)
        except RateError:
            raise
        except (TypeError, ValueError) as error:  # of what the bound says, not of how
            self.fail(str(error), first)

    def side(self) -> Rate:
        found = self.part()
        while (sign := self.takes("+", "-")) is not None:
            other = self.part()
            found = found + other if sign.text == "+" else found - other
        return found

    def part(self) -> Rate:
        found = self.factor()
        while (sign := self.takes("*", "/")) is not None:
            other = self.factor()
            if sign.text == "/" and not other.is_number:
                self.fail(
                    "A ratio of rates is no sum of them: bound a difference, as in "
                    "tpr[sex=F] - 0.8 * tpr[sex=M] >= 0.", sign.at,
                )  # fmt: skip
            if sign.text == "/" and other.constant == 0:
                self.fail("What a rate is divided by must be a number other than 0.", sign.at)
            if not (found.is_number or other.is_number):
                self.fail("Only multiples of a rate by a number can be bounded.", sign.at)
            if sign.text == "/":
                found = found * (1 / other.constant)
            else:
                found = other * found.constant if found.is_number else found * other.constant
            if not all(map(math.isfinite, [found.constant, *(f for _, f in found.terms)])):
                self.fail("This is not a finite number.", sign.at)
        return found

    def factor(self) -> Rate:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"There are more than {MAX_DEPTH} brackets or signs here.", self.position)
        found = self._factor()
        self.depth -= 1
        return found

    def _factor(self) -> Rate:
        token = self.take()
        match token:
            case _Token("number"):
                value = float(token.text) / (100 if self.takes("%") else 1)
                if not math.isfinite(value):
                    self.fail("This number is too large.", token.at)
                return Rate(constant=value)
            case _Token("sign", "-"):
                return -self.factor()
            case _Token("sign", "+"):
                return self.factor()
            case _Token("sign", "("):
                found = self.side()
                self.close(")", token.at)
                return found
            case _Token("sign", "|"):
                found = self.side()
                self.close("|", token.at)
                return self.absolute(found, token.at)
            case _Token("word", "abs") if self.peek().text == "(":
                self.take()
                found = self.side()
                self.close(")", token.at)
                return self.absolute(found, token.at)
            case _Token("word"):
                return Rate(((self.rate(token), 1.0),))
        self.unexpected(token)

    def absolute(self, inside: Rate, at: int) -> Rate:
        if inside.is_number:
            return Rate(constant=abs(inside.constant))
        if inside.absolutes:
            self.fail("An absolute value stands inside another one: write it flat.", at)
        return abs(inside)

    def rate(self, token: _Token) -> Elementary:
        name = token.text
        if name == "mean" and self.peek().text == "loss":
            self.take()
            name = "mean loss"
        name = SAME.get(name.lower(), name)
        if name not in NAMES:
            near = naming.closest(name.lower(), [*NAMES, *SYNONYMS])
            meant = near if near in NAMES else SYNONYMS.get(near or "")
            hint = f"did you mean `{meant}`?" if meant else f"there are {', '.join(NAMES)}."
            self.fail(f"There is no rate `{short(name)}`: {hint}", token.at)
        opened = self.takes("[")
        return Elementary(name, self.conditions(opened.at) if opened else ())

    def conditions(self, opened: int) -> tuple[Condition, ...]:
        found: list[Condition] = []
        while True:
            start = self.skipped()
            value, column = self.value(opened), None
            if self.following() == "=":
                self.position += 1
                column, value = value, self.value(opened)
            if column in [c.column for c in found if c.column is not None]:
                self.fail(f"`{short(column)}` stands here twice.", start)
            found.append(Condition(column, value))
            at, following = self.skipped(), self.following()
            self.position += 1
            if following == "]":
                return tuple(found)
            if following != ",":
                self.refuse(at, opened)

    def value(self, opened: int) -> str:
        """A column or a value: a plain word, or text in quotes."""
        at = self.skipped()
        if (found := QUOTED.match(self.text, at)) is not None:
            self.position = found.end()
            try:
                text = ast.literal_eval(found[0])
            except (SyntaxError, ValueError):
                self.fail("These quotes hold an escape that is none.", at)
            if not text:
                self.fail("There is nothing between these quotes.", at)
            return str(text)
        if (found := BARE.match(self.text, at)) is None:
            self.refuse(at, opened)
        self.position = found.end()
        return found[0]

    def refuse(self, at: int, opened: int) -> NoReturn:
        """What stands here can be no part of a condition."""
        if at >= len(self.text):
            self.fail("This bracket is never closed.", opened)
        if self.text[at] in "\"'":
            self.fail("This quote is never closed.", at)
        if self.text[at] in ",]=":
            self.fail("A column or a value is missing here.", at)
        self.fail(
            "Conditions are column=value with commas between them: a name or a value that is not "
            "one plain word needs quotes.",
            at,
        )

    def skipped(self) -> int:
        """Where the next character stands that is no space."""
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1
        return self.position

    def following(self) -> str:
        at = self.skipped()
        return self.text[at : at + 1]
