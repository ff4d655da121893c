"""What `solve` was asked, checked before anything is compiled."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mossp._base import naming
from mossp._base.printing import quoted, short, shown, warn
from mossp._base.surroundings import refuse_tracers
from mossp._base.types import PyTree
from mossp._base.validation import MOST_COUNTED, is_choice, positive, whole
from mossp.methods import METHODS, Method, within_reach
from mossp.oracles import Oracles
from mossp.problem import Problem, check_problem, checked_point
from mossp.result import Result, as_start
from mossp.schedules import Rule, as_rule
from mossp.solving.automatic import choose, full_is_cheap, size_of
from mossp.solving.batches import checked_batch_size
from mossp.solving.convexity import check_concave
from mossp.solving.means import check_means

OUTPUTS = ("last", "random", "best")
STEPS_WITHOUT_DATA = 10_000
STEPS_WITH_FULL_GRADIENTS = 2_000
PASSES = 20  # over the data, when the number of steps is left open
EXACT_PASSES = 100  # the same for methods that end when their certificate holds
FEWEST_PER_ANCHOR, MOST_PER_ANCHOR = 50, 10_000  # steps
FEWEST_STEPS, MOST_STEPS = 2_000, 100_000


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The arguments of `solve`, complete and valid."""

    x0: PyTree
    oracles: Oracles  # of the user's functions as they are now
    method: Method
    name: str
    steps: int  # K; with a budget in seconds alone, a number that is never reached
    seconds: float
    gradients: float  # those of the steps included; infinite unless they are limited
    limited: bool  # whether a budget was given
    batch_size: int  # samples behind one gradient
    rule: Rule
    replicas: int
    starts: int  # above 1: how many points the replicas start from
    seed: int
    tol: float
    output: str
    dtype: np.dtype[Any]
    callback: Callable[..., Any] | None
    progress: bool
    checkpoint: Path | None
    resume: bool | str
    trace: int
    polish: bool
    chosen: str = ""  # what "auto" chose, and why
    first: str = ""  # what it does before that, where full gradients cost little
    warm: bool = False  # whether x0 is the certified answer to another problem: it is near
    batches: str = ""  # how many rows they have, where that was chosen and is not usual
    exact: bool = False  # whether it ends at KKT points themselves, by its steps or by polishing

    @property
    def steps_as_chosen(self) -> str:
        """What was chosen for steps: the method, and how large batches are."""
        return "; ".join(part for part in (self.chosen, self.batches) if part)

    def at(self, problem: Problem, start: Result) -> Arguments:
        """Those of a problem that differs in numbers of its regulariser, from another start."""
        oracles = problem.oracles(start.x, self.dtype)
        warm = start.success and self.starts == 1
        return dataclasses.replace(self, x0=start.x, oracles=oracles, warm=warm)

    @property
    def drawn(self) -> int:
        """Samples in a mini-batch: full gradients need them for the constants only."""
        return min(self.batch_size, 32) if self.method.momentum.full else self.batch_size


