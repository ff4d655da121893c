"""Damaged and hostile files: each is read or refused in a typed sentence, soon, in little room.

`python -m tests.adversarial.files KIND FIRST COUNT` reads cases of one kind. A case is a valid
file with bytes flipped, cut, doubled or replaced; for files with a checksum also one whose contents
are wrong and whose checksum is right.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import functools
import gzip
import io
import json
import os
import random
import re
import resource
import string
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import mossp
from mossp import expressions
from mossp._base import archive
from mossp.app import cli, tables
from mossp.app.features import Features
from mossp.app.model import Model, ModelError
from mossp.data.libsvm import DataError, read_libsvm
from tests.adversarial import children
from tests.adversarial.sentences import CONTROL, fault_of
from tests.adversarial.table import Row

SECONDS = 5.0  # of the processor, for a small file
ROOM = 600 * 2**20  # bytes that reading one may take
ADDRESSES = (
    16 * children.GIGABYTE
)  # of address space; threads and JAX reserve much that is not used
PATIENCE = 120.0

# Damage -----------------------------------------------------------------------------------------

WORDS = [
    b"nan", b"inf", b"-inf", b"1e999", b"-0", b"0x10", b"1_000", b"99999999999999999999",
    b"-1:1", b"0:1", b"2147483648:1", b"10000000:1", b":", b"1:", b":1", b"::", b"1:2:3",
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1b[31m", b"\r", b"\n\n", b"\"", b"'", b",,", b";",
    b"\t", b"[/red]", b"[bold]", b"\xed\xa0\x80", "é".encode(), "\u202e".encode(),
    b"#", b"%s%n", b"=cmd|' /C calc'!A0", b"a" * 5000, b"1" * 400, b"../../etc", b"None",
]  # fmt: skip


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The file with one to four accidents."""
    content = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        where = rng.randrange(len(content) + 1)
        match rng.randrange(7):
            case 0 if content:  # a bit
                content[where % len(content)] ^= 1 << rng.randrange(8)
            case 1:  # cut short
                del content[where:]
            case 2:  # a piece lost
                del content[where : where + rng.randint(1, 40)]
            case 3:  # a piece twice
                piece = content[where : where + rng.randint(1, 60)]
                content[where:where] = piece
            case 4:  # bytes of any kind
                content[where:where] = rng.randbytes(rng.randint(1, 30))
            case _:
                content[where:where] = rng.choice(WORDS)
    return bytes(content)


def some_json(rng: random.Random, depth: int = 0) -> Any:
    """Any value that JSON can hold, and some that it should not."""
    simple = [
        None, True, 0, -1, 10**30, 1e308, float("nan"), float("inf"), "", "x" * 500, "[/red]",
        "\x1b[2J", "\0", "\ud800", [], {}, "classifier", "array", [[]], {"array": "x"},
    ]  # fmt: skip
    if depth < 3 and rng.random() < 0.3:
        size = rng.randint(0, 3)
        if rng.random() < 0.5:
            return [some_json(rng, depth + 1) for _ in range(size)]
        return {rng.choice(["array", "dict", "list", "k", "x"]): some_json(rng, depth + 1)}
    return copy.deepcopy(rng.choice(simple))


def changed(tree: Any, rng: random.Random) -> Any:
    """A JSON value with one part somewhere replaced, removed or added."""
    if isinstance(tree, (dict, list)) and tree and rng.random() < 0.75:
        tree = copy.copy(tree)
        key = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        chance = rng.random()
        if chance < 0.2:
            del tree[key]
        elif chance < 0.25 and isinstance(tree, dict):
            tree[rng.choice(["more", "", "x", "\x1b[1m"])] = some_json(rng)
        else:
            tree[key] = changed(tree[key], rng)
        return tree
    return some_json(rng)


def some_array(rng: random.Random) -> np.ndarray:
    choices: list[Callable[[], np.ndarray]] = [
        lambda: np.zeros(0),
        lambda: np.array(1.0),
        lambda: np.full((2, 3), np.nan),
        lambda: np.full(3, np.inf),
        lambda: np.zeros((3, 0, 2)),
        lambda: np.array(["a", "\x1b[0m"]),
        lambda: np.array([b"a"]),
        lambda: np.zeros(4, complex),
        lambda: np.zeros(3, "datetime64[s]"),
        lambda: np.ones(5, bool),
        lambda: np.arange(7, dtype=np.uint8),
        lambda: np.zeros(2, [("a", float), ("b", int)]),
        lambda: np.full((3, 3, 3), 1e308),
    ]
    return rng.choice(choices)()


