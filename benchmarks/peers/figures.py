"""Figures in figures/, small files: what is reached on the way, and performance profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from benchmarks.peers import kkt
from benchmarks.peers.statement import Statement

matplotlib.use("agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).with_name("figures")
LEAST = 1e-16  # what is exactly 0 is drawn here
# Colours that remain apart for most who see few of them (Okabe and Ito); ours is black and thick.
STYLES: dict[str, dict[str, Any]] = {
    "mossp": {"color": "black", "linewidth": 2.2, "marker": "o", "markersize": 3.5, "zorder": 5},
    "cooper": {"color": "#E69F00"},
    "hc SSL-ALM": {"color": "#56B4E9"},
    "PyGRANSO": {"color": "#009E73"},
    "SLSQP": {"color": "#D55E00"},
    "trust-constr": {"color": "#CC79A7"},
}
FAR = 1e5  # times the least cost, where profiles end
Answers = dict[tuple[str, str], dict[str, Any]]
Curve = dict[str, np.ndarray]


def curves(given: Statement, answers: Answers) -> dict[str, Curve]:
    """Residual, violation, seconds and passes at the points that runs noted, and at their ends."""
    found = {}
    for (problem, solver), answer in answers.items():
        if problem != given.name or not len(answer["times"]):
            continue
        xs = [*answer["points"], answer["xs"][0]]
        tidy = [kkt.tidied(given, x) for x in xs]
        found[solver] = {
            # Points are noted by a run of its own, which may be slower than the one that is timed.
            "seconds": np.r_[answer["times"], max(answer["seconds"][0], answer["times"][-1])],
            "passes": np.r_[answer["passes_at"], answer["passes"][0]],
            "residual": np.array([kkt.residual(given, x) for x in tidy]),
            "violation": np.array([given.violation(x) for x in tidy]),
        }
    return found


def trajectories(given: Statement, answers: Answers) -> None:
    found = curves(given, answers)
    figure, axes = plt.subplots(2, 2, figsize=(8, 5.6), sharex="col", sharey="row")
    for column, along in enumerate(("passes", "seconds")):
        for row, what in enumerate(("residual", "violation")):
            draw(axes[row, column], found, along, what)
    label(axes)
    axes[1, 0].set_xlabel("passes over the data (gradients of all rows)")
    axes[1, 1].set_xlabel("seconds of one processor, compiled")
    axes[0, 1].legend(fontsize=8, loc="lower left")
    figure.suptitle(f"{given.name}: $\\ell_1 - \\ell_2$ logistic regression", fontsize=11)
    save(figure, "trajectories")
    figure, pair = plt.subplots(1, 2, figsize=(8, 3.1))
    for axis, what in zip(pair, ("residual", "violation"), strict=True):
        draw(axis, found, "passes", what)
        axis.set_xlabel("passes over the data")
    label(pair[:, None])
    pair[0].legend(fontsize=7, loc="lower left")
    save(figure, "front")


def draw(axis: Any, found: dict[str, Curve], along: str, what: str) -> None:
    for solver, curve in found.items():
        left = 0.5 if along == "passes" else 1e-3
        where = np.maximum(curve[along], left)
        order = np.argsort(where, kind="stable")
        values = np.maximum(curve[what], LEAST)
        axis.loglog(where[order], values[order], label=solver, **STYLES.get(solver, {}))
    axis.grid(True, alpha=0.3)


def label(axes: Any) -> None:
    axes[0, 0].set_ylabel("KKT residual")
    axes[1, 0].set_ylabel("violation")


def profiles(costs: dict[str, dict[str, np.ndarray]], name: str, title: str, unit: str) -> None:
    """A panel for every noise: the share of problems solved within so many times the least cost.

    `costs` is panel -> solver -> cost a problem, infinite where it was not solved.
    """
    figure, axes = plt.subplots(1, len(costs), figsize=(3.2 * len(costs), 3.1), sharey=True)
    for axis, (panel, by_solver) in zip(np.atleast_1d(axes), costs.items(), strict=True):
        least = np.min(list(by_solver.values()), axis=0)
        for solver, cost in by_solver.items():
            ratio = np.sort(
                [c / l if np.isfinite(c) else np.inf for c, l in zip(cost, least, strict=True)]
            )
            solved = ratio[np.isfinite(ratio)]
            share = np.arange(1, len(solved) + 1) / max(len(cost), 1)
            axis.step(np.r_[1, solved, FAR], np.r_[0, share, share[-1:] if len(share) else 0],
                      where="post", label=solver, **plain(solver))  # fmt: skip
        axis.set_xscale("log")
        axis.set_xlim(1, FAR)
        axis.set_ylim(0, 1.02)
        axis.set_title(panel, fontsize=10)
        axis.set_xlabel(f"{unit}, times the least", fontsize=9)
        axis.grid(True, alpha=0.3)
    np.atleast_1d(axes)[0].set_ylabel("share of problems solved")
    np.atleast_1d(axes)[0].legend(fontsize=8, loc="lower right")
    figure.suptitle(title, fontsize=10)
    save(figure, name)


def plain(solver: str) -> dict[str, Any]:
    return {k: v for k, v in STYLES.get(solver, {}).items() if not k.startswith("marker")}


def save(figure: Any, name: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(FOLDER / f"{name}.png", dpi=110)
    plt.close(figure)
    shrink(FOLDER / f"{name}.png")


def shrink(path: Path) -> None:
    """Lines and letters need few colours: a third of the bytes."""
    from PIL import Image  # comes with matplotlib

    with Image.open(path) as image:
        few = image.convert("RGB").quantize(64)
    few.save(path, optimize=True)
