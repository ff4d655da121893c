"""Rows on disk, and rows over processes: answers, memory, passes, and what a kill does.

    python benchmarks/scale.py equal                 # on disk and in memory, five problems
    python benchmarks/scale.py parquet /tmp/big 6    # a file of so many GB, made and removed there
    python benchmarks/scale.py rows /tmp/big         # 1e7 x 50 in float32
    python benchmarks/scale.py shards [passes]       # 1, 2, 4 devices; 1, 2, 4 processes
    python benchmarks/scale.py kills 20 [seed]       # kill -9 of one of two processes

Files are made under the folder that is named, after a look at the space there, and removed.
Processes speak to each other on 127.0.0.1 only.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

COLUMNS = 50
LONGEST_MOMENT = 10  # seconds after which a process is killed, at most: a run takes some 12


# What is measured -------------------------------------------------------------------------------


def anonymous() -> float:
    """Memory of this process that is no file's, in GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1e6


class Peak:
    """The most anonymous memory while it is entered."""

    def __enter__(self):
        self.most, self.ended = anonymous(), threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        return self

    def _look(self):
        while not self.ended.wait(0.05):
            self.most = max(self.most, anonymous())

    def __exit__(self, *error):
        self.ended.set()
        self.thread.join()


def first_order_pass(problem, x, times=1):
    """(seconds, seconds of the processor) of f and its gradient on all rows.

    After the first time; the least of so many. On a machine that others use, too, the second is
    what a pass costs.
    """
    import jax
    import jax.numpy as jnp

    from mossp._base.programs import compiled

    program = compiled(lambda oracles, x: oracles.first_order(x)[:2])
    with jax.enable_x64(True):
        oracles = problem.oracles(x)
        taken = []
        for _ in range(1 + times):
            began = time.perf_counter(), time.process_time()
            jax.block_until_ready(program(oracles, jnp.asarray(x)))
            taken.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    return tuple(min(each) for each in zip(*taken[1:], strict=True))


def logistic_rows(rng, count, dtype=np.float32):
    truth = np.zeros(COLUMNS)
    truth[:5] = 1, -1, 0.5, 2, -2
    X = rng.normal(size=(count, COLUMNS)).astype(dtype)
    return X, np.where(X @ truth + rng.logistic(size=count) > 0, 1, -1).astype(dtype)


def on_the_sphere(rows):
    import mossp

    return mossp.Problem(
        mossp.losses.logistic, rows, mossp.L1MinusL2(0.001), equality=mossp.constraints.Sphere()
    )


# On disk ----------------------------------------------------------------------------------------


def equal() -> None:
    """Five problems, solved with their rows in memory and on disk, in several blocks."""
    import jax.numpy as jnp
    import scipy.sparse

    import mossp
    from mossp.data import reading

    reading.BLOCK_BYTES = 2**18
    rng = np.random.default_rng(0)
    X, y = logistic_rows(rng, 20_001, np.float64)
    S = scipy.sparse.csr_matrix(np.where(np.abs(X) > 1.3, X, 0))
    b = X @ rng.normal(size=COLUMNS) + rng.normal(size=len(X))
    score = mossp.Expected(lambda x, batch: jnp.mean(batch[0] @ x * (batch[1] > 0)) - 0.3)
    squared, logistic, huber = mossp.losses.squared, mossp.losses.logistic, mossp.losses.huber
    sphere = {"equality": mossp.constraints.Sphere()}
    cases = {
        "logistic, l1 - l2, sphere": (logistic, X, y, mossp.L1MinusL2(0.01), sphere),
        "squared, MCP": (squared, X, b, mossp.MCP(0.05, 3.0), {}),
        "sparse logistic, l1": (logistic, S, y, mossp.L1(0.003), {}),
        "sparse huber, SCAD, sphere": (huber, S, b, mossp.SCAD(0.02, 3.7), sphere),
        "logistic, l1, expected score": (logistic, X, y, mossp.L1(0.003), {"inequality": score}),
    }
    x0 = np.full(COLUMNS, COLUMNS**-0.5)
    for name, (loss, left, right, penalty, constraints) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            os.environ["MOSSP_CACHE"] = folder
            if scipy.sparse.issparse(left):
                from sklearn.datasets import dump_svmlight_file

                dump_svmlight_file(left, right, f"{folder}/rows.svm", zero_based=False)
                rows = mossp.OnDisk(f"{folder}/rows.svm")
            else:
                np.save(f"{folder}/X.npy", left), np.save(f"{folder}/y.npy", right)
                rows = mossp.OnDisk((f"{folder}/X.npy", f"{folder}/y.npy"))
            found = [
                mossp.solve(mossp.Problem(loss, data, penalty, **constraints), x0)
                for data in ((left, right), rows)
            ]
        memory, disk = found
        print(
            f"{name:30} |x - x'| = {np.abs(memory.x - disk.x).max():.0e}, certificates "
            f"{memory.certificate.criticality:.0e} and {disk.certificate.criticality:.0e}, "
            f"success {memory.success and disk.success}",
            flush=True,
        )