def recast(array: np.ndarray, rng: random.Random) -> np.ndarray:
    """The same numbers in the same shape as another type, or in the other order of bytes."""
    types = [">f8", "f2", "f4", "longdouble", "clongdouble", ">i4", "i8", "u1", "?", "U4"]
    try:
        with np.errstate(all="ignore"):
            return array.astype(rng.choice(types))
    except ValueError:  # text that is no number
        return array[::-1]


def sealed(path: Path, arrays: dict[str, np.ndarray], meta: bytes) -> None:
    """A file with contents of our choice and the right checksum."""
    stored = {**arrays, archive.META: np.frombuffer(meta, np.uint8)}
    # Dates have no buffer to take a checksum of; a file that holds them is refused before that.
    summed = {name: a for name, a in stored.items() if a.dtype.kind not in "Mm"}
    stored[archive.CHECKSUM] = np.frombuffer(archive.checksum(summed), np.uint8)
    with path.open("wb") as file:
        np.savez(file, **stored)


def crafted(valid: Path, path: Path, rng: random.Random) -> str:
    """A file like the valid one with something wrong inside; what it is."""
    with np.load(valid) as file:
        arrays = {name: file[name] for name in file.files}
    arrays.pop(archive.CHECKSUM)
    meta = json.loads(arrays.pop(archive.META).tobytes())
    match rng.randrange(8):
        case 0:
            name = rng.choice(sorted(arrays))
            arrays[name] = some_array(rng) if rng.random() < 0.5 else recast(arrays[name], rng)
            what = f"array {name} replaced"
        case 1:
            name = rng.choice(sorted(arrays))
            del arrays[name]
            what = f"array {name} removed"
        case 2:
            sealed(path, arrays, b'{"kind": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
            return "JSON that nests 100,000 deep"
        case 3:
            wrong = [b"", b"[]", b"null", b"{", b"\xff\xfe", b'"text"', b"{}", b"1e999"]
            sealed(path, arrays, rng.choice(wrong))
            return "JSON that is no object"
        case 4:  # deep for those who walk it, not for the parser of JSON
            deep = '{"list": [' * 900 + '{"array": "x"}' + "]}" * 900
            where = "trees" if "trees" in meta else rng.choice(sorted(meta))
            meta[where] = {"x": "DEEP"} if where == "trees" else "DEEP"
            sealed(path, arrays, json.dumps(meta).replace('"DEEP"', deep).encode())
            return f"{where} nest 900 deep"
        case _:
            for _ in range(rng.randint(1, 3)):
                meta = changed(meta, rng)
            what = "meta changed"
    sealed(path, arrays, json.dumps(meta).encode())
    return what


# One reader a kind: it returns a fault, or None, and may raise what is allowed ------------------

Reader = Callable[[Path, random.Random], str | None]


def read_rows(path: Path, rng: random.Random) -> str | None:
    lines = [
        f"{rng.choice(['+1', '-1', '1', '0.5'])} "
        + " ".join(f"{j}:{rng.gauss(0, 1):.3g}" for j in sorted(rng.sample(range(1, 9), 3)))
        for _ in range(rng.randint(1, 8))
    ]
    data = damaged("\n".join(lines).encode() + b"\n", rng)
    if rng.random() < 0.3:
        data = gzip.compress(data, mtime=0)
        data = damaged(data, rng) if rng.random() < 0.5 else data
    path.write_bytes(data)
    X, y = read_libsvm(path, labels=1)
    good = np.isfinite(X.data).all() and np.isfinite(y).all() and X.shape[0] == len(y) > 0
    return None if good else "rows that are not finite were read"


def read_table(path: Path, rng: random.Random) -> str | None:
    header = ",".join(rng.sample(["age", "bmi", "kind", "[/red]", "x y", "price"], 3))
    rows = [
        f"{rng.randint(0, 99)},{rng.gauss(0, 1):.4f},{rng.choice(['a', 'b', 'true', '2024-01-31'])}"
        for _ in range(rng.randint(1, 8))
    ]
    data = damaged("\n".join([header, *rows]).encode() + b"\n", rng)
    if rng.random() < 0.3:
        data = gzip.compress(data, mtime=0)
        data = damaged(data, rng) if rng.random() < 0.5 else data
    path.write_bytes(data)
    table = tables.read(path, "csv")
    features = Features.learn(table, table.columns[-1])
    X = features.matrix(table)
    return None if np.isfinite(np.asarray(X)).all() else "features that are not finite"


@functools.cache
def parquet() -> bytes:
    import polars

    buffer = io.BytesIO()
    frame = polars.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "z"], "c": [True, False, True]})
    frame.write_parquet(buffer)
    return buffer.getvalue()


