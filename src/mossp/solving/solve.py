"""The door: `solve` checks its arguments once, and hands them on: prepare, run, finish."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mossp import data
from mossp._base import crew
from mossp._base.archive import CheckpointError
from mossp._base.interrupt import Interrupt
from mossp._base.printing import shown
from mossp.problem import Problem, check_problem
from mossp.regularizers.cardinality import is_limit
from mossp.result import Result
from mossp.solving.arguments import Arguments, checked
from mossp.solving.finish import finish
from mossp.solving.limits import solve_within
from mossp.solving.observer import Progress
from mossp.solving.prepare import Variants, prepare
from mossp.solving.run import run as run_prepared
from mossp.solving.smoothed import smoothed, smooths
from mossp.solving.state import Ended, State
from mossp.solving.ways import best_way

__all__ = ["Progress", "solve", "solve_once"]

# What the solves of smoothed problems share with the one that was asked for.
KEPT = (
    "steps", "batch_size", "schedule", "replicas", "seed", "dtype", "callback", "progress", "trace",
    "starts",
)  # fmt: skip


def solve(
    problem: Problem,
    x0: Any,
    *,
    method: Any = "auto",
    steps: int | None = None,
    gradients: int | None = None,
    seconds: float | None = None,
    batch_size: int | str | None = None,
    schedule: Any = "auto",
    replicas: int = 1,
    seed: int = 0,
    tol: float | None = None,
    output: str = "last",
    dtype: Any = "float64",
    callback: Callable[[Progress], Any] | None = None,
    progress: bool = False,
    checkpoint: Any = None,
    resume: bool | str = True,
    trace: int = 25,
    polish: bool | None = None,
    starts: int = 1,
    mesh: Any = None,
) -> Result:
    """Solve min E[f(x, xi)] + h(x) - g(x) s.t. c_E(x) = 0, c_I(x) <= 0.

    Parameters
    ----------
    problem : Problem
        f, h - g and the constraints.
    x0 : pytree of arrays, or Result
        The start; an earlier result is a warm start.
    method : str or Method
        "auto" chooses and says what; else a name ("mossp-r", "sqp-dc", ...) or an object such as
        mossp.MoSSP(...). `mossp methods` lists them.
    steps, gradients, seconds : number, optional
        The budget: whichever is used up first. A gradient is one sample differentiated; a
        Hessian-vector product of one sample, in polishing, counts as two. Half of `gradients` is
        kept for polishing. `seconds` do not count compilation, which comes before the run.
    batch_size : int or "auto", optional
        Samples per step. Left out, or "auto", it is 32, or all where there are fewer; more for
        sparse rows that touch a small part of a long x, so that the work on vectors of its length
        does not dwarf that on samples; fewer where samples without end have a small budget in
        `gradients`, which would be a few steps. Then the message says how many. It depends on the
        number of rows, the length of x, the part of the places that is filled and that budget, not
        on times: a run can be repeated.
    schedule : str or Rule
        "auto" needs nothing; "theorem", "corollary", "indexed", "paper", "paper-averaging", or a
        rule from mossp.schedules.
    replicas : int
        Independent runs from the same x0, side by side; the best one is returned.
    seed : int
        Random numbers depend on it, the replica and the step alone.
    tol : float, optional
        What the certificate must meet for `success`, relative to the size of its terms. Left out,
        it is 1e-10 for methods that are exact on the data at hand, 1e-2 for the others.
    output : {"last", "random", "best"}
        Which point of a run is its answer; the paper's theorems speak of "random".
    dtype : {"float64", "float32"}
        The caller's JAX configuration is not touched.
    callback : callable, optional
        Called with a `Progress` some 30 times, and every second while polishing; returning True
        stops the run.
    progress : bool
        Whether a bar is shown.
    checkpoint : path, optional
        The run is saved there, and goes on from there if it is called again with the same problem
        and settings.
    resume : bool or "force"
        False starts anew; "force" ignores that the file came from another problem or other
        settings.
    trace : int
        How many times the run is observed; the trace has about as many points.
    polish : bool, optional
        Newton's method on the KKT system from the end point, with all of the data: full precision
        where the support has been found. It comes on top of `steps`, within `gradients` and
        `seconds`, and is given up where it does not pay; "auto" polishes finite sums, and ends the
        run as soon as that succeeds.
    starts : int
        So many replicas from different starts, x0 the first of them (the rule is that of
        `different_starts` in mossp.certificates.feasibility); the best of their answers is
        returned.
    mesh : jax.sharding.Mesh, optional
        Devices that the rows are divided between. Rows of `mossp.Sharded` are divided between all
        devices of all processes unless it is given; for others it asks for that.

    Returns
    -------
    Result
        The best point with its certificate. Ctrl-C and SIGTERM end the run with the point reached,
        saved if a checkpoint is kept.

    Notes
    -----
    Where what "auto" chose diverges, meets NaN or does not arrive, other ways are tried in turn
    (`mossp.solving.ways`), and the message says which of them led to the answer.

    Examples
    --------
    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(loss=lambda x: x[0] + x[1], equality=lambda x: x @ x - 2.0)
    >>> result = mossp.solve(problem, np.array([1.0, 0.0]))
    >>> result.success, np.round(result.x, 12).tolist()
    (True, [-1.0, -1.0])
    """
    problem = divided(problem, mesh)
    settings: dict[str, Any] = {
        "method": method, "steps": steps, "gradients": gradients, "seconds": seconds,
        "batch_size": batch_size, "schedule": schedule, "replicas": replicas, "seed": seed,
        "tol": tol, "output": output, "dtype": dtype, "callback": callback, "progress": progress,
        "checkpoint": checkpoint, "resume": resume, "trace": trace, "polish": polish,
        "starts": starts,
    }  # fmt: skip
    if isinstance(problem, Problem) and is_limit(problem.regularizer):
        return solve_within(problem, x0, settings, solve_checked)
    return solve_checked(problem, x0, settings)


def solve_checked(problem: Problem, x0: Any, settings: dict[str, Any]) -> Result:
    """One solve by the way that is asked for, or by the best of those that "auto" tries."""
    return solve_with(problem, checked(problem, x0, **settings), settings)


def solve_next(problem: Problem, start: Result, arguments: Arguments) -> Result:
    """A solve with the arguments of an earlier one, and another start.

    The problem has no functions but this library's, and differs from that one in numbers of its
    regulariser alone: there is nothing to be checked anew.
    """
    return solve_with(problem, arguments.at(problem, start), {})


def solve_with(problem: Problem, arguments: Arguments, settings: dict[str, Any]) -> Result:
    """The same with checked arguments; `settings` are for problems that are smoothed."""
    callers = bool(jax.config.read("jax_enable_x64"))

    def run(a: Arguments) -> Result:
        return solve_once(problem, a, callers)[0]

    def other(problem: Problem, x0: Any, left: dict[str, Any]) -> Result:
        """Of a smoothed problem, from another start."""
        budget = {name: value for name, value in left.items() if np.isfinite(value)}
        return solve(problem, x0, **{name: settings[name] for name in KEPT}, **budget)

    with jax.enable_x64(arguments.dtype == np.float64):
        if smooths(problem, arguments):
            return smoothed(problem, arguments, other, run, lambda a: best_way(a, run))
        return best_way(arguments, run)


def divided(problem: Problem, mesh: Any) -> Problem:
    """The problem with its rows divided between the devices of a mesh, if there is one."""
    if mesh is None:
        return problem
    if not isinstance(mesh, jax.sharding.Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh, but {shown(mesh)} was given.")
    check_problem("solve", problem)
    return dataclasses.replace(problem, data=data.divided_over(problem.source(), mesh))


def solve_once(
    problem: Problem, arguments: Arguments, callers_x64: bool, variants: Variants | None = None
) -> tuple[Result, State]:
    """One solve, from checked arguments to a result and the state that it is made from."""
    with Interrupt() as interrupt, crew.at_work(arguments.oracles.mesh):
        prepared = prepare(
            problem, arguments, interrupt=interrupt, callers_x64=callers_x64, variants=variants
        )
        try:
            with prepared.observer.bar:
                state = run_prepared(prepared, prepared.initial)
                return finish(prepared, state), state
        except CheckpointError as error:
            if error.state is not None:  # what was reached before the file could not be written
                error.result = finish(prepared, error.state._replace(ended=Ended.CALLBACK))
            raise
        finally:
            prepared.loop.close()