def make_parquet(folder: Path, gigabytes: float) -> None:
    import polars

    rows, count = 10**6, 0
    while sum(p.stat().st_size for p in folder.iterdir()) < gigabytes * 1e9:
        X, y = logistic_rows(np.random.default_rng(count), rows)
        frame = polars.DataFrame({f"x{i}": X[:, i] for i in range(COLUMNS)} | {"y": y})
        frame.write_parquet(folder / f"{count:04}.parquet")
        count += 1


def parquet(place: str, gigabytes: str) -> None:
    folder = room(place, float(gigabytes) * 1.2)
    try:
        make_parquet(folder, float(gigabytes))
        import polars

        import mossp

        with Peak() as peak:
            problem = on_the_sphere(mossp.OnDisk(folder, target="y"))
            x0 = np.full(COLUMNS, COLUMNS**-0.5)
            one, _ = first_order_pass(problem, x0)
            began = time.perf_counter()
            result = mossp.solve(problem, x0, tol=1e-8)
            seconds = time.perf_counter() - began
        size = sum(p.stat().st_size for p in folder.iterdir()) / 1e9
        print(f"{size:.1f} GB, {problem.samples:,} rows; {result.message}")
        print(f"solve {seconds:.0f} s, ||u|| = {result.certificate.criticality:.1e}, "
              f"success {result.success}, peak RssAnon {peak.most:.2f} GB")  # fmt: skip
        scan = polars.scan_parquet(folder)
        began = time.perf_counter()
        for _ in scan.collect_batches(chunk_size=2**16, maintain_order=True):
            pass
        batches = time.perf_counter() - began
        began = time.perf_counter()
        scan.select(polars.all().sum()).collect(engine="streaming")
        sums = time.perf_counter() - began
        print(f"a pass {one:.1f} s; polars: batches {batches:.1f} s, sums of all columns "
              f"{sums:.1f} s, into memory ", end="", flush=True)  # fmt: skip
        began = time.perf_counter()
        polars.read_parquet(folder)
        print(f"{time.perf_counter() - began:.1f} s")
    finally:
        shutil.rmtree(folder)


def rows(place: str) -> None:
    folder = room(place, 3)
    try:
        N, block = 10**7, 10**6
        X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (N, COLUMNS))
        y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.float32, (N,))
        for k in range(0, N, block):
            X[k : k + block], y[k : k + block] = logistic_rows(np.random.default_rng(k), block)
        del X, y
        import mossp

        with Peak() as peak:
            problem = on_the_sphere(mossp.OnDisk((folder / "X.npy", folder / "y.npy")))
            x0 = np.full(COLUMNS, COLUMNS**-0.5)
            one, _ = first_order_pass(problem, x0)
            began = time.perf_counter()
            result = mossp.solve(problem, x0, tol=1e-8)
            seconds = time.perf_counter() - began
        print(f"1e7 x 50, float32: a pass {one:.2f} s, solve {seconds:.0f} s, "
              f"||u|| = {result.certificate.criticality:.1e}, success {result.success}, peak "
              f"RssAnon {peak.most:.2f} GB; {result.message}")  # fmt: skip
    finally:
        shutil.rmtree(folder)


def room(place: str, gigabytes: float) -> Path:
    Path(place).mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(place).free < 2 * gigabytes * 1e9:
        sys.exit(f"There is not enough space in {place}.")
    return Path(tempfile.mkdtemp(dir=place))


# Over processes -----------------------------------------------------------------------------------


WORK = """
import os, sys, time
order = __import__("json").loads(sys.argv[1])
if order["core"] is not None:
    os.sched_setaffinity(0, {order["core"]})
sys.path.insert(0, order["here"])
import mossp
if order["processes"] > 1:
    mossp.distributed(order["address"], order["processes"], order["index"])
open(order["out"] + ".ready", "w").close()
import numpy as np
import scale
scale.work(order)
"""


def work(order: dict) -> None:
    """One process: its rows, a solve, the seconds of a pass, its memory."""
    import resource

    import mossp

    N, count, index = order["rows"], order["processes"], order["index"]
    first, last = index * N // count, (index + 1) * N // count
    X = np.empty((last - first, COLUMNS))
    y = np.empty(last - first)
    block = order["rows"] // 8  # the same rows for any number of processes
    for k in range(8):
        low, high = max(first, k * block), min(last, (k + 1) * block)
        if low < high:
            part = logistic_rows(np.random.default_rng(k), block, np.float64)
            X[low - first : high - first], y[low - first : high - first] = (
                a[low - k * block : high - k * block] for a in part
            )
    problem, x0 = on_the_sphere(mossp.Sharded(X, y)), np.full(COLUMNS, COLUMNS**-0.5)
    del X, y
    one = first_order_pass(problem, x0, 30) if order["passes"] else (0.0, 0.0)
    if order["passes"] == "alone":
        with open(order["out"], "w") as file:
            json.dump([[0.0], 0.0, True, one, 0.0], file)
        return
    settings = {"checkpoint": order["checkpoint"]} if order["checkpoint"] else {}
    result = mossp.solve(problem, x0, **settings)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    with open(order["out"], "w") as file:
        json.dump([result.x.tolist(), float(result.certificate.criticality), bool(result.success),
                   one, peak], file)  # fmt: skip