def checked(
    problem: Any, x0: Any, *, method: Any = "auto", steps: Any = None, gradients: Any = None,
    seconds: Any = None, batch_size: Any = None, schedule: Any = "auto", replicas: Any = 1,
    seed: Any = 0, tol: Any = None, output: Any = "last", dtype: Any = "float64",
    callback: Any = None, progress: Any = False, checkpoint: Any = None, resume: Any = True,
    trace: Any = 25, polish: Any = None, starts: Any = 1,
) -> Arguments:  # fmt: skip
    check_problem("solve", problem)
    dtype = checked_dtype(dtype)
    refuse_tracers(method, schedule, tol, seconds)
    rule = as_rule(schedule)
    warm = isinstance(x0, Result) and x0.success and starts == 1
    x0 = checked_start(x0)
    if not is_choice(output, OUTPUTS):
        raise ValueError(
            f"output must be 'last', 'random' or 'best', but {shown(output)} was given."
        )
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function, but {shown(callback)} was given.")
    if not is_choice(resume, (True, False, "force")):
        raise ValueError(f"resume must be True, False or 'force', but {shown(resume)} was given.")
    if not is_choice(polish, (None, True, False)):
        raise TypeError(f"polish must be True or False, but {shown(polish)} was given.")
    if not is_choice(progress, (True, False)):
        raise TypeError(f"progress must be True or False, but {shown(progress)} was given.")
    n = sum(leaf.size for leaf in jax.tree.leaves(x0))
    batch, batches = checked_batch_size(problem, batch_size, n, gradients)
    chosen, choice_is_exact = "", False
    with jax.enable_x64(dtype == np.float64):
        given = oracles = problem.oracles(x0, dtype)
    if problem.smooth and oracles.mergeable and takes_one_loss(method):
        oracles = oracles.merged()
    if isinstance(method, str) and method == "auto":
        choice = choose(oracles, rule, output)
        method, name, chosen = choice.method, choice.name, f"{choice.name} with {choice.why}"
        polish = choice.polish if polish is None else bool(polish)
        choice_is_exact = choice.exact and bool(polish)
    else:
        method, name = checked_method(method)
    if polish and not oracles.finite_sum:
        raise ValueError(
            "polish needs all of the data, and a Sampler or a Stream has no end: leave it out, or "
            "draw a finite sample and give that as data."
        )
    replicas, starts = whole("replicas", replicas, 1), whole("starts", starts, 1)
    if starts > 1 and replicas > 1:
        raise ValueError(
            f"starts = {starts} runs one replica a start, so that replicas = {replicas} cannot be "
            "asked for as well: leave one of them out."
        )
    if method.momentum.full:
        batch, batches = problem.samples or batch, ""
    K = checked_steps(
        problem,
        oracles,
        method,
        rule,
        steps,
        gradients,
        seconds,
        batch,
        bool(chosen),
        bool(polish),
    )
    exact = method.exact or choice_is_exact
    arguments = Arguments(
        x0=x0,
        oracles=oracles,
        method=method,
        name=name,
        steps=K,
        seconds=math.inf if seconds is None else positive("seconds", seconds),
        gradients=math.inf if gradients is None else whole("gradients", gradients, 1),
        limited=any(given is not None for given in (steps, gradients, seconds)),
        batch_size=batch,
        rule=rule,
        replicas=max(replicas, starts),
        starts=starts,
        seed=checked_seed(seed),
        tol=checked_tol(tol, dtype, exact),
        exact=exact,
        output=output,
        dtype=dtype,
        callback=callback,
        progress=bool(progress),
        checkpoint=None if checkpoint is None else checked_path(checkpoint),
        resume=resume,
        trace=whole("trace", trace, 1),
        polish=bool(polish),
        chosen=chosen,
        warm=warm,
        batches=batches,
    )
    if chosen and arguments.polish:
        arguments = dataclasses.replace(arguments, first=full_first(arguments))
    with jax.enable_x64(dtype == np.float64):  # last, since these evaluate the user's functions
        start = oracles.structure.ravel(x0, dtype)
        within_reach(method, name, oracles, start)
        check_means(problem, given, start, dtype)
        check_concave(problem, given, start, dtype)
    return arguments


def full_first(a: Arguments) -> str:
    """What comes before the steps of "auto": full gradients, where these cost little.

    Not where a budget was given, which steps then are to keep, nor where what is asked for is made
    from several runs or from the way of one.
    """
    alone = a.replicas == 1 and a.output == "last"
    if a.limited or not alone or not a.rule.tuned or not full_is_cheap(a.oracles):
        return ""
    return f"{a.name} with full gradients: {size_of(a.oracles)}"


def takes_one_loss(method: Any) -> bool:
    """Whether f - g is handed over as one loss: to "auto", and to methods that know no other g."""
    made = METHODS[method]() if isinstance(method, str) and method in METHODS else method
    return not (isinstance(made, Method) and made.samples_concave)


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except Exception:  # NumPy refuses what is no type in many ways
        kind = None
    # NumPy takes None for float64, also where it compares.
    if kind is None or kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be 'float64' or 'float32', but {shown(dtype)} was given.")
    return kind


def checked_method(method: Any) -> tuple[Method, str]:
    if isinstance(method, Method):
        return method, f"{type(method).__name__}({type(method.momentum).__name__})"
    if isinstance(method, str) and method in METHODS:
        return METHODS[method](), method
    near = naming.closest(method, METHODS) if isinstance(method, str) else None
    hint = f" Did you mean {near!r}?" if near else ""
    raise ValueError(
        f"There is no method {shown(method)}: choose auto, {', '.join(METHODS)}, or give an object "
        f"such as mossp.MoSSP(momentum=mossp.Polyak(0.1)).{hint}"
    )


def checked_seed(seed: Any) -> int:
    return whole("seed", seed, 0, most=2**64 - 1)


