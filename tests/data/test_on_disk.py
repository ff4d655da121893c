"""Rows on disk: what programs see of them is what lies in the files."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp._base.keys import Purpose, generator
from mossp.data import DataError, map_rows, on_disk, reading
from tests.problems import START, A, b, squared_rows

pytestmark = pytest.mark.usefixtures("x64")
rng = np.random.default_rng(3)
N, n = 301, 5  # blocks of 64 rows: the last one has 45
X, y = rng.normal(size=(N, n)), np.sign(rng.normal(size=N))
SPARSE = scipy.sparse.vstack(
    [scipy.sparse.random(N - 1, n, 0.3, "csr", random_state=0), np.ones((1, n))], format="csr"
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    monkeypatch.setattr(reading, "BLOCK_BYTES", 1)  # the shortest
    monkeypatch.setattr(on_disk, "FIRST", 64)  # rows that are checked at once
    monkeypatch.setenv("MOSSP_CACHE", str(tmp_path / "cache"))


def saved(folder, **arrays):
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return tuple(folder / f"{name}.npy" for name in arrays)


def libsvm(folder, matrix, labels):
    lines = [
        f"{label:g} "
        + " ".join(f"{j + 1}:{float(v)!r}" for j, v in zip(row.indices, row.data, strict=True))
        for row, label in zip(matrix, labels, strict=True)
    ]
    path = folder / "rows.svm"
    path.write_text("\n".join(lines) + "\n")
    return path


def parquet(folder, name="rows.parquet", **columns):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({f"x{i}": X[:, i] for i in range(n)} | {"y": y} | columns)
    frame.write_ipc(folder / name) if name.endswith("arrow") else frame.write_parquet(
        folder / name, row_group_size=50
    )
    return folder / name


def opened(kind, folder):
    """(rows on disk, X as it lies there)."""
    if kind == "npy":
        return mossp.OnDisk(saved(folder, X=X, y=y)), X
    if kind == "float32":
        return mossp.OnDisk(saved(folder, X=X.astype(np.float32), y=y)), X.astype(np.float32)
    if kind == "memmap":
        paths = saved(folder, X=X, y=y)
        return mossp.OnDisk(tuple(np.load(path, mmap_mode="r") for path in paths)), X
    if kind == "libsvm":
        return mossp.OnDisk(libsvm(folder, SPARSE, y)), SPARSE.toarray()
    return mossp.OnDisk(parquet(folder, kind), target="y"), X


def cubed(batch):
    """A mean over rows that tells any two of them apart."""
    return jnp.mean((batch[0] @ jnp.arange(1.0, n + 1)) ** 3 * (2 + batch[1]))


@pytest.mark.parametrize(
    "kind", ["npy", "float32", "memmap", "libsvm", "rows.parquet", "rows.arrow"]
)
def test_a_mean_is_that_of_all_rows(kind, tmp_path):
    rows, stored = opened(kind, tmp_path)
    compiled = rows.compiled(None)
    expected = np.mean((stored.astype(float) @ np.arange(1.0, n + 1)) ** 3 * (2 + y))
    mean = jax.jit(lambda source: source.mean(cubed))
    assert rows.rows == N and int(compiled.blocks) == 5
    for _ in range(2):  # a second pass reads again
        np.testing.assert_allclose(mean(compiled), expected, rtol=1e-13)


def test_a_mean_of_several_replicas_reads_rows_once(tmp_path, monkeypatch):
    rows, _ = opened("npy", tmp_path)
    read, source = [], rows.compiled(None)
    monkeypatch.setattr(
        rows._reader, "block", lambda k, f=rows._reader.block: (read.append(k), f(k))[1]
    )
    slope = lambda s, w: s.mean(lambda r: jax.grad(lambda w: jnp.mean((r[0] @ w) ** 2))(w))  # noqa: E731
    ws = rng.normal(size=(3, n))
    found = jax.jit(jax.vmap(slope, (None, 0)))(source, ws)
    np.testing.assert_allclose(found, 2 * ws @ (X.T @ X) / N, rtol=1e-12)
    assert read == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["npy", "libsvm"])
@pytest.mark.parametrize("access", ["random", "blocks"])
def test_mini_batches_are_rows_of_the_file(kind, access, tmp_path):
    _, stored = opened(kind, tmp_path)
    files = tuple(tmp_path / f"{name}.npy" for name in "Xy")
    rows = mossp.OnDisk(files if kind == "npy" else tmp_path / "rows.svm", access=access)
    draws = rows.draw(generator(0, Purpose.STEPS), 6, 4)
    made = rows.compiled(None).batches(draws, 4)
    again = rows.draw(generator(0, Purpose.STEPS), 6, 4)
    assert all(map(np.array_equal, jax.tree.leaves(draws), jax.tree.leaves(again)))
    found = []
    for k in range(6):
        left, right = map_rows(lambda v, k=k: v[k], made)
        found.append(np.c_[left @ np.eye(n), right])
    every = np.c_[stored, y]
    for row in np.concatenate(found):
        assert (np.abs(every - row).max(axis=1) < 1e-14).any()


@pytest.mark.parametrize("access", ["random", "blocks"])
def test_every_row_is_equally_likely(access, tmp_path):
    numbers = np.arange(130.0)  # blocks of 64, 64 and 2 rows
    rows = mossp.OnDisk(saved(tmp_path, rows=numbers)[0], access=access)
    draws = [rows.draw(generator(0, Purpose.STEPS, 0, k), 5, 10)[0] for k in range(2000)]
    counts = np.bincount(np.concatenate(draws).ravel().astype(int), minlength=130)
    # Rows of one block come together: 8,000 draws of a block scatter by 2 in a hundred.
    assert abs(counts[-2:].mean() / counts.mean() - 1) < 0.5
    assert abs(counts[:64].mean() / counts[64:128].mean() - 1) < 0.1


def test_float32_is_summed_up_in_float64(tmp_path):
    """1 and 1e8 times 1e-8: in float32 the small ones would be lost."""
    values = np.full(10**4, 1e-8, np.float32)
    values[0] = 1.0
    rows = mossp.OnDisk(saved(tmp_path, rows=values)[0])
    mean = rows.compiled(None).mean(jnp.mean)
    np.testing.assert_allclose(mean, values.astype(float).mean(), rtol=1e-14)
    assert mean.dtype == np.float64


@pytest.mark.parametrize("kind", ["npy", "libsvm"])
def test_a_solve_ends_where_that_in_memory_does(kind, tmp_path):
    stored, target = (
        (A, b) if kind == "npy" else (scipy.sparse.csr_matrix(A * (A > -1)), np.round(b))
    )
    data = saved(tmp_path, A=A, b=b) if kind == "npy" else libsvm(tmp_path, stored, target)
    problems = [
        mossp.Problem(squared_rows, rows, mossp.L1(0.01))
        for rows in ((stored, target), mossp.OnDisk(data))
    ]
    memory, disk = (mossp.solve(p, START, steps=400) for p in problems)
    assert disk.success and "on disk, mini-batches by random access" in disk.message
    np.testing.assert_allclose(disk.x, memory.x, atol=1e-9)
    np.testing.assert_allclose(disk.fun, memory.fun, rtol=1e-12)
    if kind == "npy":  # the same draws, but for rounding
        exact = {"method": "mossp-p", "steps": 60, "polish": False, "seed": 1}
        three = mossp.solve(problems[1], START, replicas=3, **exact)
        np.testing.assert_array_equal(three.xs[0], mossp.solve(problems[1], START, **exact).x)


def test_a_run_is_resumed_and_pickled(tmp_path):
    problem = mossp.Problem(squared_rows, mossp.OnDisk(saved(tmp_path, A=A, b=b)), mossp.L1(0.01))
    settings = {"method": "mossp-p", "steps": 60, "polish": False, "seed": 1}
    whole = mossp.solve(problem, START, **settings)
    stops = lambda seen: seen.step >= 20  # noqa: E731
    again = pickle.loads(pickle.dumps(problem))
    file = tmp_path / "run.npz"
    half = mossp.solve(problem, START, callback=stops, checkpoint=file, trace=6, **settings)
    rest = mossp.solve(again, START, checkpoint=file, trace=6, **settings)
    assert half.steps < 60 == rest.steps
    np.testing.assert_array_equal(rest.x, whole.x)
    np.save(tmp_path / "A.npy", A + 1)
    other = mossp.Problem(squared_rows, mossp.OnDisk(saved(tmp_path, A=A + 1, b=b)), mossp.L1(0.01))
    with pytest.raises(mossp.CheckpointError, match="another problem"):
        mossp.solve(other, START, checkpoint=file, trace=6, **settings)


# What is wrong is said ------------------------------------------------------------------------


def test_a_number_that_is_not_finite_is_named(tmp_path):
    broken = A.copy()
    broken[190, 2] = np.nan  # in the last block
    rows = mossp.OnDisk(saved(tmp_path, A=broken, b=b))
    problem = mossp.Problem(squared_rows, rows, mossp.L1(0.01))
    with pytest.raises(ValueError, match=r"A.npy at \[190, 2\]"):
        mossp.stationarity(problem, START)


def test_labels_are_checked(tmp_path):
    rows = mossp.OnDisk(saved(tmp_path, X=X, y=(y + 1) / 2))
    with pytest.raises(ValueError, match=r"labels -1 and \+1"):
        mossp.Problem(mossp.losses.logistic, rows)


def test_nulls_are_refused_with_row_and_column(tmp_path):
    missing = [None if i == 290 else 1.0 for i in range(N)]
    rows = mossp.OnDisk(parquet(tmp_path, x2=missing), target="y", columns=["x0", "x2"])
    with pytest.raises(DataError, match="'x2' is null in row 290"):
        rows.take_rows(np.array([295]))


def test_columns_are_checked(tmp_path):
    path = parquet(tmp_path, text=["a"] * N)
    with pytest.raises(TypeError, match=r"'text' of .* holds String"):
        mossp.OnDisk(path, target="y")
    with pytest.raises(ValueError, match="no column 'z'"):
        mossp.OnDisk(path, target="z")
    with pytest.raises(ValueError, match="in blocks"):
        mossp.OnDisk(path, target="y", columns=["x0"], access="random")


def test_files_are_checked(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        mossp.OnDisk((tmp_path / "none.npy",))
    with pytest.raises(ValueError, match="same number of rows"):
        mossp.OnDisk(saved(tmp_path, X=X, y=y[1:]))
    with pytest.raises(TypeError, match="names of files"):
        mossp.OnDisk((3.0,))
    with pytest.raises(ValueError, match="target and columns"):
        mossp.OnDisk(saved(tmp_path, X=X), target="y")
    with pytest.raises(ValueError, match="access must be one of"):
        mossp.OnDisk(saved(tmp_path, X=X), access="quick")


def test_a_libsvm_file_is_converted_once_and_again_when_it_changes(tmp_path, monkeypatch):
    from mossp.data import converted

    path, made = libsvm(tmp_path, SPARSE, y), []
    write = converted.write_rows
    monkeypatch.setattr(converted, "write_rows", lambda *a: (made.append(a), write(*a)))
    for _ in range(2):
        assert mossp.OnDisk(path).rows == N
    assert len(made) == 1
    path.write_text("1 1:2\n-1 2:1 7:1\n")
    assert mossp.OnDisk(path).columns == 7 and len(made) == 2
    path.write_text("1 1:2\n-1 0:1\n")
    with pytest.raises(DataError, match="line 2"):
        mossp.OnDisk(path)
