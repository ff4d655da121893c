"""Figures of several runs side by side: objective, residual and violation by gradients and time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from mossp._base.printing import short
from mossp.report.figures import BLUE, GREY, ORANGE, given_axes, new_figure, plain
from mossp.report.wording import constrained
from mossp.result import Result

COLOURS = (BLUE, ORANGE, "#3f9a5d", "#a05cb8", "#b8963b", "#4aa5a8", "#c4506b", GREY)
STYLES = ("-", "--", ":", "-.")
AGAINST = {"gradients": "stochastic gradients", "seconds": "seconds"}


def plot_several(
    results: Sequence[Result],
    labels: Sequence[str] | None,
    ax: Any = None,
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """Rows of panels for objective, residual and violation; columns for gradients and seconds."""
    names = checked_labels(results, labels)
    rows = ["objective", "proximity"]
    rows += ["violation"] if any(constrained(result) for result in results) else []
    panels = [(what, against) for what in rows for against in AGAINST]
    if ax is not None:
        axes = given_axes(ax, len(panels))
        figure = axes[0].figure
    else:
        figure = new_figure((9.0, 2.6 * len(rows) + 0.4), shown=path is None)
        axes = list(np.ravel(figure.subplots(len(rows), 2)))
    for a, (what, against) in zip(axes, panels, strict=False):
        for number, (result, name) in enumerate(zip(results, names, strict=True)):
            _line(a, result, what, against, name, number)
        _dress(a, results, what, against)
    legend = axes[0].legend(frameon=False, fontsize="small")
    for text in legend.get_texts():  # a dollar sign in a label is no formula
        text.set_parse_math(False)
    if path is not None:
        figure.savefig(path)
    return figure


def checked_labels(results: Sequence[Result], labels: Sequence[str] | None) -> list[str]:
    """A name for each run: as given, or of its method, with numbers where that is the same."""
    if not results or not all(isinstance(result, Result) for result in results):
        raise TypeError("plot needs a Result, or a list of Results.")
    if labels is None:
        methods = [str(result.settings.get("method", "run")) for result in results]
        alike = len(set(methods)) < len(methods)
        return [f"{m} ({k + 1})" if alike else m for k, m in enumerate(methods)]
    if isinstance(labels, str) or len(labels) != len(results):
        raise ValueError(f"labels must have one text for each of the {len(results)} results.")
    return [short(label, 40) for label in labels]


def _line(ax: Any, result: Result, what: str, against: str, name: str, number: int) -> None:
    """The mean over replicas along the run, and the value of the returned point."""
    at = np.asarray(getattr(result.trace, against), float).ravel()
    rows = np.asarray(getattr(result.trace, what), float).reshape(len(at), -1)
    values = np.ma.masked_invalid(rows).mean(axis=1).filled(np.nan)
    if what != "objective":
        values = np.where(values > 0, values, np.nan)
    style = {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": STYLES[number // len(COLOURS) % 4],
    }
    ax.plot(at, values, label=name, linewidth=1.5, **style)
    last = {"objective": result.fun, "violation": result.violation,
            "proximity": result.certificate.proximity}[what]  # fmt: skip
    if np.isfinite(last) and (what == "objective" or last > 0):
        ax.plot([getattr(result, against)], [last], "o", color=style["color"], markersize=5)


def _dress(ax: Any, results: Sequence[Result], what: str, against: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    titles = {"objective": "objective F(x)", "proximity": "residual ‖x − y‖",
              "violation": "violation ‖c(x)‖"}  # fmt: skip
    if what != "objective":
        ax.set_yscale("log", nonpositive="mask")
        tol = max(result.tol for result in results)
        ax.axhline(tol, color=GREY, linestyle="--", linewidth=1)
    ax.set_ylabel(titles[what])
    ax.xaxis.set_major_locator(MaxNLocator(5))
    if against == "gradients":
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel(AGAINST[against])
    plain(ax)
