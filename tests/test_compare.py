"""What the comparison with others rests on: two judges that agree, the tables, benchopt's files."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import importlib.util
import sys
import time
import types

import numpy as np
import pytest

import mossp
from benchmarks.peers import counted, environments, kkt, ours, results, running, scoring, tables
from benchmarks.peers.results import Row
from benchmarks.peers.statement import Statement, load, stated


def rows(N: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, n))
    return X, np.where(X[:, 0] + rng.normal(size=N) > 0, 1.0, -1.0)


def problem(kind: str) -> Statement:
    """Small ones of every form that the suites have."""
    n, rng = 6, np.random.default_rng(1)
    X, y = rows(40, n, 0)
    starts = np.ones((2, n))
    if kind == "quadratics":
        Q, p = rng.uniform(0.5, 1, (2, n)), rng.normal(size=(2, n))
        return stated(kind, X, y, starts, lam=0.1, Q=Q, p=p, r=rng.normal(size=2))
    d = np.where(np.arange(40) < 15, 40 / 15, -40 / 25)
    if kind == "loss":
        return stated(kind, X, y, starts, d=d, sides=(1.0, -1.0), bound=0.01, kind="loss")
    return stated(
        kind, X, y, starts, lam=0.02, w=(y > 0) / (y > 0).sum(), d=(y < 0) / (y < 0).mean(),
        sides=(1.0,), bound=0.1,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["quadratics", "loss", "selection"])
def test_the_two_judges_agree_at_any_point(kind):
    """With zeros in x and without, and with the inequality active."""
    given, rng = problem(kind), np.random.default_rng(2)
    stated_to_us = ours.as_problem(given)
    for share in (1.0, 0.5):
        x = rng.normal(size=given.n) * (rng.random(given.n) < share)
        c = given.c(x)[0]
        if given.sides and not (c >= -kkt.ACTIVE).any():
            given = dataclasses.replace(given, bound=float(abs(given.gap(x)[0])))
            stated_to_us = ours.as_problem(given)
        theirs, again = mossp.stationarity(stated_to_us, x), kkt.residual(given, x)
        assert theirs == pytest.approx(again, rel=1e-6, abs=1e-9)
        assert again > 1e-3  # a point that is not critical is not called so


@pytest.mark.parametrize("kind", ["quadratics", "loss", "selection"])
def test_derivatives_of_a_statement_are_those_of_its_values(kind):
    given = problem(kind)
    x, step = np.random.default_rng(3).normal(size=given.n), 1e-6
    for e in np.eye(given.n):
        up, down = x + step * e, x - step * e
        assert (given.f(up)[0] - given.f(down)[0]) / (2 * step) == pytest.approx(
            given.f(x)[1] @ e, abs=1e-7
        )
        rise = (given.c(up)[0] - given.c(down)[0]) / (2 * step)
        assert rise == pytest.approx(given.c(x)[1] @ e, abs=1e-7)


def test_entries_near_zero_count_as_zero_where_that_is_better():
    """At an answer with 1e-7 in place of 0 the residual is as large as lam."""
    given = dataclasses.replace(problem("quadratics"), Q=np.zeros((0, 6)), p=np.zeros((0, 6)),
                                r=np.zeros(0), lam=0.3)  # fmt: skip
    x = np.array(mossp.solve(ours.as_problem(given), np.full(6, 0.5)).x)
    assert kkt.residual(given, x) < 1e-8 and (x == 0).any() and (x != 0).any()
    near = np.where(x == 0, 1e-7, x)
    assert kkt.residual(given, near) > 0.01
    assert kkt.residual(given, kkt.tidied(given, near)) < 1e-5


def test_a_statement_survives_its_file(tmp_path):
    given = problem("selection")
    given.save(tmp_path / "p.npz")
    again = load(str(tmp_path / "p.npz"))
    for field in dataclasses.fields(given):
        assert np.array_equal(getattr(given, field.name), getattr(again, field.name))


@pytest.mark.parametrize("penalty", ["l1", "mcp"])
def test_the_two_judges_agree_without_constraints(penalty):
    X, y = rows(40, 6, 0)
    w = np.array([0.5, -0.01, 0.0, 0.0, 1.0, -0.3])
    reg = mossp.L1(0.1) if penalty == "l1" else mossp.MCP(0.1, 3.0)
    theirs = mossp.stationarity(mossp.Problem(mossp.losses.logistic, (X, y), reg), w)
    assert kkt.separable(X, y, w, penalty, 0.1, 3.0) == pytest.approx(theirs, rel=1e-9)


# Workers ----------------------------------------------------------------------------------------


def test_a_worker_solves_a_statement_in_a_process_of_its_own(tmp_path):
    """SLSQP, by the interpreter at hand: settings tuned, an answer a seed, judged a KKT point."""
    given = stated("ball", *rows(40, 6, 0), np.eye(6)[:3], lam=0.05, Q=np.full((1, 6), 2.0),
                   p=np.zeros((1, 6)), r=np.ones(1))  # fmt: skip
    given.save(tmp_path / "ball.npz")
    here = environments.Environments({"scipy": sys.executable})
    job = {"trials": 3, "seeds": 2, "seconds": 5.0, "limit": 5.0}
    answer = running.run(here, running.SLSQP, tmp_path / "ball.npz", job, tmp_path)
    made = scoring.rows(given, ours.as_problem(given), "a", "SLSQP", answer, job)
    assert len(made) == 2 and all(row.converged and row.said == "yes" for row in made)
    assert made[0].versions.startswith("scipy ")
    with pytest.raises(environments.NotAvailable):  # a peer that is not there
        running.run(
            here, running.Peer("none", "scipy", "none"), tmp_path / "ball.npz", job, tmp_path
        )


def test_a_problem_behind_a_pipe_is_solved_and_judged():
    pytest.importorskip("matplotlib", reason="the suite draws profiles")
    from benchmarks.peers import families
    from benchmarks.peers.suites import d

    case = families.drawn("halfspaces-mcp", 0)
    problem = families.Evaluated(case, 0.0, 0)
    with d.Pipe(sys.executable, "remote_scipy", "SLSQP") as pipe:
        found = pipe.run(problem, 500)
        again = pipe.run(families.Evaluated(case, 0.0, 0), 3)  # stopped, and the worker lives on
    assert found["said"] and again["said"] is None and again["gradients"] == 3
    assert families.verdict(case, found["end"], 0.0)[0]
    assert not families.verdict(case, found["end"] + 0.05, 0.0)[0]
    infeasible = families.drawn("infeasible-planes", 0)
    assert not families.verdict(infeasible, np.zeros(5), 0.1)[0]


def test_the_best_of_the_first_trials_have_a_longer_one():
    pytest.importorskip("matplotlib", reason="the suite draws profiles")
    from benchmarks.peers.families import Evaluated, drawn
    from benchmarks.peers.suites import d

    class Pipe:
        """The farther from the settings wanted the worse; the short trials are blind to them."""

        def __init__(self):
            self.asked = []

        def run(self, problem, gradients, settings):
            self.asked.append((gradients, settings))
            off = abs(np.log(settings["lr"] / 0.01)) if gradients == d.TRIALS[1] else 0.0
            return {"end": problem.case.x0 + 100.0 * off}

    pipe = Pipe()
    found = d.tuned(pipe, "valley", 0.0, 20)
    short, again = (
        [s for g, s in pipe.asked if g == gradients] for gradients in d.TRIALS
    )  # fmt: skip
    assert len(short) == 20 and len(again) == d.AGAIN and again == short[: d.AGAIN]
    problem = Evaluated(drawn("valley", d.TUNED_ON), 0.0, d.TUNED_ON)
    merits = [problem.merit(Pipe().run(problem, d.TRIALS[1], s)["end"]) for s in again]
    assert found == again[int(np.argmin(merits))] and len(set(merits)) == d.AGAIN


def test_false_successes_are_counted():
    def made(solver, seed, **more):
        return Row("d", "planes, noise 0.1", solver, seed, passes=10.0, **more)

    text = counted.table([
        made("mossp", 0, converged=True, said="yes", note=counted.SOLVABLE),
        made("mossp", 1, said="no", note=counted.NOT),
        made("bold", 0, said="yes", note=counted.SOLVABLE),
        made("bold", 1, said="yes", note=counted.NOT),
        made("mute", 0, converged=True, note=counted.SOLVABLE),
    ])  # fmt: skip
    cells = {line.split("|")[2].strip(): line.split("|")[3:9] for line in text.splitlines()}
    cells = {solver: [cell.strip() for cell in row] for solver, row in cells.items()}
    assert cells["mossp"] == ["**1**", "1", "1", "0", "10", ""]
    assert cells["bold"][:4] == ["0", "1", "2", "2"]
    assert cells["mute"][2:4] == ["N/A", "N/A"]


def test_what_we_lose_is_marked_where_problems_are_counted():
    def made(solver, seed, passes, converged, said):
        return Row("d", "planes, noise 0", solver, seed, passes=passes, converged=converged,
                   said=said, note=counted.SOLVABLE)  # fmt: skip

    text = counted.table([
        made("mossp", 0, 20.0, True, "yes"), made("mossp", 1, 20.0, False, "yes"),
        made("better", 0, 10.0, True, "yes"), made("better", 1, 10.0, True, "no"),
        made("dearer", 0, 30.0, True, "yes"), made("dearer", 1, 30.0, False, "yes"),
    ])  # fmt: skip
    lines = {line.split("|")[2].strip(): line.count(counted.LOST) for line in text.splitlines()}
    assert lines["better"] == 3 and "**2** ◂" in text and "**0** ◂" in text and "**10** ◂" in text
    assert lines["mossp"] == lines["dearer"] == 0


# Results and tables -----------------------------------------------------------------------------


def run(solver: str, seed: int = 0, **more) -> Row:
    good = {"objective": 0.5, "violation": 0.0, "kkt": 1e-12, "kkt_independent": 1e-12,
            "seconds": 0.2, "all_in_seconds": 3.0, "converged": True, "versions": "it 1.0",
            "date": "2026-01-01", "processor": "one"}  # fmt: skip
    return Row("a", "sphere", solver, seed, **{**good, **more})


def test_a_suite_replaces_its_own_rows_only(tmp_path):
    path = tmp_path / "results.csv"
    results.replace("a", [run("mossp"), run("cooper", kkt=float("nan"))], path)
    results.replace("b", [dataclasses.replace(run("mossp"), suite="b")], path)
    found = results.replace("a", [run("mossp", seconds=0.1)], path)
    assert results.read(path) == found
    assert [(row.suite, row.seconds) for row in found] == [("a", 0.1), ("b", 0.2)]
    other = dataclasses.replace(run("mossp"), problem="ball")
    found = results.replace("a", [other], path, part=True)
    assert [(row.suite, row.problem) for row in found] == [
        ("a", "sphere"), ("a", "ball"), ("b", "sphere")
    ]  # fmt: skip


def test_tables_mark_what_we_lose_and_name_what_is_missing(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "before\n" + "\n".join("\n".join(tables.markers(s)) for s in "abcd") + "\nafter"
    )
    made = [
        run("mossp"),
        run("faster", seconds=0.1, all_in_seconds=1.0),
        run("lower", objective=0.4),
        run("cheating", objective=0.4, violation=0.01, converged=False),
        run("nearly", objective=0.4999, violation=9e-4),
        run("slow", kkt=0.1, kkt_independent=0.1, converged=False),
        Row("a", "sphere", "absent", note="N/A: no such package"),
    ]
    tables.write(made, page)
    tables.write(made, page)  # the second time changes nothing
    text = page.read_text()
    assert text.startswith("before") and text.rstrip().endswith("after")
    assert text.count("| faster |") == 1
    line = {
        row.solver: next(t for t in text.splitlines() if f"| {row.solver} |" in t) for row in made
    }
    assert counted.LOST not in line["mossp"]
    assert line["faster"].count(counted.LOST) == 2 and "**0.1**" in line["faster"]
    assert f"**0.400000**{counted.LOST}" in line["lower"]
    assert "not feasible" in line["cheating"] and "0.400000" not in line["cheating"]
    assert counted.LOST not in line["nearly"]  # its merit is higher, for its violation
    assert "not converged" in line["slow"]
    assert "N/A" in line["absent"] and "no such package" in line["absent"]
    assert "Not run yet." in text


def test_an_environment_that_cannot_be_made_is_a_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(environments.venv, "create", lambda *_, **__: None)
    monkeypatch.setitem(environments.PACKAGES, "none", ["nothing-of-this-name"])
    made = environments.Environments({})
    with pytest.raises(environments.NotAvailable):
        made.python("none")
    assert environments.Environments({"none": "given"}).python("none") == "given"


def test_workers_side_by_side_make_an_environment_once(monkeypatch):
    made: list[str] = []

    def make(peer: str) -> str:
        made.append(peer)
        time.sleep(0.1)
        return peer

    monkeypatch.setattr(environments, "make", make)
    shared = environments.Environments({})
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: shared.python("pygranso"), range(4)))
    assert made == ["pygranso"]
    assert found == ["pygranso"] * 4


# benchopt's files -------------------------------------------------------------------------------


@pytest.fixture
def benchopt(monkeypatch):
    """Only what a solver file takes from it."""
    stub = types.ModuleType("benchopt")
    stub.BaseSolver = type("BaseSolver", (), {})
    stub.safe_import_context = contextlib.nullcontext
    monkeypatch.setitem(sys.modules, "benchopt", stub)


def solver(name: str):
    path = environments.ROOT / "benchmarks" / "peers" / "benchopt" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.Solver()
    made.method = made.parameters["method"][0]
    assert made.name == "mossp" and made.sampling_strategy == "tolerance"
    return made


@pytest.mark.parametrize("name", ["mossp_logreg_l1", "mossp_mcp"])
def test_a_solver_for_benchopt_minimises_benchopts_objective(name, benchopt):
    """The subdifferential of the objective as their repository states it."""
    X, y = rows(40, 6, 4)
    given, gamma = solver(name), 3.0
    if name == "mossp_mcp":
        lmbd = 0.1 * np.abs(X.T @ y).max() / len(y)
        given.set_objective(X, y, lmbd, gamma)
    else:
        lmbd = 0.1 * np.abs(X.T @ y).max() / 2
        given.set_objective(X=X, y=y, lmbd=lmbd)
    given.run(1e-10)
    b = given.get_result()["beta"]
    if name == "mossp_mcp":
        g, slope = X.T @ (X @ b - y) / len(y), np.maximum(lmbd - np.abs(b) / gamma, 0)
    else:
        g, slope = -X.T @ (y / (1 + np.exp(y * (X @ b)))), np.full(6, lmbd)
    away = np.where(b == 0, np.maximum(np.abs(g) - lmbd, 0), np.abs(g + slope * np.sign(b)))
    assert away.max() <= 1e-7 * max(1.0, lmbd) and (b != 0).any()
