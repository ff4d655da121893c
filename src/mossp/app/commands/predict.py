"""`mossp predict`."""

from __future__ import annotations

import sys

from mossp.app import exits, options, terminal


def command(
    model: options.ModelFile,
    data: options.DataFile,
    out: options.PredictionsOut = None,
    id: options.PredictId = None,
    format: options.Format = None,
) -> int:
    """Predict with a fitted model.

    One line for each row of the data, with its id and with probabilities where there are any.
    """
    from mossp.app.model import Model
    from mossp.app.tables import check_known, offset_of, read, write_predictions, written

    fitted = Model.load(model)
    if fitted.certified is False:
        print(f"mossp: warning: {fitted.doubt}", file=sys.stderr)
    with terminal.plain_warnings():
        table = read(data, format)
        terminal.note(table.notes)
        X = fitted.features.matrix(table)
        offset = None if fitted.offset is None else offset_of(table, fitted.offset)
    if id:
        check_known(table, id)
    kept = id or [name for name in fitted.id if table.may_have(name)]
    for name in fitted.id if not id else ():
        if name not in kept:
            terminal.say(f"mossp: note: {data} has no column {name}, the id.", sys.stderr)
    columns = {name: written(table, name) for name in kept}
    columns["prediction"] = fitted.predict(X, offset)
    probabilities = fitted.probabilities(X, offset)
    if probabilities is not None and fitted.classes is not None:
        for name, column in zip(fitted.classes.tolist(), probabilities.T, strict=True):
            columns[f"probability of {name}"] = column
    elif fitted.kind == "classifier" and len(fitted.coef) == 1:
        columns["margin"] = fitted.decision(X, offset)
    write_predictions(out, columns)
    if out is not None:
        terminal.say(f"Predictions: {out}")
    return exits.SUCCESS
