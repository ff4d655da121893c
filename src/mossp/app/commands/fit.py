"""`mossp fit`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

from mossp._base.launching import distributed
from mossp.app import exits, options, preparation, terminal
from mossp.app.fitting.request import Request
from mossp.app.spreading import spread


@spread(Request)
def command(
    request: Request,
    out: options.ModelOut = Path("model.mossp"),
    force: options.Force = False,
    report: options.ReportFolder = Path("mossp-report"),
    no_report: options.NoReport = False,
    as_json: options.AsJson = False,
) -> int:
    """Fit a sparse model to a file of your own."""
    try:
        return fit(request, out, force, None if no_report else report, as_json)
    except KeyboardInterrupt:
        if request.checkpoint is not None and request.checkpoint.exists():
            goes_on = f"Interrupted: the same command goes on from {request.checkpoint}."
            return exits.fail(goes_on, exits.INTERRUPTED)
        return exits.TOO_EARLY


def fit(request: Request, out: Path, force: bool, report: Path | None, as_json: bool) -> int:
    preparation.need("mossp fit", "sklearn")
    from mossp.app.fitting.fit import fit
    from mossp.app.fitting.page import write_report

    if out.is_dir():
        raise ValueError(f"--out must name a file, but {out} is a folder.")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"There is no folder {out.parent} for {out.name}: make it first.")
    preparation.check_folder("--report", report)
    began, older = time.perf_counter(), out.exists()
    good = older and not force and is_good(out)
    found = distributed()
    with contextlib.redirect_stdout(sys.stderr), terminal.plain_warnings():
        if in_blocks(request, found.processes):
            from mossp.app.streaming.fit import fit as streamed
            from mossp.app.streaming.page import write_report as write_streamed

            fitted: Any = streamed(request)
            write: Any = write_streamed
        else:
            if request.checkpoint is not None:
                raise ValueError(
                    "--checkpoint is for files that are read in blocks: give --stream."
                )
            fitted, write = fit(request), write_report
        if found.process:  # the first one prints and writes files
            return exits.code_of(fitted.result)
        terminal.note(fitted.notes)
        kept = good and not fitted.result.success
        if not kept:
            fitted.model.save(out)
        page = None if report is None else write(fitted, request, report)
    if as_json:
        print(json.dumps(terminal.model_object(fitted.model), allow_nan=False))
    else:
        terminal.print_result(fitted.result)
        terminal.print_model(fitted.model)
        if request.inference:
            from mossp.app.fitting.page import support_names

            found = dataclasses.replace(
                fitted.estimator.inference_, names=tuple(support_names(fitted))
            )
            terminal.say(f"standard errors, of the standardised columns\n{found!r}")
    sys.stdout.flush()
    stream = sys.stderr if as_json else sys.stdout
    if kept:
        terminal.say(
            f"mossp: {out} was not replaced: the certificate of the model in it holds, and that of "
            "this one does not. Give another --out, or --force.",
            sys.stderr,
        )
    else:
        terminal.say(f"Model: {out}{' (the older one is replaced)' * older}", stream)
    if page is not None:
        terminal.say(f"Report: {page}", stream)
    print(f"All of it took {time.perf_counter() - began:.0f} s", file=stream)
    return exits.code_of(fitted.result)


def in_blocks(request: Request, processes: int) -> bool:
    """Whether the file is read in blocks: as asked, among several processes, or by its size."""
    from mossp.app.streaming.memory import can_stream, is_large

    possible = can_stream(request.train, request.format)
    if not possible and (request.stream or processes > 1):
        why = "--stream" if request.stream else f"A run of {processes} processes"
        raise ValueError(
            f"{why} needs a file that can be read in blocks, but {request.train} is packed: unpack "
            "it first."
        )
    if request.stream is not None:
        if processes > 1 and not request.stream:
            raise ValueError("--no-stream is for one process: each of several reads its own rows.")
        return request.stream
    return processes > 1 or (possible and is_large(request.train, request.format))


def is_good(path: Path) -> bool:
    """Whether a file holds a model whose certificate holds."""
    from mossp.app.model import Model, ModelError

    try:
        return Model.load(path).certified is True
    except ModelError:
        return False
