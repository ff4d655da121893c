"""`mossp export`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mossp.app import exits, options, terminal

FORMATS = ("json", "sql", "onnx")


def command(
    model: options.ModelFile,
    format: options.ExportFormat = None,
    out: options.ExportOut = None,
    table: options.TableName = "data",
) -> int:
    """Write a fitted model for others to score with.

    As JSON, as a query in SQL, or as an ONNX graph.
    """
    from mossp.app.exporting.sql import as_sql
    from mossp.app.exporting.terms import scoring_object
    from mossp.app.model import Model

    kind = format or (out.suffix.removeprefix(".").lower() if out is not None else "json")
    if kind not in FORMATS:
        raise ValueError(f"--format must be one of {', '.join(FORMATS)}, but it is {kind!r}.")
    fitted = Model.load(model)
    if fitted.certified is False:
        print(f"mossp: warning: {fitted.doubt}", file=sys.stderr)
    if kind == "onnx":
        from mossp.app.exporting.onnx import as_onnx

        if out is None:
            raise ValueError("An ONNX graph is no text: give --out FILE.")
        return written(out, as_onnx(fitted).SerializeToString())
    told = as_sql(fitted, table) if kind == "sql" else json.dumps(
        scoring_object(fitted), indent=2, ensure_ascii=False, allow_nan=False
    )  # fmt: skip
    if out is None:
        terminal.say(told)
        return exits.SUCCESS
    return written(out, f"{told}\n".encode())


def written(out: Path, content: bytes) -> int:
    from mossp._base import files

    try:
        files.write(out, content)
    except OSError as error:
        raise ValueError(f"{out} could not be written: {error.strerror}.") from error
    terminal.say(f"Export: {out}")
    return exits.SUCCESS
