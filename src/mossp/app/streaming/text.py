"""CSV and TSV files in blocks: converted once, in the folder for caches, to Arrow files.

    text    every column as it is written, stripped, null where a value is missing
    typed   the same as numbers and truth values, where all values of a column are such

What a column holds is known after its last row, so that the first is written while the file is read
and the second from the first. Lines without quotes are cut by polars, after a look at how many
separators each of them has; from the first quote on Python's strict reader does it, as it does in
memory.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from mossp._base.progress import Bar
from mossp.app.tables import TableError
from mossp.app.tables.dialect import separator_of
from mossp.app.tables.text import (
    Kinds,
    checked_header,
    frame_of,
    no_rows,
    not_utf8,
    parsed,
    strict_rows,
)
from mossp.data.converted import LARGE, made_once

PIECE = 2**25  # bytes of text that are looked at together
ENTRIES = 2**21  # values of a piece that is read with quotes
LONGEST = 2**27  # bytes of a line


def converted(path: Path, format: str) -> tuple[Path, tuple[str, ...]]:
    """(the folder of the converted file, what was found out about it)."""
    folder = made_once(path, format, lambda making: convert(path, format, making))
    return folder, tuple(json.loads((folder / "notes.json").read_text()))


def convert(path: Path, format: str, making: Path) -> None:
    """Write both forms into a folder."""
    size = path.stat().st_size
    (making / "text").mkdir()
    (making / "typed").mkdir()
    with path.open("rb") as file, Bar(size, size >= LARGE and sys.stderr.isatty(), "byte") as bar:
        names, comma, lines = header_of(path, file, format)
        kinds, rows, count = Kinds(path, names, comma), 0, 0
        for frame in pieces(path, file, names, comma, lines):
            kinds.add(frame)
            frame.write_ipc(making / "text" / f"{count:06}.arrow", compression="lz4")
            rows, count = rows + frame.height, count + 1
            bar.show(min(file.tell(), size), f"converting {path.name}", f"{rows:,} rows")
    if not rows:
        raise no_rows(path)
    kinds.settle()
    (making / "notes.json").write_text(json.dumps(kinds.notes(format == "tsv")))
    import polars

    for number in range(count):
        frame = polars.read_ipc(making / "text" / f"{number:06}.arrow")
        kinds.typed(frame).write_ipc(making / "typed" / f"{number:06}.arrow")


def header_of(path: Path, file: IO[bytes], format: str) -> tuple[list[str], str, int]:
    """(the names of the columns, what stands between them, how many lines that took)."""
    if file.read(3) != b"\xef\xbb\xbf":  # which some write before UTF-8
        file.seek(0)
    text, lines, comma = "", 0, "\t"
    while True:
        line = line_of(path, file, lines + 1)
        lines += 1
        if not line:
            raise TableError(f"{path} is empty.")
        text += line
        if not text.strip():
            text = ""
            continue
        comma = "\t" if format == "tsv" else separator_of(text)
        try:  # a name in quotes may go on in the next line
            (row,) = csv.reader(io.StringIO(text, newline=""), delimiter=comma, strict=True)
        except csv.Error:
            if len(text) > LONGEST or not text.endswith(("\n", "\r")):
                list(strict_rows(path, io.StringIO(text, newline=""), comma, 0, lines - 1))
                raise
            continue
        return checked_header(path, row), comma, lines


def line_of(path: Path, file: IO[bytes], number: int) -> str:
    line = file.readline(LONGEST)
    if len(line) == LONGEST:
        raise TableError(
            f"{path}, line {number}: the line has more than {LONGEST >> 20} MB, and its end was "
            "not found: end lines as others do (\\n), or give --no-stream."
        )
    return text_of(path, line, number)


def text_of(path: Path, data: bytes, line: int) -> str:
    """Bytes as text; the first of them is in this line of the file."""
    wrong = data.find(b"\0")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        wrong = error.start
    if wrong >= 0:
        raise not_utf8(path, line + data.count(b"\n", 0, wrong))
    return text


def pieces(path: Path, file: IO[bytes], names: list[str], comma: str, lines: int) -> Iterator[Any]:
    """The rows that follow the names, as columns of text, some ten thousand at a time."""
    while data := file.read(PIECE):
        data += file.readline(LONGEST)
        if not is_plain(data, len(names), comma):
            file.seek(-len(data), io.SEEK_CUR)
            yield from strict_pieces(path, file, names, comma, lines)
            return
        text_of(path, data, lines + 1)
        lines += data.count(b"\n")
        yield parsed(data, names, comma, quote=None)


def is_plain(data: bytes, width: int, comma: str) -> bool:
    """Whether every line has as many values as there are names, and none is quoted or blank."""
    if b'"' in data or data.count(b"\r") != data.count(b"\r\n"):
        return False
    if not data.endswith(b"\n"):
        data += b"\n"
    seen = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(seen == ord("\n"))
    lengths = np.diff(ends, prepend=-1) - 1
    if (lengths - (seen[ends - 1] == ord("\r")) <= 0).any():
        return False
    commas = np.searchsorted(np.flatnonzero(seen == ord(comma)), ends)
    return bool((np.diff(commas, prepend=0) == width - 1).all())


def strict_pieces(
    path: Path, file: IO[bytes], names: list[str], comma: str, before: int
) -> Iterator[Any]:
    """The same where there are quotes, or faults to be told."""

    def lines() -> Iterator[str]:
        for number in itertools.count(before + 1):
            line = line_of(path, file, number)
            if not line:
                return
            yield from io.StringIO(line, newline="") if "\r" in line else (line,)

    rows = strict_rows(path, lines(), comma, len(names), before)
    most = max(ENTRIES // len(names), 64)
    while (frame := frame_of(itertools.islice(rows, most), names)) is not None:
        yield frame
