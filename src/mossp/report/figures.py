"""Figures of a result: the run as it went, and the coefficients it found."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mossp._base.printing import short
from mossp.report import numbers
from mossp.report.wording import coefficients, constrained, intercepts
from mossp.result import Result

Axes = Any

BLUE, ORANGE, GREY = "#3b82c4", "#d9782d", "#808890"  # readable on white and on black alike
MOST_COEFFICIENTS = 40
DEPTH = 1e-3  # of the axis of the violation below what matters, tol and the final value

# On the page the ink of the figures is that of the text around them, in light and in dark.
INK = "#010203"
PAGE_COLOURS = {INK: "currentColor", BLUE: "var(--blue)", ORANGE: "var(--orange)"}
PAGE_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text, in the page's font
    "svg.hashsalt": "mossp",  # the same result gives the same page
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def plot(
    result: Result | Sequence[Result],
    ax: Any = None,
    *,
    path: str | os.PathLike[str] | None = None,
    names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
) -> Any:
    """Draw a result, or several to compare them, and return the matplotlib figure.

    Objective and violation against stochastic gradients, the mean over replicas with a band from
    the smallest to the largest; below them the largest coefficients. Of several results objective,
    residual and violation, against gradients and against seconds.

    Parameters
    ----------
    result : Result or list of Result
        What `solve` returned, once or several times.
    ax : Axes or sequence of Axes, optional
        One for the objective, or up to three for objective, violation, coefficients.
    path : path, optional
        Also save the figure there; the ending decides the format.
    names : sequence of str, optional
        One for each entry of x.
    labels : sequence of str, optional
        One for each of several results; their methods if left out.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Examples
    --------
    >>> import matplotlib, numpy as np, mossp
    >>> matplotlib.use("agg")
    >>> problem = mossp.Problem(loss=lambda x: x[0], equality=lambda x: x @ x - 1.0)
    >>> result = mossp.solve(problem, np.array([0.6, 0.8]), steps=500)
    >>> from mossp.report import plot
    >>> len(plot(result).axes)
    3
    """
    if not isinstance(result, Result):
        from mossp.report.comparison import plot_several

        return plot_several(list(result), labels, ax, path)
    panels = _run_panels(result)
    apart = {name for name, _ in intercepts(result, names)}
    entries = [entry for entry in coefficients(result, names) if entry[0] not in apart]
    panels["coefficients"] = lambda a: _coefficients(a, entries)
    if ax is not None:
        axes = given_axes(ax, len(panels))
        figure = axes[0].figure
    else:
        figure = new_figure((9.0, 6.5), shown=path is None)
        grid = figure.add_gridspec(2, len(panels) - 1)
        axes = [figure.add_subplot(grid[0, i]) for i in range(len(panels) - 1)]
        axes.append(figure.add_subplot(grid[1, :]))
    for a, draw in zip(axes, panels.values(), strict=False):
        draw(a)
    if path is not None:
        figure.savefig(path)
    return figure


def given_axes(ax: Any, most: int) -> list[Axes]:
    """What the caller wants to be drawn on, as a list."""
    axes = list(np.ravel(ax))
    if not axes or not all(hasattr(a, "plot") for a in axes):
        raise TypeError(f"ax must be a matplotlib Axes or several, but {ax!r} was given.")
    if len(axes) > most:
        raise ValueError(f"This result fills {most} Axes, but {len(axes)} were given.")
    return axes


def new_figure(size: tuple[float, float], shown: bool) -> Any:
    """A figure of our own; `shown`: pyplot.show() will show it."""
    figure_class = matplotlib_figure()
    if shown:
        from matplotlib import pyplot

        return pyplot.figure(figsize=size, layout="constrained")
    return figure_class(figsize=size, layout="constrained")


def run_figures(result: Result) -> list[tuple[str, str]]:
    """(what is shown, inline SVG) of the run, for a page; colours follow the page."""
    return [
        (title, as_inline_svg(draw, f"f{number}", title))
        for number, (title, draw) in enumerate(_run_panels(result).items())
    ]


def as_inline_svg(
    draw: Callable[[Axes], None], prefix: str, title: str, colours: dict[str, str] | None = None
) -> str:
    """What `draw` paints on an Axes, as an element of a page: `prefix` keeps its ids apart."""
    figure_class = matplotlib_figure()
    import matplotlib

    with matplotlib.rc_context(PAGE_STYLE):
        # As wide as a phone, so that letters keep their size there.
        figure = figure_class(figsize=(4.4, 3.0), layout="constrained")
        draw(figure.add_subplot())
        buffer = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    return _inline(buffer.getvalue(), prefix, title, PAGE_COLOURS | (colours or {}))


def _inline(svg: str, prefix: str, title: str, colours: dict[str, str]) -> str:
    """An SVG file as an element of a page: no header, no size of its own, no id twice."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    head, body = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'(href="|url\()#', rf"\g<1>#{prefix}-", body)
    for colour, name in colours.items():
        body = body.replace(colour, name)
    return f'<svg {box[0]} role="img" aria-label="{title}">{body}'


