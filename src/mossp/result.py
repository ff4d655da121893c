"""What a solve returns, how it is read, and how it is kept."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax
import numpy as np

from mossp._base import layout
from mossp._base.archive import CheckpointError, read_arrays, write_arrays
from mossp._base.printing import counted, printable
from mossp._base.types import HostArray, Json, PyTree
from mossp.certificates.certificate import Certificate, Expectation
from mossp.certificates.conditions import VIOLATED, Condition, conditions

T = TypeVar("T")

KIND = "mossp result"
MOST_CONDITIONS = 10  # constraints that a summary lists
FEW = 6  # entries of x that are shown
SCALARS = (  # what JSON can hold of a result
    "fun", "violation", "success", "message", "steps", "gradients", "values", "hessian_products",
    "seconds", "compile_seconds", "tol", "settings",
)  # fmt: skip


class Status(enum.Enum):
    """Why a solve ended; the value is the message."""

    CONVERGED = "The certificate holds at the tolerance."
    BUDGET = "The budget is used up and the certificate does not hold at the tolerance yet."
    DIVERGED = "The iterates grew without bound."
    NONFINITE = "A function of the problem returned NaN or infinity."
    INFEASIBLE_STATIONARY = (
        "The end point violates the constraints, and a search for a feasible point from there "
        "stops at a stationary point of the violation or hardly lowers it any more."
    )
    INTERRUPTED = "The run was interrupted (Ctrl-C or SIGTERM)."
    CHANGED = (
        "A function of the problem changed during the run, so that the answer may be about what "
        "it was before: solve again, and change nothing that it looks at meanwhile."
    )
    STOPPED = "The callback or the end of the stream stopped the run."


class Trace(NamedTuple):
    """The run as it went: one row per observation, one column per replica in two axes.

    The objective is evaluated on `rows` samples: all of them where that is cheap, else a fixed
    random selection, since full passes would cost more than the run. `result.fun` is exact.
    """

    steps: HostArray
    gradients: HostArray
    seconds: HostArray
    objective: HostArray
    violation: HostArray
    proximity: HostArray  # ||x - y||
    rows: int


@dataclasses.dataclass(frozen=True)
class Result:
    """The answer, what it is worth, and what it cost.

    Attributes
    ----------
    x : array or pytree of arrays
        The best replica's point.
    fun, violation : float
        F and `||(c_E, [c_I]_+)||` there.
    success : bool
        Whether the certificate holds at `tol`: `is_kkt(tol, relative=True)`.
    status : Status
        Why the solve ended.
    message : str
        The same in sentences.
    certificate : Certificate
        Judges x alone.
    expectation : Expectation or None
        The paper's residuals: root mean squares over replicas; None where no step was taken.
    steps, gradients : int
        Per replica; gradients counts samples differentiated, for f and for constraints that are
        means over rows.
    values : int
        Per replica, samples at which such constraints were evaluated in steps, and not
        differentiated.
    hessian_products : int
        Samples behind Hessian-vector products that measured constants.
    seconds, compile_seconds : float
        Of the run, and of what came before it.
    trace : Trace
        The run as it went.
    xs, funs, violations
        Every replica.
    tol : float
        The tolerance that was asked for.
    settings : dict
        The method, the schedule and what else the run was made with.
    """

    x: PyTree
    fun: float
    violation: float
    success: bool
    status: Status
    message: str
    certificate: Certificate
    expectation: Expectation | None
    steps: int
    gradients: int
    values: int
    hessian_products: int
    seconds: float
    compile_seconds: float
    trace: Trace
    xs: PyTree
    funs: HostArray
    violations: HostArray
    tol: float
    settings: dict[str, Json]

    def __repr__(self) -> str:
        """The answer in five lines; `summary()` has all of the certificate."""
        leaves = jax.tree.leaves(self.x)
        size = sum(np.size(leaf) for leaf in leaves)
        nonzero = sum(int(np.count_nonzero(leaf)) for leaf in leaves)
        few = ""
        if size <= FEW and len(leaves) == 1:
            few = f": {np.array2string(np.ravel(leaves[0]), precision=4, separator=', ')}"
        holds = "holds" if self.success else "does NOT hold"
        c = self.certificate
        lines = [
            f"Result: {self.status.name} ({self.settings.get('method', '?')}, "
            f"{self.steps:,} steps, {self.seconds:.2f} s)",
            f"  x            {nonzero:,} of {size:,} nonzero{few}",
            f"  F(x)         {self.fun:.8g}",
            f"  violation    {self.violation:.2e}",
            f"  certificate  {holds} at {self.tol:.0e} (worst residual {c.worst_relative:.2e})",
        ]
        return "\n".join(" ".join(line.split("\n")) for line in map(printable, lines))

    def summary(self) -> str:
        """The result in a few lines for people.

        Examples
        --------
        >>> import numpy as np, mossp
        >>> problem = mossp.Problem(loss=lambda x: x[0], equality=lambda x: x @ x - 1.0)
        >>> result = mossp.solve(problem, np.array([0.6, 0.8]), method="mossp-r", steps=2000)
        >>> print(result.summary().splitlines()[0])
        CONVERGED: mossp-r, 2,000 steps, 1 replica
        """
        c, s = self.certificate, self.settings
        replicas = counted(len(self.funs), "replica")
        judged = "full gradient" if c.samples is None else f"{c.samples:,} fresh samples"
        lines = [
            f"{self.status.name}: {s.get('method', '?')}, {self.steps:,} steps, {replicas}",
            f"  {self.message}",
            f"  objective F(x)          {self.fun:.8g}",
            f"  violation ||c(x)||      {self.violation:.2e}",
            f"  certificate ({c.form}, {judged}), tolerance {self.tol:.0e}",
        ]
        lines += [f"    {name:<24} {value:.2e}{more}" for name, value, more in residual_rows(c)]
        lines += condition_lines(conditions(c, self.tol))
        values = f" and {self.values:,} values" if self.values else ""
        lines.append(
            f"  {self.gradients:,} sample gradients{values} a replica, {self.seconds:.2f} s"
            f" (+ {self.compile_seconds:.2f} s to prepare and compile)"
        )
        return "\n".join(map(printable, lines))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to one .npz file, without pickle; an existing file is replaced atomically."""
        return write_arrays(Path(path), *_pack(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read what `save` wrote; a damaged or foreign file is a CheckpointError."""
        path = Path(path)
        try:
            return _unpack(*read_arrays(path))
        except layout.LayoutError as error:
            raise CheckpointError(f"{path} is not a result that mossp saved: {error}.") from None


def condition_lines(found: list[Condition]) -> list[str]:
    """The constraints in a few lines, those with the largest multipliers first."""
    if not found:
        return []
    order = sorted(found, key=lambda one: (one.state != VIOLATED, -abs(one.multiplier)))
    width = max(len(one.text) for one in order[:MOST_CONDITIONS])
    lines = ["  constraints"]
    lines += [
        f"    {one.text:<{width}}  {one.state:<8}  value {one.value:.6g}, slack {one.slack:.2g}, "
        f"multiplier {one.multiplier:.3g}"
        for one in order[:MOST_CONDITIONS]
    ]
    hidden = len(order) - MOST_CONDITIONS
    return [*lines, f"    and {hidden} more"] if hidden > 0 else lines


def residual_rows(c: Certificate) -> list[tuple[str, float, str]]:
    """The residuals in the order in which they are read, and what they are relative to scale."""
    symbols = {
        "criticality": "criticality ||u||",
        "proximity": "proximity ||x - y||",
        "feasibility": "feasibility ||c||",
        "infeasible_stationarity": "infeasible stat. ||J c||",
        "complementarity": "complementarity",
    }
    rows = []
    for name, symbol in symbols.items():
        more = ""
        if c.error(name) > 0:
            what = "two standard errors" if name == "criticality" else "95 %"
            more = f" + {c.error(name):.2e} ({what})"
        if getattr(c, f"{name}_scale", 1.0) > 1:
            scale = getattr(c, f"{name}_scale")
            more += f"  = {c.bound(name, relative=True):.2e} of {scale:.2e}"
        rows.append((symbol, getattr(c, name), more))
    return rows


# A result as named arrays and JSON. ---------------------------------------------------------


def _pack(result: Result) -> tuple[dict[str, HostArray], dict[str, Json]]:
    arrays: dict[str, HostArray] = {}

    def keep(name: str, tree: PyTree) -> Json:
        """The tree with its arrays taken out: containers become JSON, leaves become names."""
        if isinstance(tree, dict):
            return {"dict": [[k, keep(f"{name}/{k}", v)] for k, v in tree.items()]}
        if isinstance(tree, (list, tuple)) and not isinstance(tree, Trace):
            kind = "list" if isinstance(tree, list) else "tuple"
            return {kind: [keep(f"{name}/{i}", v) for i, v in enumerate(tree)]}
        arrays[name] = np.asarray(tree)
        return {"array": name}

    r = result
    trees = {
        "x": r.x,
        "xs": r.xs,
        "multipliers": r.certificate.multipliers,
        "values": r.certificate.values,
        "trace": r.trace._asdict(),
    }
    certificate = dataclasses.asdict(dataclasses.replace(r.certificate, multipliers={}, values={}))
    meta = {
        "kind": KIND,
        "trees": {name: keep(name, tree) for name, tree in trees.items()},
        "certificate": certificate,
        "expectation": None if r.expectation is None else r.expectation._asdict(),
        "status": r.status.name,
        "scalars": {name: getattr(r, name) for name in SCALARS},
    }
    arrays |= {"funs": r.funs, "violations": r.violations}
    return arrays, json.loads(json.dumps(meta, default=str))


# What files of version 0.1 do not have.
SINCE: dict[str, dict[str, Json]] = {
    "certificate": {"feasibility_error": 0.0, "values": {}},
    "trees": {"values": {"dict": []}},
    "scalars": {"values": 0},
}


def _unpack(arrays: dict[str, HostArray], meta: dict[str, Json]) -> Result:
    for part, added in SINCE.items():
        if isinstance(meta.get(part), dict):
            meta[part] = {**added, **meta[part]}
    layout.check(meta, {
        "kind": str,
        "status": str,
        "trees": dict.fromkeys(("x", "xs", "multipliers", "values", "trace"), dict),
        "certificate": layout.fields_of(Certificate),
        "expectation": (dict, None),
        "scalars": layout.fields_of(Result, SCALARS),
    })  # fmt: skip
    if meta["expectation"] is not None:
        layout.check(meta["expectation"], layout.fields_of(Expectation), "expectation")
    if meta["kind"] != KIND or meta["status"] not in Status.__members__:
        raise layout.LayoutError("its kind or its status is another")

    def build(spec: Json) -> PyTree:
        [(kind, content)] = spec.items() if isinstance(spec, dict) and len(spec) == 1 else [("", 0)]
        if kind == "array" and isinstance(content, str):
            return layout.array(arrays, content, "biuf")
        if kind in ("list", "tuple") and isinstance(content, list):
            return (list if kind == "list" else tuple)(build(v) for v in content)
        if kind == "dict" and isinstance(content, list):
            pairs = [pair for pair in content if isinstance(pair, list) and len(pair) == 2]
            if len(pairs) == len(content) and not any(
                isinstance(k, (list, dict)) for k, _ in pairs
            ):
                return {k: build(v) for k, v in pairs}
        raise layout.LayoutError("a tree of arrays in it is not one")

    trees = {name: build(spec) for name, spec in meta["trees"].items()}
    count = len(layout.array(arrays, "funs", "f", (None,)))
    layout.array(arrays, "violations", "f", (count,))
    named = {name: trees[name] for name in ("multipliers", "values")}
    if not all(isinstance(tree, dict) for tree in named.values()):
        raise layout.LayoutError("its multipliers are not by kind of constraint")
    try:
        shapes = [jax.tree.map(np.shape, tree) for tree in named.values()]
    except (TypeError, ValueError):  # names that cannot be sorted
        raise layout.LayoutError("the names of its constraints are none") from None
    if named["values"] and shapes[0] != shapes[1]:
        raise layout.LayoutError("its multipliers are not those of its constraints")
    certificate = {**meta["certificate"], **named}
    return Result(
        x=trees["x"],
        xs=trees["xs"],
        funs=arrays["funs"],
        violations=arrays["violations"],
        trace=_trace(trees["trace"]),
        certificate=_made(Certificate, certificate),
        expectation=meta["expectation"] and _made(Expectation, meta["expectation"]),
        status=Status[meta["status"]],
        **{name: meta["scalars"][name] for name in SCALARS},
    )


def _made(record: type[T], content: dict[str, Json]) -> T:
    try:
        return record(**content)
    except TypeError:
        raise layout.LayoutError(f"its {record.__name__} has other entries") from None


def _trace(columns: PyTree) -> Trace:
    if not isinstance(columns, dict) or set(columns) != set(Trace._fields):
        raise layout.LayoutError("its trace has other columns")
    if not all(isinstance(column, np.ndarray) for column in columns.values()):
        raise layout.LayoutError("its trace is not made of arrays")
    rows = layout.array(columns, "rows", "iu", ())
    count = len(layout.array(columns, "steps", "iu", (None,)))
    for name, column in columns.items():
        if name != "rows" and column.shape[:1] != (count,):
            raise layout.LayoutError(f"its trace has another length in {name!r}")
    return Trace(**{**columns, "rows": int(rows)})


def as_start(x0: PyTree) -> PyTree:
    """A start may be an earlier result."""
    return x0.x if isinstance(x0, Result) else x0
