"""Table 5: a million variables, 100,000 rows of 20 entries, l1 - l2 on the sphere, to 1e-10.

Columns are drawn as words in texts are, labels come from 50 true features among the 500 fullest
columns, and the strength leaves about 50 nonzeros. The first call and the second in one process,
defaults of `mossp.solve` from a random unit vector, building the problem included.

Peak memory is the high-water mark of the process during the call above what it held before, after
unused memory was given back; the bound is 3 times the data and 20 vectors of n float64. The first
call's peak includes what compiling needs.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sets import largest_strength
from settings import Settings, flag
from worker import NotAvailable, Worker

ROWS, COLUMNS, ENTRIES = 100_000, 1_000_000, 20
QUICK_ROWS, QUICK_COLUMNS = 5_000, 20_000
TRUE_FEATURES, AMONG = 50, 500
PART = 46.0  # of lam_max: found by projected proximal gradient steps, 50 nonzeros
MOST_SECONDS = 30.0
ALLOWANCE = 5.0  # limits of a single call that this one may take
STATUS = Path("/proc/self/status")


class Solved(NamedTuple):
    """One solve and what it cost."""

    seconds: float
    peak: int | None  # bytes above those before the call; None where the system does not say
    bound: int
    F: float
    nonzeros: int
    stationarity: float
    violation: float
    message: str


@functools.cache
def data(rows: int, columns: int) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(0)
    ends = np.cumsum(1 / (np.arange(columns) + 10.0))
    places = np.searchsorted(ends, rng.random(rows * ENTRIES) * ends[-1]).astype(np.int32)
    starts = np.arange(0, rows * ENTRIES + 1, ENTRIES, dtype=np.int32)
    values = rng.standard_normal(rows * ENTRIES)
    X = scipy.sparse.csr_matrix((values, places, starts), (rows, columns))
    X.sum_duplicates()
    truth = np.zeros(columns)
    chosen = rng.choice(AMONG, TRUE_FEATURES, replace=False)
    truth[chosen] = rng.choice([-1.0, 1.0], TRUE_FEATURES) * rng.uniform(1, 2, TRUE_FEATURES)
    return X, np.where(X @ truth + rng.standard_normal(rows) > 0, 1.0, -1.0)


def memory(name: str) -> int | None:
    """A line of Linux's account of this process in bytes: VmRSS now, VmHWM at most."""
    found = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text()) if STATUS.exists() else None
    return None if found is None else 1024 * int(found[1])


def forget_peak() -> None:
    """Give unused memory back, and let VmHWM begin anew."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # not Linux
        return


def solved(rows: int, columns: int) -> Solved:
    import mossp

    X, y = data(rows, columns)
    lam = largest_strength(X, y) / PART
    x0 = np.random.default_rng(0).standard_normal(columns)
    x0 /= np.linalg.norm(x0)
    size = sum(a.nbytes for a in (X.data, X.indices, X.indptr, y))
    forget_peak()
    before, began = memory("VmRSS"), time.perf_counter()
    problem = mossp.Problem(
        mossp.losses.logistic, (X, y), mossp.L1MinusL2(lam), equality=mossp.constraints.Sphere()
    )
    r = mossp.solve(problem, x0)
    seconds, most = time.perf_counter() - began, memory("VmHWM")
    x = np.asarray(r.x)
    F = np.logaddexp(0, -y * (X @ x)).mean() + lam * (np.abs(x).sum() - np.linalg.norm(x))
    return Solved(
        seconds,
        None if before is None or most is None else most - before,
        3 * size + 20 * x0.nbytes,
        float(F),
        int(np.count_nonzero(x)),
        r.certificate.worst_relative,
        abs(float(x @ x) - 1),
        r.message,
    )


def main(settings: Settings) -> None:
    rows, columns = (QUICK_ROWS, QUICK_COLUMNS) if settings.quick else (ROWS, COLUMNS)
    print(f"\nl1 - l2 on the sphere, {rows:,} x {columns:,}, {ENTRIES} entries a row")
    print(f"  {'call':7} {'F':>12} {'nonzeros':>8} {'KKT':>8} {'|x|^2-1':>8} {'seconds':>8} "
          f"{'peak MB':>8} {'of bound':>8}")  # fmt: skip
    with Worker() as worker:
        for call in ("first", "second"):
            try:
                args = (rows, columns)
                end = worker.call(solved, *args, limit=ALLOWANCE * settings.limit)
            except NotAvailable as reason:
                print(f"  {call:7} N/A: {reason}", flush=True)
                return
            share = None if end.peak is None else end.peak / end.bound
            short = end.seconds > MOST_SECONDS or end.stationarity > 1e-10
            short |= call == "second" and share is not None and share > 1
            peak = "N/A".rjust(17) if share is None else f"{end.peak / 1e6:8.0f} {share:8.2f}"
            print(
                f"  {call:7} {end.F:12.9f} {end.nonzeros:8d} {end.stationarity:8.1e} "
                f"{end.violation:8.1e} {end.seconds:8.1f} {peak}{flag(short)}\n    {end.message}",
                flush=True,
            )