def matplotlib_figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("plot needs matplotlib: pip install 'mossp[plot]'") from None
    return Figure


def _run_panels(result: Result) -> dict[str, Callable[[Axes], None]]:
    panels: dict[str, Callable[[Axes], None]] = {"Objective": lambda a: _objective(a, result)}
    if constrained(result):
        panels["Violation of the constraints"] = lambda a: _violation(a, result)
    return panels


# One panel each. --------------------------------------------------------------------------------


def _objective(ax: Axes, result: Result) -> None:
    _curve(ax, result, result.trace.objective, BLUE)
    last = result.fun
    if result.trace.rows < (result.settings.get("samples") or 0) and len(result.trace.objective):
        # A curve of some of the rows ends in a dot of the same rows: that on all is elsewhere.
        seen = np.ravel(result.trace.objective[-1])
        last = float(np.mean(seen)) if np.isfinite(seen).all() else np.nan
    _mark(ax, result, last, numbers.value(last, 6), BLUE, above=True)
    ax.margins(y=0.15)
    ax.set_ylabel("objective F(x)")


def _violation(ax: Axes, result: Result) -> None:
    # A start may be feasible to the last bit: such values are drawn at the bottom, lest they
    # squeeze the rest.
    final, tol = result.violation, result.tol
    floor = 10.0 ** np.floor(np.log10(DEPTH * (min(final, tol) if final > 0 else tol)))
    rows = np.asarray(result.trace.violation, np.float64)
    drawn = np.fmax(rows, np.where(np.isnan(rows), np.nan, floor))
    seen = [v for v in (*drawn.ravel(), max(final, floor)) if np.isfinite(v)]
    low, high = 0.5 * min([*seen, tol]), 2 * max([*seen, 2.5 * tol])
    low /= (high / low) ** 0.12  # room for the last value below its mark
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    _curve(ax, result, drawn, ORANGE)
    _mark(ax, result, max(final, floor), numbers.residual(final), ORANGE, above=not final <= tol)
    ax.axhline(tol, color=GREY, linestyle="--", linewidth=1)
    _note(ax, 0.5, tol, f"tolerance {numbers.tolerance(tol)}")
    if (rows < floor).any() or final < floor:
        ax.set_ylim(bottom=floor)
        _note(ax, 0.5, floor, f"less than {numbers.tolerance(floor)} is drawn here")
    ax.set_ylabel("violation ‖c(x)‖")


def _curve(ax: Axes, result: Result, rows: Any, colour: str) -> None:
    """Mean over replicas, with a band from the smallest to the largest."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    at = np.asarray(result.trace.gradients, np.float64).ravel()
    rows = np.ma.masked_invalid(np.asarray(rows, np.float64).reshape(len(at), -1))
    mean, low, high = (f(axis=1).filled(np.nan) for f in (rows.mean, rows.min, rows.max))
    ax.plot(at, mean, color=colour, linewidth=1.6, marker="." if len(at) < 3 else None)
    if rows.shape[1] > 1:
        ax.fill_between(at, low, high, color=colour, alpha=0.25, linewidth=0)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel("stochastic gradients" + " (each replica)" * (rows.shape[1] > 1))
    plain(ax)


def _mark(ax: Axes, result: Result, at: float, label: str, colour: str, above: bool) -> None:
    """The returned point's own value."""
    if not np.isfinite(at):
        return
    ax.plot([result.gradients], [at], "o", color=colour, markersize=6, clip_on=False)
    ax.annotate(
        label, (result.gradients, at), xytext=(-4, 7 if above else -7), ha="right",
        va="bottom" if above else "top", textcoords="offset points", fontweight="bold",
    )  # fmt: skip


def _note(ax: Axes, x: float, y: float, text: str) -> None:
    ax.annotate(
        text, (x, y), xytext=(0, 2), xycoords=("axes fraction", "data"), ha="center",
        va="bottom", textcoords="offset points", fontsize="small",
    )  # fmt: skip


def _coefficients(ax: Axes, entries: list[tuple[str, float]]) -> None:
    shown = entries[:MOST_COEFFICIENTS]
    heights = np.array([v for _, v in shown], np.float64)
    ax.axhline(0, color=GREY, linewidth=0.8)
    if shown:
        at = np.arange(len(shown))
        ax.bar(at, np.nan_to_num(heights, posinf=0, neginf=0), width=0.7,
               color=[BLUE if v >= 0 else ORANGE for v in heights])  # fmt: skip
        # Names come from outside: a dollar sign in one is no formula.
        labels = [short(name, 24) for name, _ in shown]
        ax.set_xticks(at)
        ax.set_xticklabels(
            labels, rotation=45, ha="right", rotation_mode="anchor", fontsize="small",
            parse_math=False,
        )  # fmt: skip
    ax.set_ylabel("coefficient")
    left_out = len(entries) - len(shown)
    title = numbers.counted(len(entries), "nonzero coefficient")
    ax.set_title(title + f", the largest {len(shown)} shown" * (left_out > 0), fontsize="medium")
    plain(ax)


def plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.25, linewidth=0.6)
