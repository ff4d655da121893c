"""What the command prints: results and models for people, and as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from mossp._base.printing import printable

MOST_SHOWN = 30  # coefficients in the terminal
MOST_CLASSES = 8  # of a confusion table there

SELDOM = 0.1  # of the rows of a class: fewer that are found call for a threshold


def say(text: str, file: Any = None) -> None:
    """Print lines of text, whoever wrote them."""
    print(printable(text, keep="\n"), file=file)


def note(sentences: Sequence[str]) -> None:
    """What was found out on the way, on stderr."""
    for sentence in sentences:
        say(f"mossp: note: {sentence}", sys.stderr)


def plain_console() -> Any:
    """A console to which [red] in a name is no colour, and :apple: no picture."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def print_result(result: Any) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from mossp.report import certificate_rows, constraint_rows, explanation, numbers
    from mossp.report.wording import coefficients, intercepts, size

    console = plain_console()
    s = result.settings
    console.print(
        f"{printable(s['method'])}, {numbers.counted(result.steps, 'step')}, "
        f"{numbers.counted(len(result.funs), 'replica')}, "
        f"{numbers.counted(result.gradients, 'sample gradient')} each, "
        f"{numbers.duration(result.seconds)} "
        f"(+ {numbers.duration(result.compile_seconds)} to prepare and compile)",
        soft_wrap=True,
    )
    apart = intercepts(result)
    kept = len(coefficients(result)) - sum(value != 0 for _, value in apart)
    console.print(
        f"objective {numbers.value(result.fun)}, violation {numbers.residual(result.violation)}, "
        f"{kept} of {size(result) - len(apart)} coefficients nonzero",
        soft_wrap=True,
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("certificate")
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("relative", justify="right")
    table.add_column("needed", justify="right")
    table.add_column("holds")
    marks = {
        True: Text("✓ yes", style="green"),
        False: Text("✗ no", style="red"),
        None: Text(numbers.NONE, style="dim"),
    }
    for row in certificate_rows(result):
        table.add_row(row.name, row.symbol, row.value, row.relative, row.bound, marks[row.holds])
    console.print(table)
    bounds, price = constraint_rows(result)
    if bounds:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("constraint")
        for name in ("value", "bound", "slack", "multiplier"):
            table.add_column(name, justify="right")
        table.add_column("")
        for bound in bounds[:MOST_SHOWN]:
            table.add_row(*map(printable, bound))
        console.print(table)
        if price:
            say(price)
    mark, style = ("✓", "bold green") if result.success else ("✗", "bold red")
    verdict = Text(f"{mark} {result.status.name}: ", style=style).append(
        printable(explanation(result))
    )
    console.print(verdict, soft_wrap=True)


def print_screened(found: Sequence[Any]) -> None:
    """The built-in example's answer, and what scikit-learn gives without the constraint."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("malignant where a'w + b > 0")
    for name in ("measurements", "malignant missed", "false alarms"):
        table.add_column(name, justify="right")
    for one in found:
        missed, alarms = (
            f"{count} of {total} ({100 * count / total:.1f} %)"
            for count, total in ((one.missed, one.malignant), (one.alarms, one.benign))
        )
        table.add_row(one.rule, str(one.features), missed, alarms)
    plain_console().print(table)


def print_model(model: Any) -> None:
    """Scores and coefficients by name."""
    from rich import box
    from rich.table import Table

    from mossp.report import numbers

    console = plain_console()
    scores = model.about.get("scores", {})
    parts = [part for part in ("train", "test") if part in scores]
    if parts:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("score")
        for part in parts:
            table.add_column(part, justify="right")
        for name in sorted(scores[parts[0]]):
            values = (scores[part].get(name) for part in parts)
            shown = ("" if v is None else numbers.value(v, 4) for v in values)
            table.add_row(printable(name), *shown)
        console.print(table)
    print_confusion(console, model)
    for sentence in choices(model):
        say(sentence)
    if rates := model.about.get("rates"):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("rate, as asked")
        for name in ("train", "test", "95 % interval"):
            table.add_column(name, justify="right")
        for asked, seen in rates.items():
            rate = {name: numbers.value(v, 4) for name, v in seen.items()}
            ends = " to ".join(rate[end] for end in ("low", "high") if end in rate)
            table.add_row(printable(asked), rate.get("train", ""), rate.get("test", ""), ends)
        console.print(table)
    raw, intercept = model.raw_coefficients()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    several = len(model.coef) > 1
    for name in ["coefficient of", *(["class"] if several else [])]:
        table.add_column(name)
    for name in ("standardised", "in the units of the data"):
        table.add_column(name, justify="right")
    entries = [
        (abs(model.coef[c, j]), name, c, model.coef[c, j], raw[c, j])
        for c in range(len(model.coef))
        for j, name in enumerate(model.features.names)
        if model.coef[c, j] != 0
    ]
    entries.sort(key=lambda entry: -entry[0])
    for _, name, c, scaled, value in entries[:MOST_SHOWN]:
        which = [printable(model.classes[c])] if several else []
        table.add_row(
            printable(name), *which, numbers.coefficient(scaled), numbers.coefficient(value)
        )
    for c in range(len(model.coef)):
        which = [printable(model.classes[c])] if several else []
        both = (numbers.coefficient(v) for v in (model.intercept[c], intercept[c]))
        table.add_row("(intercept)", *which, *both)
    console.print(table)
    if model.kind == "classifier" and not several:
        called = f"{model.target} = " if model.target else "the class "
        say(f"positive coefficients speak for {called}{model.classes[1]}")
    if model.offset is not None:
        say(f"and the offset {model.offset}, with the coefficient 1")
    hidden, zeros = len(entries) - MOST_SHOWN, model.coef.size - len(entries)
    if hidden > 0:
        console.print(f"and {hidden} smaller ones; `mossp show --json` has all")
    if zeros:
        console.print(f"{numbers.counted(zeros, 'coefficient')} exactly zero")


def print_confusion(console: Any, model: Any) -> None:
    """Which classes were taken for which: of the test rows, or of all if there are none."""
    from rich import box
    from rich.table import Table

    found = model.about.get("confusion") or {}
    part = "test" if "test" in found else "train"
    if part not in found or len(found[part]) > MOST_CLASSES:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"{part} rows")
    for name in model.classes:
        table.add_column(f"taken for {printable(name)}", justify="right")
    for name, row in zip(model.classes, found[part], strict=True):
        table.add_row(printable(name), *map(str, row))
    console.print(table)


def choices(model: Any) -> list[str]:
    """What scores are to be read with: what labels are, how strength and threshold were chosen."""
    from mossp.report import numbers

    about, found = model.about, []
    if about.get("task") == "pu":
        unlabelled = f"{model.target} = {model.classes[0]}"
        found.append(
            f"these count the unlabelled rows ({printable(unlabelled)}) as negative, and some of "
            "them are positive"
        )
    if strength := about.get("strength"):
        counts = about.get("nonzeros", {})

        def told(which: str) -> str:
            kept = f" ({counts[which]:.0f} nonzero)" if which in counts else ""
            return f"{numbers.value(strength[which], 4)}{kept}"

        by = f" by {about['scoring']} in cross-validation" if about.get("scoring") else " by bic"
        others = {"best": "the best score", "1se": "the 1-SE choice"}
        beside = [
            f"{name} is at {told(which)}"
            for which, name in others.items()
            if strength.get(which, strength["chosen"]) != strength["chosen"]
        ]
        if about.get("choose") == "best" and strength.get("1se") == strength["chosen"]:
            beside.append("the 1-SE choice is the same")
        more = f"; {' and '.join(beside)}" if beside else ""
        found.append(f"lam {told('chosen')} was chosen{by}{more}")
    if model.threshold is None and len(counts := about.get("confusion", {}).get("train", ())) == 2:
        right, all_of_it = counts[1][1], sum(counts[1])
        if right < SELDOM * all_of_it:
            name = printable(model.classes[1])
            found.append(
                f"{right:.0f} of the {all_of_it:.0f} training rows of {name} are decided for, "
                "those above the probability 0.5: --threshold balanced, f1 or recall>=0.8 decides "
                "for more"
            )
    if model.threshold is not None:
        what = "probability" if model.has_probabilities else "score"
        asked = about.get("threshold", "")
        why = "" if asked.replace(".", "", 1).isdigit() else f" ({asked} on the training rows)"
        found.append(
            f"decided for {printable(model.classes[1])} above the {what} "
            f"{numbers.value(model.threshold, 4)}{why}"
        )
    return found


def model_object(model: Any) -> dict[str, Any]:
    raw, intercept = model.raw_coefficients()
    names = model.features.names
    rows = [str(c) for c in model.classes] if len(model.coef) > 1 else [None]

    def by_name(coef: np.ndarray, b: np.ndarray) -> Any:
        each = [{**dict(zip(names, c.tolist(), strict=True)), "(intercept)": v}
                for c, v in zip(coef, b.tolist(), strict=True)]  # fmt: skip
        return each[0] if rows == [None] else dict(zip(rows, each, strict=True))

    return jsonable(
        {
            "kind": model.kind, "loss": model.loss, "target": model.target,
            "offset": model.offset, "classes": model.classes,
            "id": model.id, "threshold": model.threshold,
            "standardised": by_name(model.coef, model.intercept),
            "coefficients": by_name(raw, intercept),
            **{k: v for k, v in model.about.items() if k != "threshold"},
        }
    )  # fmt: skip


def as_object(result: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """A result as what JSON can hold, x by name if there are names; NaN and infinity are null."""
    from mossp._base.structure import Structure

    x: Any = result.x
    if names is not None:
        x = dict(zip(names, Structure.of(x).ravel(x).tolist(), strict=True))
    certificate = dataclasses.asdict(result.certificate)
    holds = result.certificate.is_kkt(result.tol, relative=True)
    certificate |= {"tol": result.tol, "holds": holds}
    return jsonable(
        {
            "x": x,
            "fun": result.fun,
            "violation": result.violation,
            "success": result.success,
            "status": result.status.name,
            "message": result.message,
            "certificate": certificate,
            "steps": result.steps,
            "gradients": result.gradients,
            "seconds": result.seconds,
            "compile_seconds": result.compile_seconds,
            "settings": result.settings,
        }
    )


def jsonable(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(name): jsonable(v) for name, v in content.items()}
    if isinstance(content, (list, tuple)):
        return [jsonable(v) for v in content]
    if hasattr(content, "tolist"):
        return jsonable(content.tolist())
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, (str, int, float, bool, type(None))):
        return content
    return str(content)


@contextlib.contextmanager
def plain_warnings() -> Any:
    """A warning of ours is one line on stderr."""

    def show(message: Warning | str, *_: Any) -> None:
        say(f"mossp: warning: {message}", sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.filterwarnings("ignore", message=".*persistent compilation cache.*")
        warnings.showwarning = show  # type: ignore[assignment]
        yield
