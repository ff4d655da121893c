"""One self-contained HTML page about a result: no script, nothing fetched from anywhere."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mossp._base import files
from mossp._base.printing import printable
from mossp.report import numbers
from mossp.report.figures import run_figures
from mossp.report.wording import (
    basis,
    certificate_rows,
    coefficients,
    constrained,
    constraint_rows,
    explanation,
    intercepts,
    size,
)
from mossp.result import Result

MOST_COEFFICIENTS = 200  # rows of the table; a network has more entries than anyone reads


class Extra(NamedTuple):
    """A part of a page that is about what the result is used for."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    figures: Sequence[tuple[str, str]]  # (what is shown, inline SVG)
    note: str = ""


def write_page(
    result: Result,
    folder: str | os.PathLike[str],
    title: str = "A solve with mossp",
    names: Sequence[str] | None = None,
    extras: Sequence[Extra] = (),
) -> Path:
    """Write `folder/index.html` and return its path; an existing page is replaced at once.

    Parameters
    ----------
    result : Result
        What `solve` returned.
    folder : path
        Where the page is written.
    title : str
        Of the page.
    names : sequence of str, optional
        One for each entry of x.
    extras : sequence of Extra
        More parts of the page, which come after the certificate.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import numpy as np, tempfile, mossp
    >>> problem = mossp.Problem(loss=lambda x: x[0], equality=lambda x: x @ x - 1.0)
    >>> result = mossp.solve(problem, np.array([0.6, 0.8]), steps=500)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(result, folder, names=["a", "b"]).name
    'index.html'
    """
    return put(page(result, title, names, extras), Path(folder) / "index.html")


def page(
    result: Result, title: str, names: Sequence[str] | None = None, extras: Sequence[Extra] = ()
) -> str:
    """The page as text."""
    apart = intercepts(result, names)
    called = {name for name, _ in apart}
    entries = [entry for entry in coefficients(result, names) if entry[0] not in called]
    bounds, price = constraint_rows(result)
    largest = max((abs(v) for _, v in entries if np.isfinite(v)), default=1.0)
    return render(
        "mossp.report",
        "page.html",
        title=title,
        result=result,
        explanation=explanation(result),
        constrained=constrained(result),
        extras=extras,
        rows=certificate_rows(result),
        basis=basis(result),
        figures=run_figures(result),
        coefficients=[
            (name, numbers.coefficient(v), 100 * abs(v) / largest if np.isfinite(v) else 0, v < 0)
            for name, v in entries[:MOST_COEFFICIENTS]
        ],
        intercepts=[(name, numbers.coefficient(v)) for name, v in apart],
        bounds=bounds,
        price=price,
        nonzeros=len(entries),
        variables=size(result) - len(apart),
        replicas=_replicas(result),
        expectation=_expectation(result),
        settings=_settings(result),
        versions=versions(),
        cost=_cost(result),
        numbers=numbers,
    )


def render(package: str, template: str, **content: Any) -> str:
    """A page from a template of a package. Text is escaped; figures are marked `| safe` there.

    Nothing that a page cannot hold is left in it, wherever it came from.
    """
    try:
        import jinja2
    except ImportError:
        raise ImportError("A report page needs jinja2: pip install 'mossp[cli]'") from None

    def read(package: str, name: str) -> str:
        return resources.files(package).joinpath(f"templates/{name}").read_text("utf-8")

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = read("mossp.report", "style.css")
    made = environment.from_string(read(package, template)).render(style=style, **content)
    return printable(made, keep="\n\t")


def put(text: str, target: Path) -> Path:
    """Write a file so that an older one is replaced at once."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        files.write(target, text.encode("utf-8"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OSError(
            f"The report cannot be written into {target.parent} ({reason}): "
            "choose a folder that you may write to."
        ) from error
    return target


def _settings(result: Result) -> list[tuple[str, str]]:
    shown = {**result.settings, "tol": result.tol}
    plain = {name: v for name, v in shown.items() if v != "" and not isinstance(v, dict)}
    return [(name.replace("_", " "), numbers.setting(v)) for name, v in plain.items()]


def versions() -> list[tuple[str, str]]:
    found = []
    for name in ("mossp", "jax", "numpy"):
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:  # run from a folder of sources
            found.append((name, "unknown"))
    return [*found, ("python", platform.python_version())]


def _cost(result: Result) -> list[tuple[str, str]]:
    return [
        ("steps", numbers.count(result.steps)),
        ("sample gradients, each replica", numbers.count(result.gradients)),
        ("samples in Hessian-vector products", numbers.count(result.hessian_products)),
        ("time of the run", numbers.duration(result.seconds)),
        ("time to prepare and compile", numbers.duration(result.compile_seconds)),
    ]


def _replicas(result: Result) -> str:
    """How far the replicas agree; empty for a single one."""
    funs = np.asarray(result.funs, np.float64).ravel()
    finite = funs[np.isfinite(funs)]
    if len(funs) < 2:
        return ""
    if not finite.size:
        return f"None of {len(funs)} replicas has a finite objective."
    low, high = numbers.value(finite.min(), 6), numbers.value(finite.max(), 6)
    return f"Best of {len(funs)} replicas, whose objectives run from {low} to {high}."


def _expectation(result: Result) -> list[tuple[str, str, str]]:
    """The paper's residuals over replicas, with standard errors."""
    e: Any = result.expectation
    if e is None or e.replicas < 2:
        return []
    names = ("criticality", "proximity", "feasibility", "infeasible_stationarity")
    shown = names if constrained(result) else names[:2]
    return [
        (
            name.replace("_", " "),
            numbers.residual(getattr(e, name)),
            numbers.residual(getattr(e, f"{name}_se")),
        )
        for name in shown
    ]
