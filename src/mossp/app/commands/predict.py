"""`mossp predict`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mossp.app import exits, options, terminal

if TYPE_CHECKING:
    from mossp.app.model import Model


def command(
    model: options.ModelFile,
    data: options.DataFile,
    out: options.PredictionsOut = None,
    id: options.PredictId = None,
    format: options.Format = None,
    stream: options.Stream = None,
) -> int:
    """Predict with a fitted model.

    One line for each row of the data, with its id and with probabilities where there are any.
    """
    from mossp.app.tables import write_predictions

    fitted = loaded(model, data)
    if fitted.certified is False:
        print(f"mossp: warning: {fitted.doubt}", file=sys.stderr)
    if in_blocks(data, format, stream):
        with terminal.plain_warnings():
            write_predictions(out, each_block(fitted, data, id, format))
    else:
        write_predictions(out, whole(fitted, data, id, format))
    if out is not None:
        terminal.say(f"Predictions: {out}")
    return exits.SUCCESS


def loaded(model: Path, data: Path) -> Model:
    """The model; where the two files were given in the other order, the error says so."""
    from mossp.app.model import Model, ModelError

    try:
        return Model.load(model)
    except ModelError as error:
        try:
            Model.load(data)
        except (ModelError, OSError):
            raise error from None
        raise ModelError(
            f"{model} is not a model of mossp, but {data} is one, and the model comes first: "
            f"mossp predict {data} {model}"
        ) from error


def in_blocks(data: Path, format: str | None, stream: bool | None) -> bool:
    """Whether the file is read in blocks: as asked, or by its size."""
    from mossp.app.streaming.memory import can_stream, is_large

    if stream and not can_stream(data, format):
        raise ValueError(
            f"--stream needs a file that is not packed, but {data} is: unpack it first."
        )
    return stream if stream is not None else is_large(data, format)


def whole(fitted: Any, data: Path, id: Any, format: str | None) -> dict[str, np.ndarray]:
    """The predictions of a file that is read into memory."""
    from mossp.app.tables import read

    with terminal.plain_warnings():
        table = read(data, format)
        terminal.note(table.notes)
        return columns_of(fitted, table, kept_of(fitted, table, id))


def each_block(
    fitted: Any, data: Path, id: Any, format: str | None
) -> Iterator[dict[str, np.ndarray]]:
    """The predictions of a file that is read in blocks, one block after the other."""
    from mossp.app.streaming.blocks import blocks_of
    from mossp.app.streaming.progress import RowsBar

    written = (*(id or fitted.id), *fitted.features.as_text)
    blocks, kept = blocks_of(data, format, written=written), None
    terminal.note(blocks.notes)
    # Where predictions go to a terminal, a bar would stand in their way.
    shown = None if not sys.stdout.isatty() else False
    with RowsBar(blocks.rows, 0, blocks.rows, shown) as bar:
        for start, table in blocks.each():
            kept = kept_of(fitted, table, id) if kept is None else kept
            yield columns_of(fitted, table, kept)
            bar.learning(start + table.rows, "predicting")


def kept_of(fitted: Any, table: Any, id: Any) -> list[str]:
    """The columns that are handed through."""
    from mossp.app.tables import check_known

    if id:
        check_known(table, id)
        return list(id)
    kept = [name for name in fitted.id if table.may_have(name)]
    for name in fitted.id:
        if name not in kept:
            terminal.say(f"mossp: note: {table.path} has no column {name}, the id.", sys.stderr)
    return kept


def columns_of(fitted: Any, table: Any, kept: list[str]) -> dict[str, np.ndarray]:
    """The ids, the prediction and what it is made of, for each row of a table."""
    from mossp.app.tables import offset_of, written

    X = fitted.features.matrix(table)
    offset = None if fitted.offset is None else offset_of(table, fitted.offset)
    columns = {name: written(table, name) for name in kept}
    columns["prediction"] = fitted.predict(X, offset)
    probabilities = fitted.probabilities(X, offset)
    if probabilities is not None and fitted.classes is not None:
        for name, column in zip(fitted.classes.tolist(), probabilities.T, strict=True):
            columns[f"probability of {name}"] = column
    elif fitted.kind == "classifier" and len(fitted.coef) == 1:
        columns["margin"] = fitted.decision(X, offset)
    return columns
