"""Constraints on coefficients, written as text: `sum(x**2) = 1`, `0 <= x <= 1`, `age >= 2*bmi`.

A text is data and never runs as Python. It is cut at its relations, each side is read by
`ast.parse`, and only what is listed here becomes a tree of tuples, which jax.numpy evaluates:

    x, intercept, pi        all coefficients, the intercept, the number
    age, x["mean radius"]   the coefficient of a column, by its name
    x["age", "bmi"]         those of several columns
    x[3], x[-1], x[0:3]     by number; x[3, 1] and x[:, 1] where x has a column for each class
    + - * / **              a power needs a number as its exponent
    sum, mean, norm, dot    over all entries
    exp, log, sqrt, sin, cos, tanh

A relation of arrays holds entry by entry; shapes meet by the rules of NumPy.
"""

from __future__ import annotations

import ast
import keyword
import math
import numbers
import re
import sys
import warnings
from collections.abc import Sequence
from typing import NamedTuple, NoReturn, TypeGuard, cast

import equinox as eqx
import numpy as np

from mossp._base import naming
from mossp._base.carets import LONGEST, TextError
from mossp._base.formulas import (
    FUNCTIONS,
    REDUCTIONS,
    Key,
    Shape,
    Tree,
    apply,
    entries,
    real_array,
    value,
)
from mossp._base.module import Module
from mossp._base.printing import quoted, short
from mossp._base.types import ArrayLike, ConstraintValues
from mossp._base.units import Units

__all__ = ["Expression", "ExpressionError", "Units", "parse"]


MAX_CHARACTERS = LONGEST
MAX_BRACKETS = 20  # one inside the other
MAX_DEPTH = 50
MAX_NODES = 200
MAX_EXPONENT = 20
MAX_CANDIDATES = 5000  # names among which a similar one is sought: each takes its microseconds

SYMBOLS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
RESERVED = ("x", "intercept", "pi", *FUNCTIONS)
NOT_SMOOTH = {"abs", "ceil", "clip", "floor", "l1", "max", "maximum", "median", "min", "minimum"}
NOT_SMOOTH |= {"relu", "round", "sign"}