def read_parquet(path: Path, rng: random.Random) -> str | None:
    path.write_bytes(damaged(parquet(), rng))
    return None if tables.read(path, "parquet").rows > 0 else "no rows were read"


PIECES = [
    "x", "x[0]", "x[-1]", "x[0:2]", "x[9]", "x[1e3]", "x['age']", 'x["age", "bmi"]', "age", "bmi",
    "intercept", "pi", "+", "-", "*", "/", "**", "**2", "**0.5", "**21", "(", ")", "[", "]", ",",
    "sum(", "norm(x)", "dot(x, x)", "exp(", "log(", "sqrt(", "mean(x)", "=", "<=", ">=", "<", ">",
    "==", "!=", ":=", "1", "0", "2.5", "1e-3", "1e999", "0.1", "1j", "1_0", "lambda", "import os",
    "__import__('os').system('touch CANARY')", "open('CANARY', 'w')", "().__class__", "x.sum()",
    "abs(x)", "max(x)", "'", '"', "#", "\\", "\n", "\t", "\0", "\x1b[31m", "é", "ｘ", "∞", "\u202e",
    "if", "else", "for", "and", "not", "True", "None", "...", "f'{x}'", "@", "^", "%", "//", "~",
    "9" * 400, "(" * 30, "-" * 60, "x" * 600,
]  # fmt: skip


def read_expression(path: Path, rng: random.Random) -> str | None:
    chance = rng.random()
    if chance < 0.2:
        text = "".join(rng.choice(string.printable) for _ in range(rng.randint(0, 60)))
    else:
        text = rng.choice(["", " "]).join(rng.choice(PIECES) for _ in range(rng.randint(1, 12)))
        if chance < 0.6:
            text += rng.choice([" <= 1", " = 0", " >= x", " = sum(x)"])
    columns: Any = rng.choice([3, ["age", "bmi", "sex"], ["x", "sum", "é"]])
    found = expressions.parse(text, columns, rng.choice([None, "=", "<="]))
    if Path("CANARY").exists():
        return f"{text!r} was run as Python"
    for expression in found:
        value = np.asarray(expression(np.full(3, 0.5), 0.25))
        if value.dtype.kind != "f":
            return f"{text!r} has the value {value!r}"
    return None


def small_model() -> Model:
    features = Features((("age", None), ("kind", ("a", "b"))), (40.0, 0.0, 0.0), (10.0, 1.0, 1.0))
    about = {"note": "small", "certificate": {"criticality": 1e-11}}
    classes = np.array(["no", "yes"])
    return Model("classifier", "logistic", "y", classes, features, [[1, 0, 2]], [0.5], about)


def fitted_model(folder: Path) -> Path:
    """A model as the command writes it, with all that `show` prints."""
    table, model = folder / "train.csv", folder / "fitted.mossp"
    if not model.exists():
        rng = np.random.default_rng(0)
        rows = [f"{a:.3f},{b:.3f},{int(a + b > 0)}" for a, b in rng.normal(size=(40, 2))]
        table.write_text("age,bmi,y\n" + "\n".join(rows) + "\n")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            cli.main([
                "fit", str(table), "--target", "y", "--regularizer", "l1:0.05", "--no-report",
                "--out", str(model),
            ])  # fmt: skip
        if not model.exists():
            small_model().save(model)
    return model


def hostile(valid: Path, path: Path, rng: random.Random) -> str:
    """A damaged or crafted copy of a valid file; what was done."""
    if rng.random() < 0.35:
        path.write_bytes(damaged(valid.read_bytes(), rng))
        return "bytes damaged"
    return crafted(valid, path, rng)


def read_model(path: Path, rng: random.Random) -> str | None:
    what = hostile(fitted_model(path.parent), path, rng)
    fault = shown(path)
    if fault:
        return f"show, {what}: {fault}"
    model = Model.load(path)
    predicted = model.predict(np.zeros((2, model.coef.shape[1])))
    return None if len(predicted) == 2 else f"{what}: no predictions"


NAMES = [
    "[/red]", "[bold]", "[link=x]", "\x1b[31mred", "\x1b]0;title\x07", "a" * 450, "x\u202ey",
    "é 🙂", "<script>", "{{x}}", "%s", "-h", "sum", "'", "\\", "\x9b2J", "age", "bmi",
]  # fmt: skip


