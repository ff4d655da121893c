"""The runner: parts in order, each kept on disk, then tables, figures and one page."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mossp._base.progress import Bar
from mossp.experiments import comparison, pictures, rates
from mossp.experiments.comparison import Record
from mossp.experiments.instances import Folder, Instance, Optimum, instance, optimum
from mossp.experiments.page import Chapter, write
from mossp.experiments.protocol import FULL, QUICK, Contestant, Protocol, contestants
from mossp.experiments.runs import choose, gradients, run
from mossp.experiments.store import Store
from mossp.report import numbers
from mossp.report.page import put

EXPERIMENTS = ("sphere", "quadratics", "rates")


class Reproduction(NamedTuple):
    """What was found, and where it was written."""

    page: Path
    records: list[Record]
    rates: dict[str, dict[str, Any]]


def reproduce(
    which: str = "all",
    out: str | os.PathLike[str] = "mossp-reproduction",
    *,
    data_dir: Folder = None,
    quick: bool = False,
    budget: str = "gradients",
    lams: tuple[float, ...] | None = None,
    progress: bool = False,
    protocol: Protocol | None = None,
) -> Reproduction:
    """The paper's experiments: tables, figures and a page, written into the folder `out`.

    Finished parts are kept in `out/parts`: called again with the same settings, it goes on.

    Parameters
    ----------
    which : {"all", "sphere", "quadratics", "rates"}
        "sphere" (Section 4), "quadratics" (Appendix D.3), "rates" (the theorems' orders) or "all".
    out : path
        The folder.
    data_dir : path, optional
        Folder of a9a, phishing and australian; else MOSSP_DATA, the cache, a download.
    quick : bool
        The same path on small budgets and generated data.
    budget : {"gradients", "seconds"}
        "gradients": each method gets as many as MoSSP uses, repeatable bit for bit; "seconds": each
        gets MoSSP's time after compilation, as in the paper.
    lams : tuple of float, optional
        Weights of the regulariser on the sphere: 0.01 unless given.
    progress : bool
        Whether a bar is shown.
    protocol : Protocol, optional
        All settings at once, in place of those of `quick`.
    """
    chosen = EXPERIMENTS if which == "all" else (which,)
    if not set(chosen) <= set(EXPERIMENTS):
        raise ValueError(
            f"There is no experiment {which!r}: choose {', '.join(EXPERIMENTS)} or all."
        )
    if budget not in ("gradients", "seconds"):
        raise ValueError(f"budget must be 'gradients' or 'seconds', but {budget!r} was given.")
    p = protocol or (QUICK if quick else FULL)
    p = dataclasses.replace(p, budget=budget, lams=tuple(lams or p.lams))
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"The folder {folder} cannot be made ({error.strerror}).") from error
    return Runner(p, folder, data_dir, progress).run(chosen)


class Runner:
    """Goes through the parts and writes what they give."""

    def __init__(self, p: Protocol, folder: Path, data_dir: Folder, progress: bool) -> None:
        self.p, self.folder, self.data_dir, self.progress = p, folder, data_dir, progress
        # What does not change a part's numbers does not spoil those that are kept.
        settings = dataclasses.asdict(dataclasses.replace(p, lams=(), regularizers=()))
        self.store = Store(folder / "parts", settings)
        self.instances: dict[tuple[str, str, str, float], Instance] = {}

    def run(self, chosen: tuple[str, ...]) -> Reproduction:
        cells = [cell for name in chosen if name != "rates" for cell in self.cells(name)]
        settings = rates.SETTINGS if "rates" in chosen else ()
        total = len(settings)
        for experiment, _, reg, _ in cells:
            group = contestants(self.p, experiment)
            total += 1 + len(group) + (reg == "l1-l2") * sum(c.grid is not None for c in group)
        with Bar(total, self.progress) as bar:
            parts = Parts(bar)
            records = [r for cell in cells for r in self.compare(cell, parts)]
            orders = {}
            for setting in settings:
                parts.next(f"rates: {setting.result}")
                work = partial(
                    rates.measure, setting, self.p.rates, self.p.rate_replicas, self.p.seed,
                    self.p.rate_steps,
                )  # fmt: skip
                orders[setting.result] = self.store.make(f"rates {setting.result}", work)
            bar.show(total, "done")
        return Reproduction(self.write(records, orders), records, orders)

    def cells(self, experiment: str) -> Iterator[tuple[str, str, str, float]]:
        """Instances in order; l1 - l2 comes first, since the others reuse what is tuned on it."""
        if experiment == "quadratics":
            for data in self.p.data[experiment]:
                yield experiment, data, "l1-l2", 0.01
            return
        for data in self.p.data[experiment]:
            for lam in self.p.lams:
                for reg in self.p.regularizers:
                    yield experiment, data, reg, lam

    def compare(self, cell: tuple[str, str, str, float], parts: Parts) -> list[Record]:
        """Every contestant on one instance."""
        experiment, data, reg, lam = cell
        key, found = " ".join(map(str, cell)), []
        group = contestants(self.p, experiment)

        def given() -> Instance:
            return self.given(cell)

        parts.next(f"{experiment} {data} {reg}: optimum")
        best = Optimum(
            *self.store.make(
                f"{key} optimum", lambda: list(optimum(given(), self.p.starts, self.p.seed))
            )
        )

        def grid_of(who: Contestant, first: Contestant) -> dict[str, Any]:
            tuned = self.given(tuned_on)
            return choose(self.p, tuned, who, gradients(self.p, tuned, first))

        def runs_of(
            who: Contestant, first: Contestant, values: dict[str, float], times: dict[str, float]
        ) -> dict[str, Any]:
            budget = self.budget(given(), who, first, times)
            return run(self.p, given(), who, values, budget, best)

        times: dict[str, float] = {}
        tuned_on = (experiment, data, "l1-l2", lam)
        for who in group:
            first = next(c for c in group if c.letter == who.letter)
            choice, values = None, {}
            if who.grid is not None:
                if reg == "l1-l2":
                    parts.next(f"{experiment} {data} {reg}: grid of {who.label}")
                work = partial(grid_of, who, first)
                choice = self.store.make(f"{' '.join(map(str, tuned_on))} {who.label} grid", work)
                values = choice["values"]
            parts.next(f"{experiment} {data} {reg}: runs of {who.label}")
            work = partial(runs_of, who, first, values, times)
            part = self.store.make(f"{key} {who.label} runs", work)
            times[f"{who.name} {who.reading}"] = part["cost"]["seconds"]
            found.append(
                Record(experiment, data, reg, lam, who.name, who.letter, who.reading, choice, part)
            )
        return found

    def given(self, cell: tuple[str, str, str, float]) -> Instance:
        """The instance, made only if some part of it has to be; one is kept at a time."""
        if cell not in self.instances:
            self.instances.clear()
            self.instances[cell] = instance(self.p, *cell, self.data_dir)
        return self.instances[cell]

    def budget(
        self, given: Instance, who: Contestant, first: Contestant, times: dict[str, float]
    ) -> dict[str, Any]:
        """Of a contestant's runs."""
        if who.name == first.name and (who.grid is not None or self.p.budget == "seconds"):
            return {"steps": self.p.steps[given.experiment]}
        if self.p.budget == "seconds":
            return {"seconds": times[f"{first.name} {who.reading}"]}
        return {"gradients": gradients(self.p, given, first)}

    # What is written -----------------------------------------------------------------------

    def write(self, records: list[Record], orders: dict[str, dict[str, Any]]) -> Path:
        chapters, text = [], ["# The paper's experiments, reproduced with mossp", ""]
        for number, (title, group) in enumerate(by_instance(records).items()):
            shown = comparison.comparison(group)
            figures = {}
            for reading in dict.fromkeys(r.reading for r in group if r.reading != "untuned"):
                drawn = pictures.panels(group, reading)
                name = f"{title}, {reading} reading"
                pictures.save(drawn, name, self.folder / "figures" / f"{slug(name)}.png")
                figures[name] = pictures.inline(drawn, f"c{number}{reading[0]}")
            chapters.append(Chapter(title, group[0].experiment, shown, figures))
            text += [f"## {title}", "", *[t.markdown() + "\n" for t in shown]]
        if orders:
            shown = [rate_table(orders)]
            drawn = {
                s.result: partial(pictures.draw_rate, part=orders[s.result], order=s.order)
                for s in rates.SETTINGS
                if s.result in orders
            }
            pictures.save(drawn, "Orders in K", self.folder / "figures" / "rates.png")
            chapters.append(Chapter("Orders in K", "rates", shown,
                                    {"Orders in K": pictures.inline(drawn, "r")}))  # fmt: skip
            text += ["## Orders in K", "", shown[0].markdown(), ""]
        put("\n".join(text), self.folder / "tables.md")
        if records:
            put(comparison.as_csv(records), self.folder / "tables.csv")
        return write(self.folder, self.p, chapters, records, orders)


def by_instance(records: list[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for r in records:
        name = "Sphere" if r.experiment == "sphere" else "Quadratic equalities"
        groups.setdefault(f"{name}: {r.data}, {r.regularizer}, λ = {r.lam:g}", []).append(r)
    return groups


def rate_table(orders: dict[str, dict[str, Any]]) -> comparison.Table:
    """Fitted orders with their intervals, beside the theory's."""
    known = [s for s in rates.SETTINGS if s.result in orders]
    rows = [
        (
            f"E{name}",
            [
                "{} [{}, {}]".format(*(numbers.fixed(v, 2) for v in orders[s.result]["slopes"][k]))
                for s in known
            ],
        )
        for k, name in enumerate(rates.RESIDUALS)
    ]
    rows.append(("theory", [numbers.fixed(s.order, 2) for s in known]))
    columns = [f"{s.result} ({s.letter})" for s in known]
    return comparison.Table(
        "Fitted order in K over the last half, 95 % interval", columns, rows, set()
    )


def slug(text: str) -> str:
    return "-".join(
        "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower()).split()
    )


class Parts:
    """Parts done of all, shown on a bar."""

    def __init__(self, bar: Bar) -> None:
        self.bar, self.done = bar, -1

    def next(self, label: str) -> None:
        """The part before is done, this one begins."""
        self.done += 1
        self.bar.show(self.done, label)