def started(folder, count, rows, *, cores=False, devices=1, passes=False, checkpoint=""):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    flags = f"--xla_force_host_platform_device_count={devices}"
    jobs = []
    for index in range(count):
        order = {"address": address, "processes": count, "index": index, "rows": rows,
                 "core": index if cores else None, "out": f"{folder}/{index}.json",
                 "here": str(Path(__file__).parent), "passes": passes,
                 "checkpoint": checkpoint}  # fmt: skip
        command = [sys.executable, "-W", "ignore", "-c", WORK, json.dumps(order)]
        env = os.environ | {"XLA_FLAGS": flags}
        jobs.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True))  # fmt: skip
    return jobs


def shards(only: str = "") -> None:
    """Processes pinned to a core each, so that a process is worth the same in all of them.

    With "passes" no problem is solved: a pass of one process, of two, and of one again.
    """
    first, cases = None, ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4))
    for count, devices in ((1, 1), (2, 1), (1, 1), (2, 1)) if only else cases:
        with tempfile.TemporaryDirectory() as folder:
            pinned = count <= 2 and devices == 1
            jobs = started(folder, count, 800_000, cores=pinned, devices=devices,
                           passes="alone" if only else "too")  # fmt: skip
            for job in jobs:
                said = job.communicate(timeout=600)[1]
                if job.returncode:
                    sys.exit(said[-2000:])
            found = [json.loads(Path(f"{folder}/{i}.json").read_text()) for i in range(count)]
        x, u, success, one, _ = found[0]
        first = first or (x, one[1])
        cpu = max(f[3][1] for f in found)
        speed = f", efficiency {first[1] / cpu / count:.2f} in time of the processor"
        same = all(f[:3] == found[0][:3] for f in found)
        far, memory = np.abs(np.subtract(x, first[0])).max(), [f"{f[4]:.2f}" for f in found]
        print(f"{count} processes x {devices} devices: |x - x_1| = {far:.0e}, ||u|| = {u:.1e}, "
              f"success {success}, equal on all {same}, a pass {one[0] * 1e3:.0f} ms{speed}, "
              f"peak RSS {', '.join(memory)} GB", flush=True)  # fmt: skip


def kills(times: str, seed: str = "0") -> None:
    rng, waits, said_so, resumed = np.random.default_rng(int(seed)), [], 0, []
    for turn in range(int(times)):
        with tempfile.TemporaryDirectory() as folder:
            jobs = started(folder, 2, 80_000, checkpoint=f"{folder}/run.npz")
            while not all(Path(f"{folder}/{i}.json.ready").exists() for i in (0, 1)):
                time.sleep(0.1)
            moment = rng.uniform(0, LONGEST_MOMENT)
            time.sleep(moment)
            victim = turn % 2
            early = jobs[victim].poll() is not None
            jobs[victim].send_signal(signal.SIGKILL)
            began = time.perf_counter()
            said = jobs[1 - victim].communicate(timeout=120)[1]
            waits.append(time.perf_counter() - began)
            jobs[victim].communicate()
            said_so += "another process of this run" in said
            again = started(folder, 1 + turn % 2, 80_000, checkpoint=f"{folder}/run.npz")
            for job in again:
                job.communicate(timeout=300)
            x, u, success, *_ = json.loads(Path(f"{folder}/0.json").read_text())
            resumed.append((x, u, success))
            print(f"killed {victim} after {moment:.1f} s{' (it had ended)' if early else ''}: the "
                  "other ended after "
                  f"{waits[-1]:.1f} s, code {jobs[1 - victim].returncode}, sentence "
                  f"{'another process of this run' in said}; resumed by {1 + turn % 2}: "
                  f"||u|| = {u:.1e}, success {success}", flush=True)  # fmt: skip
    spread = max(np.abs(np.subtract(r[0], resumed[0][0])).max() for r in resumed)
    print(f"longest {max(waits):.1f} s, {said_so} of {times} with the sentence, all resumed "
          f"{all(r[2] for r in resumed)}, |x - x'| <= {spread:.0e}")  # fmt: skip


if __name__ == "__main__":
    name, *given = sys.argv[1:] or [""]
    known = {"equal": equal, "parquet": parquet, "rows": rows, "shards": shards, "kills": kills}
    if name not in known:
        sys.exit(__doc__)
    known[name](*given)