def read_names(path: Path, rng: random.Random) -> str | None:
    """fit, show and predict on a table whose columns have hostile names."""
    names = rng.sample(NAMES, 3)
    table, model = path.with_suffix(".csv"), path.with_suffix(".mossp")
    values = np.random.default_rng(0).normal(size=(40, 2))
    with table.open("w", newline="") as file:
        rows = [[f"{a:.3f}", f"{b:.3f}", int(a + b > 0)] for a, b in values]
        csv.writer(file).writerows([names, *rows])
    fit = ["fit", str(table), "--target", names[2], "--regularizer", "l1:0.05", "--no-report"]
    for command in (
        [*fit, "--out", str(model)],
        ["show", str(model)],
        ["predict", str(model), str(table)],
    ):
        if fault := said(command):
            return f"{command[0]} with the columns {names}: {fault}"
    return None


def shown(path: Path) -> str | None:
    return said(["show", str(path)])


def said(command: list[str]) -> str | None:
    """A command: an exit code, no exception, nothing that steers a terminal."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(command)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]!r}"
    text = out.getvalue() + err.getvalue()
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if found := CONTROL.search(text):
        return f"it prints the control character {found.group()!r}"
    return "it prints a traceback" if "Traceback" in text else None


def tiny_problem() -> Any:
    A = np.random.default_rng(0).normal(size=(40, 3))
    return mossp.Problem(mossp.losses.squared, (A, A @ np.ones(3)), mossp.L1(0.1))


TINY = {"method": "mossp-r", "steps": 400, "seed": 0, "trace": 4}


@functools.cache
def valid_result(folder: Path) -> Path:
    return mossp.solve(tiny_problem(), np.zeros(3), **TINY).save(folder / "valid.npz")


@functools.cache
def valid_checkpoint(folder: Path) -> Path:
    path = folder / "run.npz"
    half = lambda progress: progress.step >= 200  # noqa: E731
    mossp.solve(tiny_problem(), np.zeros(3), checkpoint=path, callback=half, **TINY)
    return path


def read_result(path: Path, rng: random.Random) -> str | None:
    what = hostile(valid_result(path.parent), path, rng)
    found = mossp.Result.load(path)
    try:
        text = found.summary()
    except Exception as error:
        return f"{what}: summary() raises {type(error).__name__}: {str(error)[:100]!r}"
    return None if isinstance(text, str) else f"{what}: no summary"


def read_checkpoint(path: Path, rng: random.Random) -> str | None:
    what = hostile(valid_checkpoint(path.parent), path, rng)
    # A run that is forced to go on from the file: the fingerprint may be wrong as well.
    resume = rng.choice([True, "force"])
    done = mossp.solve(tiny_problem(), np.zeros(3), checkpoint=path, resume=resume, **TINY)
    if not np.isfinite(done.x).all():
        return f"{what}: x is not finite"
    return f"{what}: success at violation {done.violation}" if done.violation > 1 else None


KINDS: dict[str, tuple[Reader, tuple[type[Exception], ...]]] = {
    "LIBSVM": (read_rows, (DataError,)),
    "CSV": (read_table, (tables.TableError,)),
    "Parquet": (read_parquet, (tables.TableError,)),
    "expression": (read_expression, (expressions.ExpressionError,)),
    "model": (read_model, (ModelError,)),
    "column name": (read_names, ()),
    "result": (read_result, (mossp.CheckpointError, ValueError)),
    "checkpoint": (read_checkpoint, (mossp.CheckpointError,)),
}


def attack_one(kind: str, number: int, folder: Path) -> str | None:
    """One hostile file: what is wrong with how it was taken, if anything."""
    read, allowed = KINDS[kind]
    rng = random.Random(f"{kind} {number}")
    path = folder / f"hostile-{number}"
    began, before = time.process_time(), children.resident()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fault = read(path, rng)
    except Exception as error:
        fault = fault_of(error, allowed)
    took, room = time.process_time() - began, children.resident() - before
    path.unlink(missing_ok=True)
    if not fault and took > SECONDS and number:  # the first compiles
        fault = f"{took:.1f} s of the processor"
    if not fault and room > ROOM:
        fault = f"{room / 2**20:.0f} MB"
    return fault


# Bombs: small files that unpack to much, or name a column far out -------------------------------


def zeros_in_a_model(path: Path) -> Path:
    """1 MB that unpack to 1 GB of coefficients."""
    valid = path.with_name("valid.mossp")
    small_model().save(valid)
    with (
        zipfile.ZipFile(valid) as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            if name != "coef.npy":
                new.writestr(name, old.read(name))
        header = io.BytesIO()
        shape = (1, 2**27)
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f8", "fortran_order": False, "shape": shape}
        )
        with new.open("coef.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for _ in range(1024):
                member.write(bytes(2**20))
    return path


def packed_table(path: Path, kilobytes: int) -> Path:
    """A csv.gz of about so many kB, a thousand times as large when unpacked, in many members."""
    rows = gzip.compress(b"1,2\n" * 2**18, mtime=0)
    path.write_bytes(gzip.compress(b"a,b\n", mtime=0) + rows * kilobytes)
    return path


def bomb(name: str, folder: Path) -> str | None:
    """Read one bomb: what is wrong with how it was taken, if anything."""
    path = folder / "bomb"
    began, before = time.process_time(), children.resident()
    seconds, room = SECONDS, ROOM
    try:
        match name:
            case "model of 1 GB":
                zeros_in_a_model(path)
                began = time.process_time()
                Model.load(path)
            case "result of 1 GB":
                zeros_in_a_model(path)
                began = time.process_time()
                mossp.Result.load(path)
            case "csv.gz of 32 kB" | "csv.gz of 256 kB":  # 32 MB of numbers may be meant
                packed_table(path, int(name.split()[2]))
                seconds, room = 20.0, 2**30
                began = time.process_time()
                tables.read(path, "csv")
            case "LIBSVM.gz of one line":
                with gzip.open(path, "wb") as file:
                    for _ in range(512):
                        file.write(b"1" * 2**20)
                seconds = 20.0
                began = time.process_time()
                read_libsvm(path)
            case "LIBSVM index 1e7, fit":
                path = path.with_suffix(".svm")
                path.write_text("1 1:1 10000000:1\n-1 2:1\n1 1:2\n-1 2:3\n")
                seconds, room = 60.0, 2**30  # it compiles
                began = time.process_time()
                with contextlib.redirect_stdout(io.StringIO()):
                    code = cli.main([
                        "fit", str(path), "--regularizer", "l1:0.1", "--test", "0", "--no-report",
                        "--out", str(folder / "wide.mossp"),
                    ])  # fmt: skip
                if code not in (0, 1, 2):
                    return f"exit code {code}"
    except (ModelError, tables.TableError, DataError, mossp.CheckpointError, ValueError) as error:
        if fault := fault_of(error, (ValueError, mossp.CheckpointError)):
            return fault
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]!r}"
    took, held = time.process_time() - began, peak() - before
    if took > seconds or held > room:
        return f"{took:.0f} s of the processor, {held / 2**20:.0f} MB at the peak"
    return None


def peak() -> int:
    """Bytes of memory that this program held at most.

    What getrusage says includes the process that started it, before the program took its place.
    """
    with contextlib.suppress(OSError, AttributeError):
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


BOMBS = [
    "model of 1 GB", "result of 1 GB", "csv.gz of 32 kB", "csv.gz of 256 kB",
    "LIBSVM.gz of one line", "LIBSVM index 1e7, fit",
]  # fmt: skip


# All of it --------------------------------------------------------------------------------------


def attack(each: dict[str, int], bombs: list[str]) -> list[Row]:
    rows = []
    for kind, count in each.items():
        row = Row(f"a hostile {kind} is read or refused in a typed sentence", "damaged, crafted")
        row.how += f"; {SECONDS:g} s of the processor and {ROOM // 2**20} MB at most"
        for found in children.supervise("files", (kind,), count, PATIENCE):
            row.add(f"{found['case']}: {found['fault']}" if found["fault"] else None)
        rows.append(row)
    row = Row("a bomb is refused, or read in bounded time and memory", "one process each")
    for number, name in enumerate(BOMBS):
        if name in bombs:
            (found,) = children.supervise("files", ("bomb",), 1, PATIENCE, number)
            row.add(f"{name}: {found['fault']}" if found["fault"] else None)
    return [*rows, row]


def main(kind: str, first: int, count: int) -> None:
    children.limit_memory(ADDRESSES)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number in range(first, first + count):
            if kind == "bomb":
                children.report(BOMBS[number], bomb(BOMBS[number], Path(folder)))
            else:
                fault = attack_one(kind, number, Path(folder))
                children.report(f"{kind} {number}", fault)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
