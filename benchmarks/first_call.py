"""What a first call costs: imports, programs compiled, seconds cold and with programs on disk.

    python benchmarks/first_call.py [imports solve fit lambda]

imports   `import mossp` above `import jax`, and `mossp.sklearn` above scikit-learn and jax
solve     fresh process, 3,000 x 50, logistic, l1 - l2 on the sphere, the defaults of `solve`
fit       fresh process, MoSSPClassifier(lam=0.01) on the scaled breast cancer data
lambda    the same solve in a warm process with a constraint that was never compiled

Every figure is that of a process above one that only imports, the least of RUNS; seconds of the
processor stand beside those of the clock, for machines that do other work meanwhile. Python's
bytecode is written first, as installation does.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

RUNS = 3
SOLVE = """
import numpy as np, mossp
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 50))
y = np.sign(X[:, 0] + 0.5 * rng.normal(size=3000))
sphere = mossp.constraints.Sphere()
problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.L1MinusL2(0.01), equality=sphere)
result = mossp.solve(problem, np.ones(50))
assert result.success, result.message
"""
FIT = """
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale
from mossp.sklearn import MoSSPClassifier
X, y = load_breast_cancer(return_X_y=True)
MoSSPClassifier(lam=0.01).fit(scale(X), y)
"""
COUNTED = """
import jax
programs = []
def listen(event, seconds, **about):
    if "backend_compile" in event:
        programs.append((about.get("fun_name"), seconds))
jax.monitoring.register_event_duration_secs_listener(listen)
{code}
for name, seconds in programs:
    print(f"    {{seconds:6.3f}} s  {{name}}")
print(f"    {{len(programs)}} programs")
"""
LAMBDA = """
import time, numpy as np, mossp
rng = np.random.default_rng(1)
X = rng.normal(size=(3000, 50))
y = np.sign(X[:, 0] + 0.5 * rng.normal(size=3000))
def seconds(equality):
    problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.L1MinusL2(0.01), equality=equality)
    began = time.perf_counter(), time.process_time()
    assert mossp.solve(problem, np.ones(50)).success
    return time.perf_counter() - began[0], time.process_time() - began[1]
seconds(lambda x: x @ x - 1.0)
for name, equality in (
    ("another number in it", lambda x: x @ x - 1.1),
    ("other code", lambda x: 2.0 * (x**2).sum() - 2.0),
):
    wall, processor = seconds(equality)
    print(f"fresh lambda, {name:<22} {wall:5.2f} s   processor {processor:5.2f} s   (bound 1.5)")
"""


class Cost:
    """Seconds of a process, by the clock and by the processor."""

    def __init__(self, wall: float, processor: float) -> None:
        self.wall, self.processor = wall, processor

    def above(self, other: Cost) -> Cost:
        return Cost(self.wall - other.wall, self.processor - other.processor)


def run(code: str, environment: dict[str, str]) -> Cost:
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(time.perf_counter() - began, processor)


def least(code: str, environment: dict[str, str], runs: int = RUNS) -> Cost:
    every = [run(code, environment) for _ in range(runs)]
    return Cost(min(c.wall for c in every), min(c.processor for c in every))


def say(what: str, cost: Cost, bound: float) -> None:
    short = "   SHORT" if cost.wall > bound else ""
    print(f"{what:<52} {cost.wall:5.2f} s   processor {cost.processor:5.2f} s"
          f"   (bound {bound}){short}", flush=True)  # fmt: skip


def imports(environment: dict[str, str]) -> None:
    for name, code, base in (
        ("import mossp, above jax", "import mossp", "import jax"),
        ("import mossp.sklearn, above scikit-learn and jax", "import mossp.sklearn",
         "import jax, sklearn.linear_model"),
    ):  # fmt: skip
        for each in (code, base):
            run(each, environment)
        say(name, least(code, environment).above(least(base, environment)), 0.3)


def first_call(name: str, code: str, base: str, environment: dict[str, str]) -> None:
    run(code, {**environment, "MOSSP_CACHE": "off"})
    imported = least(base, environment)
    cold = least(code, {**environment, "MOSSP_CACHE": "off"})
    say(f"{name}, cold", cold.above(imported), 2.5)
    with tempfile.TemporaryDirectory() as folder:
        kept = {**environment, "MOSSP_CACHE": folder}
        run(code, kept)
        say(f"{name}, programs on disk", least(code, kept).above(imported), 0.7)
    run(COUNTED.format(code=code), {**environment, "MOSSP_CACHE": "off"})


def main(asked: list[str]) -> None:
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = bytecode
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        if "imports" in asked:
            imports(environment)
        if "solve" in asked:
            first_call("first solve", SOLVE, "import numpy, mossp", environment)
        if "fit" in asked:
            base = "import sklearn.datasets, sklearn.preprocessing, mossp.sklearn"
            first_call("first fit", FIT, base, environment)
        if "lambda" in asked:
            with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
                script.write(LAMBDA)  # a file, so that the source of its lambdas can be found
                script.flush()
                subprocess.run([sys.executable, script.name], check=True, env=environment)


if __name__ == "__main__":
    main(sys.argv[1:] or ["imports", "solve", "fit", "lambda"])
