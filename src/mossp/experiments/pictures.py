"""Figures 1 to 5 of the paper, and the rates: curves against cumulative stochastic gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mossp.experiments.comparison import Record
from mossp.experiments.rates import RESIDUALS
from mossp.report.figures import INK, as_inline_svg, matplotlib_figure, plain

Axes = Any

# Told apart by colour-blind readers, on white and on black; the page has a hue for each.
COLOURS = {"MoSSP": "#2b6cb0", "SPDC": "#b9580f", "SALM": "#1b7340", "untuned": "#7a4fb5"}
VARIABLES = {
    "#2b6cb0": "var(--blue)", "#b9580f": "var(--orange)", "#1b7340": "var(--good)",
    "#7a4fb5": "var(--violet)",
}  # fmt: skip
FLOOR = 1e-6  # of the violation: a start that is feasible to the last bit is drawn there


def curves(records: list[Record], letter: str, reading: str) -> list[Record]:
    return [r for r in records if r.letter == letter and r.reading in (reading, "untuned")]


def panels(records: list[Record], reading: str) -> dict[str, Callable[[Axes], None]]:
    """(a) to (d): objective and violation, Polyak and recursive."""
    drawn: dict[str, Callable[[Axes], None]] = {}
    for letter, momentum in (("P", "Polyak"), ("R", "recursive")):
        chosen = curves(records, letter, reading)
        for metric in ("objective", "violation"):
            name = f"{metric.capitalize()}, {momentum}"
            drawn[name] = partial(draw, records=chosen, metric=metric)
    return drawn


def draw(ax: Axes, records: list[Record], metric: str) -> None:
    """The mean over runs, with a band of one standard deviation."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    later = []
    for r in records:
        at = np.array(r.run["gradients"], np.float64)
        rows = np.array(r.run[metric], np.float64)
        mean, spread = rows.mean(axis=1), rows.std(axis=1)
        untuned = r.reading == "untuned"
        label = r.method + " untuned" * untuned
        colour = COLOURS["untuned" if untuned else r.method.split("-")[0]]
        low, high = mean - spread, mean + spread
        if metric == "violation":
            mean, low, high = (np.maximum(v, FLOOR) for v in (mean, np.fmin(rows.min(axis=1), mean),
                                                              high))  # fmt: skip
        ax.plot(at, mean, color=colour, linewidth=1.5, label=label,
                linestyle="--" if untuned else "-")  # fmt: skip
        ax.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        later.append(mean[len(mean) // 20 :])
    if metric == "violation":
        ax.set_yscale("log")
        ax.set_ylabel("violation")
    else:
        # The first steps would squeeze what comes after them.
        low, high = min(s.min() for s in later), max(s.max() for s in later)
        ax.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))
        ax.set_ylabel("objective F(x)")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel("stochastic gradients")
    finish(ax)


def finish(ax: Axes) -> None:
    plain(ax)
    ax.legend(frameon=False, fontsize="small", labelcolor=INK)


def draw_rate(ax: Axes, part: dict[str, Any], order: float) -> None:
    """Residuals against K, and the theory's order as a line through the middle of ||u||^2."""
    Ks, means = np.array(part["K"], np.float64), np.array(part["means"])
    for colour, name, column in zip(COLOURS.values(), RESIDUALS, means.T, strict=False):
        ax.loglog(Ks, column, "o-", color=colour, linewidth=1.4, markersize=3.5, label=f"E{name}")
    line = means[len(Ks) // 2, 0] * (Ks / Ks[len(Ks) // 2]) ** order
    ax.loglog(Ks, line, ":", color=INK, linewidth=1.2, label=f"order {order:.2f}")
    ax.set_xlabel("number of steps K")
    finish(ax)


def save(drawn: dict[str, Callable[[Axes], None]], title: str, path: Path) -> None:
    """All panels side by side as a picture file."""
    figure = matplotlib_figure()(figsize=(4.2 * len(drawn), 3.4), layout="constrained")
    figure.suptitle(title)
    for number, (name, paint) in enumerate(drawn.items()):
        ax = figure.add_subplot(1, len(drawn), number + 1)
        paint(ax)
        ax.set_title(f"({'abcdefgh'[number]}) {name}", fontsize="medium")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def inline(drawn: dict[str, Callable[[Axes], None]], prefix: str) -> list[tuple[str, str]]:
    """(name, SVG) of every panel, for the page."""
    return [
        (name, as_inline_svg(paint, f"{prefix}{number}", name, VARIABLES))
        for number, (name, paint) in enumerate(drawn.items())
    ]