# Quoted text, a quote without its partner, brackets, and relations, whether they are read or not.
TOKEN = re.compile(
    r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|["']|[][(){}]|:=|[<>=!]=|=[<>]|<>|[<>=≤≥≠#]"""
)
QUOTED = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")
REFUSED_TOKENS = {
    "<": "`<` is strict, which no method can promise: use <=.",
    ">": "`>` is strict, which no method can promise: use >=.",
    ":=": "`:=` is not read: write = for an equation.",
    "#": "`#` is not read: leave comments out.",
    **dict.fromkeys(("=<", "≤"), "This relation is written <=."),
    **dict.fromkeys(("=>", "≥"), "This relation is written >=."),
    **dict.fromkeys(("!=", "<>", "≠"), "`!=` is no constraint: use =, <= or >=."),
    **dict.fromkeys("\"'", "This quote is never closed."),
}
REFUSED_NODES: dict[type[ast.AST], str] = {
    ast.BitXor: "`^` is not a power here: write **.",
    ast.MatMult: "`@` is not read: write dot(a, b).",
    ast.BoolOp: "`and` and `or` are not read: give two constraints.",
    ast.Attribute: "A dot after a name is not read: write sum(x), not x.sum().",
    ast.Tuple: "A comma is read only in x[...] and dot(a, b): give two constraints.",
    ast.Subscript: "Only x and intercept take an index, and only one pair of brackets: x[0, 1].",
}
OTHER = "This is not read here: use numbers, x, names of columns, + - * / ** and functions."


class ExpressionError(TextError):
    """A text that is no constraint: what is wrong, the text, and a caret under the place.

    Examples
    --------
    >>> try:
    ...     parse("age + bim <= 1", ["age", "bmi"])
    ... except ExpressionError as error:
    ...     print(error)
    There is no column `bim`: did you mean `bmi`?
    age + bim <= 1
          ^
    """


class Expression(Module):
    """One relation: left - right, or right - left for >=, to be = 0 or <= 0 in every entry.

    All but the units is static: two equal expressions share one compiled program.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> (circle,) = parse("sum(x**2) = 1", columns=2)
    >>> circle.text, circle.relation, float(circle(jnp.array([3.0, 4.0])))
    ('sum(x**2) = 1', '=', 24.0)
    """

    text: str = eqx.field(static=True)
    relation: str = eqx.field(static=True)
    tree: Tree = eqx.field(static=True)
    units: Units | None = None

    def __call__(self, x: ArrayLike, intercept: ArrayLike | None = None) -> ConstraintValues:
        coef, b = real_array(x), real_array(intercept)
        if self.units is not None and coef is not None:
            coef, b = self.units.of(coef, b)
        return value(self.tree, {"x": coef, "intercept": b})


def parse(
    text: str,
    columns: int | Sequence[str],
    relation: str | None = None,
    classes: int | None = None,
    units: Units | None = None,
) -> list[Expression]:
    """Read a constraint, or several in a chain such as `0 <= x <= 1`.

    Parameters
    ----------
    text : str
        The constraint, with =, <= or >= between its sides.
    columns : int or sequence of str
        The names of the columns, or how many there are.
    relation : {"=", "<="}, optional
        If only that is wanted; a text without any then means `text = 0` or `text <= 0`.
    classes : int, optional
        None for x of shape (columns,); C for x of shape (columns, C), where the name of a column
        stands for C coefficients.
    units : Units, optional
        In which the text speaks of coefficients; those of x itself if left out.

    Returns
    -------
    list of Expression
        One per relation.

    Examples
    --------
    >>> [e.text for e in parse("0 <= age <= 1", ["age", "mean radius"])]
    ['0 <= age', 'age <= 1']
    >>> parse("age - x['mean radius']", ["age", "mean radius"], relation="=")[0].text
    "age - x['mean radius'] = 0"
    >>> parse("plan=basic >= 0.5", ["age", "plan=basic"])[0].text  # no other reading of it
    'x["plan=basic"] >= 0.5'
    """
    if not isinstance(text, str):
        raise TypeError(f"A constraint must be text, but {type(text).__name__} was given.")
    if relation not in (None, "=", "<="):
        raise ValueError(f'relation must be "=", "<=" or None, but it is {relation!r}.')
    reader = _Reader(text, columns, classes, units)
    try:
        return reader.constraints(relation)
    except ExpressionError:
        name = reader.unquoted()
        if name is None:
            raise
    text = f"{text[: name.start()]}{_in_brackets(name[0])}{text[name.end() :]}"
    return parse(text, columns, relation, classes, units)


class _Part(NamedTuple):
    """The tree of an expression, a number if there is no x in it, and the shape of its value."""

    tree: Tree
    shape: Shape


class _Side(NamedTuple):
    source: str
    start: int
    part: _Part


class _Reader:
    """Reads the sides of one text, and knows where in the text it is."""

    def __init__(
        self,
        text: str,
        columns: int | Sequence[str],
        classes: int | None,
        units: Units | None = None,
    ) -> None:
        if isinstance(columns, str):
            raise TypeError(f"columns must be a list of names, but it is the text {columns!r}.")
        self.names: list[str] | None = None
        if isinstance(columns, (int, numbers.Integral)):
            self.size = int(columns)
        else:
            self.names = [str(name) for name in columns]
            self.size = len(self.names)
        if self.size < 1 or (classes is not None and classes < 1):
            raise ValueError(
                "A constraint needs columns, and classes unless they are None, to speak of, but "
                f"there are {self.size} columns, and classes = {classes}."
            )
        outputs = () if classes is None else (int(classes),)
        self.shapes: dict[str, Shape] = {"x": (self.size, *outputs), "intercept": outputs}
        self.text, self.nodes, self.units = text, 0, units

    def constraints(self, relation: str | None) -> list[Expression]:
        """All relations of the text, as `parse` returns them."""
        cuts = self.relations()
        for sign, at, _ in cuts:
            if sign != cuts[0][0]:
                self.fail(f"`{cuts[0][0]}` and `{sign}` do not mix: give two constraints.", at)
            if relation is not None and (relation == "=") != (sign == "="):
                kind = "equality" if sign == "=" else "inequality"
                self.fail(f"`{short(self.text.strip())}` is an {kind}: give it as {kind}.", at)
        ends = [0, *(place for _, *places in cuts for place in places), len(self.text)]
        sides = [self.side(*span) for span in zip(ends[::2], ends[1::2], strict=True)]
        if not cuts:
            if relation is None:
                self.fail(
                    "There is no relation: write =, <= or >=, as in `x <= 1`.", len(self.text)
                )
            cuts, sides = [(relation, len(self.text), 0)], [*sides, _Side("0", 0, _Part(0.0, ()))]
        return [
            self.link(left, sign, at, right)
            for left, (sign, at, _), right in zip(sides[:-1], cuts, sides[1:], strict=True)
        ]

    def fail(self, reason: str, where: int | ast.expr) -> NoReturn:
        position = where if isinstance(where, int) else self.place(where)
        raise ExpressionError(reason, self.text, position) from None

    def unquoted(self) -> re.Match[str] | None:
        """The name of a column that is in the text as it is, and needs quotes: `plan=basic`."""
        found = [
            re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.outside)
            for name in (self.names or ())[:MAX_CANDIDATES]
            if not name.isidentifier() and any(map(str.isalpha, name)) and _harmless(name)
        ]
        longest = max((len(match[0]) for match in found if match is not None), default=0)
        return next((m for m in found if m is not None and len(m[0]) == longest), None)

    @property
    def outside(self) -> str:
        """The text with spaces in place of what is quoted."""
        return QUOTED.sub(lambda found: " " * len(found[0]), self.text)

    def place(self, node: ast.expr, end: bool = False) -> int:
        """Return where a node starts or ends in the text; an operation starts at its sign."""
        match node:
            case (
                ast.BinOp(left=first)
                | ast.Compare(left=first)
                | ast.BoolOp(values=[first, *_])
                | ast.Attribute(value=first)
                | ast.Tuple(elts=[first, *_])
            ) if not end:
                position = self.place(first, end=True)
                while self.text[position] in " )":  # brackets are no nodes
                    position += 1
                return position
        offset = node.end_col_offset if end else node.col_offset  # in bytes
        return self.start + len(self.source.encode()[:offset].decode())

    def relations(self) -> list[tuple[str, int, int]]:
        """Return the relations outside of brackets and quotes, each with its start and end."""
        if len(self.text) > MAX_CHARACTERS:
            length = f"{len(self.text)} characters, of {MAX_CHARACTERS} at most"
            self.fail(f"This has {length}: give several constraints.", MAX_CHARACTERS)
        for at, character in enumerate(self.text):
            if not character.isprintable():
                self.fail(f"U+{ord(character):04X} is invisible: write one line of text.", at)
        opened: list[int] = []
        found = []
        for match in TOKEN.finditer(self.text):
            token, at = match[0], match.start()
            if token in "([{":
                opened.append(at)
                if len(opened) > MAX_BRACKETS:
                    self.fail(f"There are more than {MAX_BRACKETS} brackets around this.", at)
            elif token in ")]}":
                if not opened:
                    self.fail("This bracket was never opened.", at)
                opened.pop()
            elif token in REFUSED_TOKENS:
                self.fail(REFUSED_TOKENS[token], at)
            elif token[0] not in "\"'":
                if opened:
                    self.fail(f"`{token}` stands inside of brackets: close them before it.", at)
                found.append(("=" if token == "==" else token, at, match.end()))
        if opened:
            self.fail("This bracket is never closed.", opened[-1])
        return found

    def side(self, start: int, stop: int) -> _Side:
        """Read what stands between two relations."""
        raw = self.text[start:stop]
        self.source, self.start = raw.strip(), stop - len(raw.lstrip())
        if not self.source:
            self.fail("Something is missing here.", stop)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about code that would be odd to run
                body = ast.parse(self.source, mode="eval").body
        except SyntaxError as error:
            offset = (error.offset or len(self.source) + 1) - 1  # 0 stands for the end
            if offset >= len(self.source):
                self.fail("Something is missing here.", self.start + len(self.source))
            self.fail(
                "This cannot be read: a product needs *, and a column whose name is not one plain "
                'word is written x["its name"].',
                self.start + offset,
            )
        except (ValueError, RecursionError, MemoryError, OverflowError):
            self.fail("This cannot be read: write it shorter and flatter.", self.start)
        return _Side(self.source, self.start, self.read(body))

    def link(self, left: _Side, sign: str, at: int, right: _Side) -> Expression:
        a, b = left.part, right.part
        if not isinstance(a.tree, tuple) and not isinstance(b.tree, tuple):
            self.fail("No x, column or intercept is in this: it constrains nothing.", left.start)
        self.broadcast(sign, a, b, at)
        pair = (b.tree, a.tree) if sign == ">=" else (a.tree, b.tree)
        text = f"{left.source} {sign} {right.source}"
        return Expression(text, "=" if sign == "=" else "<=", ("-", *pair), self.units)

    def read(self, node: ast.expr, depth: int = 1) -> _Part:
        """Return what a node means, if it is one of the few that mean something here."""
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            self.fail("This is too long or too deep: use sum(...), or give two constraints.", node)
        match node:
            case ast.Constant():
                return _Part(self.number(node), ())
            case ast.Name():
                return self.name(node, self.word(node))
            case ast.Subscript(value=ast.Name() as base):
                return self.entries(node, self.word(base))
            case ast.Call(func=ast.Name() as function):
                name = self.function(node, self.word(function))
                return self.apply(name, node, *(self.read(a, depth + 1) for a in node.args))
            case ast.Call(func=ast.Attribute() as method):
                self.read(method, depth)  # which refuses it
            case ast.UnaryOp(op=ast.UAdd()):
                return self.read(node.operand, depth + 1)
            case ast.UnaryOp(op=ast.USub()):
                return self.apply("negative", node, self.read(node.operand, depth + 1))
            case ast.BinOp(op=ast.Pow()):
                exponent = _Part(self.exponent(node.right), ())
                return self.apply("**", node, self.read(node.left, depth + 1), exponent)
            case ast.BinOp() if type(node.op) in SYMBOLS:
                left, right = self.read(node.left, depth + 1), self.read(node.right, depth + 1)
                return self.apply(SYMBOLS[type(node.op)], node, left, right)
        kind = type(node.op) if isinstance(node, ast.BinOp) else type(node)
        self.fail(REFUSED_NODES.get(kind, OTHER), node)

    def apply(self, name: str, node: ast.expr, *parts: _Part) -> _Part:
        """Return an operation on parts; on numbers it is done at once."""
        if name == "dot" and parts[0].shape != parts[1].shape:
            shapes = f"{parts[0].shape} and {parts[1].shape}"
            self.fail(f"dot needs two of the same shape, but they have shapes {shapes}.", node)
        shape = self.broadcast(name, parts[0], parts[-1], node)
        trees = [part.tree for part in parts]
        if any(isinstance(tree, tuple) for tree in trees):
            return _Part((name, *trees), () if name in REDUCTIONS else shape)
        with np.errstate(all="ignore"):  # Python's floats raise, or go over to complex numbers
            number = float(apply(name, [np.float64(cast(float, tree)) for tree in trees], np))
        if not math.isfinite(number):
            self.fail(f"This comes to {number}: a finite number is needed.", node)
        return _Part(number, ())

    def broadcast(self, sign: str, a: _Part, b: _Part, where: int | ast.expr) -> Shape:
        try:
            return np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            self.fail(f"The shapes {a.shape} and {b.shape} do not fit at `{sign}`.", where)

    def word(self, node: ast.expr) -> str:
        """Return a name as written: Python replaces letters by others that look alike."""
        return self.text[self.place(node) : self.place(node, end=True)]

    def number(self, node: ast.Constant) -> float:
        if isinstance(node.value, str):
            self.fail(f"A name in quotes needs brackets: x[{quoted(node.value)}].", node)
        number = _literal(node)
        if number is None:
            self.fail("Only real numbers are read, such as 2, 0.5 or 1e-3.", node)
        if number > sys.float_info.max:
            self.fail("This number is too large: the largest is about 1.8e308.", node)
        return float(number)

    def exponent(self, node: ast.expr) -> float:
        number = _literal(node)
        if number is None:
            self.fail("An exponent must be a number, as in x**2: for 2**x use exp.", node)
        if abs(number) > MAX_EXPONENT:
            self.fail(f"An exponent must lie between -{MAX_EXPONENT} and {MAX_EXPONENT}.", node)
        # With a whole number JAX multiplies, which is exact and has every derivative at 0.
        return int(number) if number == int(number) else number

    def function(self, node: ast.Call, name: str) -> str:
        if name in NOT_SMOOTH:
            self.fail(
                f"`{name}` is not smooth: write x <= 1 or -1 <= x <= 1 to bound every entry; an l1 "
                "norm belongs into the regulariser.",
                node,
            )
        if name not in FUNCTIONS:
            near = naming.closest(name, FUNCTIONS)
            hint = f"did you mean `{near}`?" if near else f"there are {', '.join(FUNCTIONS)}."
            self.fail(f"There is no function `{name}`: {hint}", node)
        given = len(node.args) + len(node.keywords)
        if given != FUNCTIONS[name] or node.keywords:
            form = "dot(a, b)" if name == "dot" else f"{name}(a)"
            self.fail(
                f"`{name}` is written {form}, but the number of arguments here is {given}.", node
            )
        return name

    def name(self, node: ast.Name, name: str) -> _Part:
        if name in self.shapes:
            return self.chosen(name)
        if name == "pi":
            return _Part(math.pi, ())
        if name in FUNCTIONS:
            column = f", or x[{quoted(name)}] for the column" if name in (self.names or ()) else ""
            self.fail(f"`{name}` is a function: write {name}(...){column}.", node)
        return self.chosen("x", self.column(name, node))

    def column(self, name: str, node: ast.expr) -> int:
        if self.names is None:
            numbered = f"x[0] to x[{self.size - 1}]"
            where = "names come with a data frame, and a scaler keeps them by set_output"
            self.fail(f"There is no {quoted(name)}, but {numbered}: {where}.", node)
        if (count := self.names.count(name)) > 1:
            self.fail(
                f"{count} columns are called {quoted(name)}: use the number, as in x[0].", node
            )
        if count == 1:
            return self.names.index(name)
        levels = [known for known in self.names if known.startswith(f"{name}=")]
        if levels:
            listed = ", ".join(map(_in_brackets, levels[:3])) + ", ..." * (len(levels) > 3)
            self.fail(
                f"`{short(name)}` is text, with a coefficient for each level: {listed}.", node
            )
        near = naming.closest(name, [*self.names[:MAX_CANDIDATES], *RESERVED])
        hint = f"there are {self.size}, the first is `{_spelling(self.names[0])}`."
        hint = f"did you mean `{_spelling(near)}`?" if near else hint
        self.fail(f"There is no column `{_spelling(name)}`: {hint}", node)

    def entries(self, node: ast.Subscript, base: str) -> _Part:
        """Read x[...] or intercept[...]."""
        if base not in self.shapes:
            self.fail(REFUSED_NODES[ast.Subscript], node)
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if base == "x" and len(keys) > 1 and all(map(_is_text, keys)):
            return self.chosen("x", ("list", *(self.key(k, self.size, "columns") for k in keys)))
        axes = self.shapes[base]
        if not 0 < len(keys) <= len(axes):
            count = f"{len(keys)} ind{'ex' if len(keys) == 1 else 'ices'}"
            self.fail(f"`{base}` has shape {axes}, but {count} here.", node)
        kinds = ("columns", "classes") if base == "x" else ("classes",)
        return self.chosen(base, *map(self.key, keys, axes, kinds))

    def key(self, node: ast.expr, size: int, kind: str) -> Key:
        """Read an index; the bounds are checked, since JAX would take the nearest entry."""
        if kind == "columns" and isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.column(node.value, node)
        if not isinstance(node, ast.Slice):
            return self.whole(node, size, size - 1, kind)
        parts = (node.lower, node.upper, node.step)
        bounds = [None if part is None else self.whole(part, size, size, kind) for part in parts]
        if bounds[2] == 0 or not range(size)[slice(*bounds)]:
            self.fail(f"This takes none of the {size} {kind}.", node)
        return ("slice", *bounds)

    def whole(self, node: ast.expr, size: int, last: int, kind: str) -> int:
        number = _literal(node)
        if not isinstance(number, int):
            self.fail("An index must be a whole number, as in x[0], x[-1] or x[0:3].", node)
        if not -size <= number <= last:
            self.fail(f"{number} is outside: there are {size} {kind}, 0 to {size - 1}.", node)
        return number

    def chosen(self, base: str, *keys: Key) -> _Part:
        shape = self.shapes[base]
        return _Part((base, shape, keys), entries(np.broadcast_to(0.0, shape), keys).shape)


def _literal(node: ast.expr) -> int | float | None:
    """Return a number written as such, with or without a minus; None for anything else."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=number)):
            return -number if _is_plain(number) else None
        case ast.Constant(value=number) if _is_plain(number):
            return number
    return None


def _is_plain(value: object) -> TypeGuard[int | float]:
    return type(value) in (int, float)  # True is no number here


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _in_brackets(name: str) -> str:
    """Return x["name"], with quotes that a shell's single quotes leave alone where they can be."""
    return f"x[{quoted(name)}]" if not _harmless(name) else f'x["{name}"]'


def _harmless(name: str) -> bool:
    return name.isprintable() and len(name) <= 80 and '"' not in name and "\\" not in name


def _spelling(name: str) -> str:
    """Return the name of a column as it is written in a text."""
    plain = name.isidentifier() and not keyword.iskeyword(name)
    return short(name) if plain else f"x[{quoted(name)}]"
