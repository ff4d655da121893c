"""The command: what it prints where, and its exit codes."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time

import matplotlib
import numpy as np
import pytest

import mossp
from mossp import examples
from mossp.app import cli

pytestmark = pytest.mark.slow

matplotlib.use("agg")

QUICK = ["solve", "sphere.py", "--method", "mossp-r", "--steps", "300", "--batch-size", "16"]
SPHERE = """
from mossp import examples
problem, start, names = examples.breast_cancer()
x0 = start(0)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Nothing is written outside."""
    (tmp_path / "sphere.py").write_text(SPHERE)
    monkeypatch.chdir(tmp_path)


def run(capsys, *arguments):
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_solve_prints_the_certificate_and_writes_the_page(capsys, tmp_path):
    code, out, _ = run(capsys, *QUICK, "--tol", "5")
    assert code == 0
    for words in ("criticality", "feasibility", "✓ CONVERGED", "mossp-report/index.html"):
        assert words in out
    page = (tmp_path / "mossp-report" / "index.html").read_text("utf-8")
    assert "mean concave points" in page


def test_the_default_is_certified_to_ten_digits(capsys):
    code, out, _ = run(capsys, "solve", "--no-report", "--starts", "2")
    assert code == 0 and "≤ 1e" in out and "✓ CONVERGED" in out and "2 replicas" in out
    ours, plain, sparse = (
        [int(number) for number in re.findall(r"(\d+) +(\d+) of 212", line)[0]]
        for line in out.splitlines()
        if " of 212 (" in line
    )
    assert ours[0] <= 15 and ours[1] <= 2  # few measurements, at most 1 % missed
    assert plain[0] == 30 and min(plain[1], sparse[1]) > 2  # which nobody asked of the others


def test_without_a_certificate_the_exit_code_is_one(capsys):
    code, out, _ = run(capsys, *QUICK, "--tol", "1e-9", "--no-report")
    assert code == 1
    assert "✗ BUDGET" in out and "does not hold" in out
    assert not os.path.exists("mossp-report")


def test_json_is_all_there_is_on_stdout(capsys, tmp_path):
    code, out, err = run(capsys, *QUICK, "--json", "--out", "deep/er", "--tol", "1e-9")
    found = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert code == 1
    assert set(found) >= {
        "x", "fun", "violation", "success", "status", "message", "certificate", "steps",
        "gradients", "seconds",
    }  # fmt: skip
    assert found["success"] is False and found["status"] == "BUDGET" and found["steps"] == 300
    assert len(found["x"]) == 30 and "worst area" in found["x"]
    assert found["certificate"]["holds"] is False
    assert found["certificate"]["smallest_multiplier"] is None  # there are no inequalities
    assert "index.html" in err and (tmp_path / "deep" / "er" / "index.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["solve", "--method", "mosp-r"], "Did you mean 'mossp-r'?"),
        (["solve", "--steps", "0"], "steps must be at least 1"),
        (["solve", "--steps", "many"], "'--steps'"),
        (["solve", "--seed", "-1"], "seed must be at least 0"),
        (["solve", "--batch-size", "0"], "batch_size must be at least 1"),
        (["solve", "--replicas", "0"], "replicas must be at least 1"),
        (["solve", "--tol", "nan"], "tol must be positive"),
        (["solve", "--schedule", "soon"], "'soon'"),
        (["solve", "--out", "file"], "--report must name a folder"),
        (["solve", "--no-such-option"], "--no-such-option"),
        (["prove"], "'prove'"),
    ],
)
def test_wrong_input_is_one_sentence(capsys, tmp_path, arguments, words):
    (tmp_path / "file").touch()
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("mossp: ") and err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize("package", ["typer", "rich", "sklearn.datasets"])
def test_a_missing_package_is_one_sentence_with_the_cure(capsys, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = run(capsys, "solve", "--no-report")
    assert code == 2
    assert err.startswith("mossp: ") and "pip install 'mossp[cli]'" in err


def test_a_missing_package_for_the_report_is_said_before_the_run(capsys, monkeypatch):
    monkeypatch.setattr(mossp, "solve", lambda *_, **__: pytest.fail("it ran"))
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jinja2" else find(name)
    )
    code, _, err = run(capsys, "solve")
    assert code == 2 and "A report needs jinja2: pip install 'mossp[cli]'" in err


def test_a_report_that_cannot_be_written_does_not_hide_the_result(capsys, tmp_path):
    (tmp_path / "out" / "index.html").mkdir(parents=True)
    code, out, err = run(capsys, *QUICK, "--out", "out")
    assert code == 2
    assert "criticality" in out and "report cannot be written into out" in err


def test_an_interrupted_run_exits_with_130(capsys, monkeypatch):
    real = mossp.solve

    def interrupted(*arguments, **options):
        def stop(_):
            os.kill(os.getpid(), signal.SIGINT)

        return real(*arguments, **options, callback=stop)

    monkeypatch.setattr(mossp, "solve", interrupted)
    code, out, _ = run(capsys, *QUICK, "--no-report")
    assert code == 130 and "INTERRUPTED" in out


def test_ctrl_c_before_the_run_exits_with_130(capsys, monkeypatch):
    def press(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(examples, "screening", press)
    code, _, err = run(capsys, "solve")
    assert code == 130 and "nterrupted" in err


def test_methods_lists_every_method(capsys):
    code, out, _ = run(capsys, "methods")
    assert code == 0
    assert all(name in out for name in mossp.METHODS)


def test_version_and_help(capsys):
    assert run(capsys, "--version")[:2] == (0, f"mossp {mossp.__version__}\n")
    for arguments in ([], ["--help"]):
        code, out, _ = run(capsys, *arguments)
        assert code == 0 and "solve" in out and "methods" in out


def test_example_is_what_it_says():
    problem, start, names = examples.breast_cancer(lam=0.02)
    rows, labels = (np.asarray(a)[: problem.samples] for a in problem.data.arrays)
    assert rows.shape == (569, 30) and len(names) == 30
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
    assert set(labels.tolist()) == {-1.0, 1.0}
    assert np.linalg.norm(start(3)) == pytest.approx(1)
    np.testing.assert_array_equal(start(3), start(3))
    assert (start(3) != start(4)).any()


def test_sigint_ends_the_process_with_130(tmp_path):
    cache = tmp_path / "cache"
    env = {**os.environ, "MOSSP_CACHE": str(cache), "PYTHONUTF8": "1"}
    env.pop("JAX_COMPILATION_CACHE_DIR", None)  # it would be used instead of ours
    process = subprocess.Popen(
        [sys.executable, "-m", "mossp.app.cli", "solve", "--method=mossp-r", "--steps=2000000000"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not (cache.exists() and any(cache.iterdir())):  # something is compiled: it has begun
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, (out, err)
    assert "Traceback" not in err