def checked_steps(
    problem: Problem,
    oracles: Oracles,
    method: Method,
    rule: Rule,
    steps: Any,
    gradients: Any,
    seconds: Any,
    batch: int,
    chosen: bool = False,
    polish: bool = False,
) -> int:
    """K, from steps, from a budget in gradients, or from the size of the data.

    Half of a budget in gradients is left for polishing.
    """
    K = None if steps is None else whole("steps", steps, 1)
    if gradients is not None:
        budget = whole("gradients", gradients, 1)
        affordable = steps_within(budget, lambda K: cost(problem, oracles, method, rule, K, batch))
        if polish and affordable > 1:
            half = lambda K: 2 * cost(problem, oracles, method, rule, K, batch)  # noqa: E731
            affordable = max(steps_within(budget, half), 1)
        if affordable < 1:
            least = cost(problem, oracles, method, rule, 1, batch)
            raise ValueError(
                f"A budget of {budget} gradients is less than one step, which takes {least}: give "
                "more gradients or a smaller batch_size."
            )
        return affordable if K is None else min(K, affordable)
    if K is not None:
        return K
    if seconds is not None and not (chosen and rule.tuned):
        if rule.needs_K:
            raise ValueError(
                f"schedule {type(rule).__name__} needs to know the number of steps, which a "
                "budget in seconds does not tell: give steps as well, or schedule='indexed'."
            )
        return MOST_COUNTED
    if method.momentum.full or problem.most_rows is None:
        return STEPS_WITH_FULL_GRADIENTS if method.momentum.full else STEPS_WITHOUT_DATA
    if method.exact:
        return max(EXACT_PASSES * min(problem.most_rows // batch, MOST_PER_ANCHOR), FEWEST_STEPS)
    return int(np.clip(PASSES * problem.most_rows // batch, FEWEST_STEPS, MOST_STEPS))


def cost(problem: Problem, oracles: Oracles, method: Method, rule: Rule, K: int, batch: int) -> int:
    """Samples differentiated in K steps: initial batch, steps, full gradients at anchors."""
    first = initial_batches(rule, method, K, batch)
    full = -(-K // steps_per_anchor(problem, method, batch)) if method.momentum.anchored else 0
    per_step = per_step_of(oracles, method, batch)
    return first * batch + K * per_step + full * oracles.rows_per_pass


def per_step_of(oracles: Oracles, method: Method, batch: int) -> int:
    """Samples that a step differentiates, at all of its points."""
    if oracles.concave is None or method.momentum.full:
        return method.momentum.gradients * differentiated(oracles, method, batch)
    of_g = method.follower.gradients * batch
    return method.momentum.gradients * differentiated(oracles, method, batch) + of_g


def differentiated(oracles: Oracles, method: Method, batch: int) -> int:
    """Samples that a step differentiates at one point: for f, and for each source of rows of c."""
    numbers = [number for number in oracles.terms.numbers if number is not None]
    if method.momentum.full:
        return oracles.rows_per_pass
    return batch * (1 + len(numbers))


def steps_per_anchor(problem: Problem, method: Method, batch: int) -> int:
    """How often an SVRG anchor is refreshed: after a pass over the data, unless told.

    Passes over little data are taken together, and one over many rows is not waited for: a new
    anchor pays sooner.
    """
    momentum: Any = method.momentum
    a_pass = -(-(problem.most_rows or 1) // batch)
    return momentum.epoch or min(max(a_pass, FEWEST_PER_ANCHOR), MOST_PER_ANCHOR)


def steps_within(budget: int, cost_of: Callable[[int], int]) -> int:
    """The most steps whose cost, which grows with their number, stays within the budget.

    Examples
    --------
    >>> steps_within(100, lambda K: 8 + 2 * K)
    46
    """
    low, high = 0, budget + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost_of(middle) <= budget else (low, middle)
    return low


def initial_batches(rule: Rule, method: Method, K: int, batch_size: int) -> int:
    """Mini-batches behind d_0, besides the first step's own: b0 samples in all.

    A rule that is tuned from the first gradient on needs one in any case.
    """
    more = -(-rule.b0(method.momentum, max(K, 1)) // batch_size) - 1
    return max(more, 1 if rule.tuned else 0)


def checked_tol(tol: Any, dtype: np.dtype[Any], exact: bool) -> float:
    if tol is None:
        return 1e-2 if not exact else 1e-10 if dtype == np.float64 else 1e-4
    tol = positive("tol", tol)
    resolution = 100 * float(np.finfo(dtype).eps)
    if tol < resolution:
        warn(
            f"tol = {tol:.0e} is below what {dtype} resolves (about {resolution:.0e}): the "
            "certificate may never hold."
        )
    return tol


def checked_start(x0: Any) -> PyTree:
    x0 = checked_point("x0", as_start(x0))
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(x0)):
        raise ValueError("x0 has NaN or infinite entries: start from a finite point.")
    return x0


def checked_path(path: Any) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"checkpoint must be the name of a file, but {shown(path)} was given.")
    try:
        path = Path(path).absolute()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.lstat()
        # A link is followed.
        is_folder, folder = path.is_dir(), Path(os.path.realpath(path)).parent
        exists, writable = folder.is_dir(), os.access(folder, os.W_OK)
    except (OSError, ValueError) as error:  # too long, or with a NUL in it
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(
            f"checkpoint must be the name of a file, but {quoted(path)} is none: {reason}."
        ) from error
    if is_folder:
        raise ValueError(f"checkpoint must name a file, but {short(path)} is a folder.")
    if not exists:
        raise ValueError(f"The folder {short(folder)} for the checkpoint does not exist.")
    if not writable:
        raise ValueError(f"The folder {short(folder)} for the checkpoint is not writable.")
    return path
