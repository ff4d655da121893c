"""Where nothing can be solved it is said at once; a signal is heard while something compiles."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
import mossp._base.interrupt
from mossp.sklearn import MoSSPRegressor, SparsePCA

BOWL = mossp.Problem(lambda x: jnp.sum((x - 1.0) ** 2))

pytestmark = pytest.mark.slow


def solved(x0, lam=0.1):
    problem = mossp.Problem(lambda x: jnp.sum((x - 1.0) ** 2), regularizer=mossp.L1(lam))
    return jnp.asarray(mossp.solve(problem, x0).fun)


def with_number(number):
    return jnp.asarray(
        mossp.solve(mossp.Problem(lambda x: jnp.sum((x - number) ** 2)), np.zeros(1)).fun
    )


INSIDE = {
    "jit, start": lambda: jax.jit(solved)(jnp.ones(2)),
    "jit, nothing traced": lambda: jax.jit(lambda t: t + solved(np.ones(2)))(1.0),
    "vmap, start": lambda: jax.vmap(solved)(jnp.ones((3, 2))),
    "grad, start": lambda: jax.grad(solved)(jnp.ones(2)),
    "grad, strength": lambda: jax.grad(lambda lam: solved(np.ones(2), lam))(0.1),
    "grad, a number in the loss": lambda: jax.grad(with_number)(1.0),
    "vmap, data": lambda: jax.vmap(lambda A: mossp.Problem(lambda x, b: jnp.mean(b @ x), A))(
        jnp.ones((2, 3, 2))
    ),
    "vmap, a number of the method": lambda: jax.vmap(
        lambda a: mossp.solve(BOWL, np.ones(2), method=mossp.MoSSP(momentum=mossp.Polyak(a))).x
    )(jnp.full(2, 0.1)),
    "vmap, a number of the schedule": lambda: jax.vmap(
        lambda mu: (
            mossp.solve(
                BOWL, np.ones(2), method="mossp-r", schedule=mossp.schedules.Constant(5.0, mu, 0.1)
            ).x
        )
    )(jnp.full(2, 0.1)),
    "vmap, tol": lambda: jax.vmap(lambda t: mossp.solve(BOWL, np.ones(2), tol=t).x)(jnp.ones(2)),
    "jit, an estimator": lambda: jax.jit(lambda X: MoSSPRegressor().fit(X, X[:, 0]).coef_)(
        jnp.ones((5, 2))
    ),
    "jit, components": lambda: jax.jit(lambda X: SparsePCA(1).fit(X).components_)(jnp.ones((5, 2))),
}


@pytest.mark.parametrize("name", INSIDE)
def test_inside_of_a_transformation(name):
    with pytest.raises(TypeError, match=r"cannot be a part of jax\.jit, jax\.vmap or jax\.grad"):
        INSIDE[name]()


@pytest.mark.parametrize("name", ["steps", "gradients", "replicas", "starts", "trace"])
def test_numbers_beyond_all_measure(name):
    with pytest.raises(ValueError, match=f"{name} must be at most .*, but 1e[+]30 was given"):
        mossp.solve(mossp.Problem(lambda x: x @ x), np.ones(2), **{name: 10**30})


def run(code, **settings):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=120, **settings,
    )  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_at_once():
    """It would wait for ever for threads that are not there."""
    done = run(
        """
        import os, warnings
        warnings.simplefilter("ignore")
        import numpy as np, mossp
        problem = mossp.Problem(lambda x: x @ x)
        mossp.restore(problem, np.ones(2))
        if os.fork() == 0:
            for attempt in (lambda: mossp.solve(problem, np.ones(2)), lambda: mossp.Problem(abs)):
                try:
                    attempt()
                except RuntimeError as error:
                    print(error, flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("does not survive a fork") == 2 and "spawn" in done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_pool_that_forks_hands_the_sentence_back():
    """A task's arguments are unpickled before it begins: an error there would never be heard."""
    done = run(
        """
        import multiprocessing, warnings
        warnings.simplefilter("ignore")
        import numpy as np, mossp
        problem = mossp.Problem(
            mossp.losses.squared, (np.eye(2), np.ones(2)), mossp.Weighted(mossp.L1(0.1), np.ones(2))
        )
        mossp.stationarity(problem, np.ones(2))
        with multiprocessing.get_context("fork").Pool(1) as pool:
            try:
                pool.apply_async(mossp.solve, (problem, np.ones(2))).get(60)
            except RuntimeError as error:
                print(error)
        """
    )
    assert "does not survive a fork" in done.stdout, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_before_the_first_problem_solves():
    done = run(
        """
        import os, warnings
        warnings.simplefilter("ignore")
        import numpy as np, mossp
        if os.fork() == 0:
            problem = mossp.Problem(lambda x: x[0], equality=lambda x: x @ x - 1.0)
            print(mossp.restore(problem, np.array([2.0, 0.0])).tolist(), flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert done.stdout.strip() == "[1.0, 0.0]", done.stderr


# The module by itself: it needs nothing of mossp, whose import takes longer than the signals.
BUSY = f"""
    import hashlib, os, pathlib, signal, threading, time
    names = {{{{"__name__": "interrupt"}}}}
    exec(pathlib.Path({mossp._base.interrupt.__file__!r}).read_text("utf-8"), names)
    Interrupt = names["Interrupt"]
    def send(after):
        time.sleep(after)
        os.kill(os.getpid(), signal.SIGTERM)
    for after in {{signals}}:
        threading.Thread(target=send, args=(after,), daemon=True).start()
    with Interrupt() as interrupt:
        ends = time.monotonic() + {{seconds}}
        while True:  # C code that lets go of Python's lock and does not look at signals, as XLA
            hashlib.pbkdf2_hmac("sha256", b"", b"", {{rounds}})
            if {{looks}}:
                interrupt.received
            if time.monotonic() > ends:
                break
    print("received", interrupt.received)
"""


def test_a_signal_during_a_compilation_is_answered():
    """One long call: Python gets to the signal only after it."""
    done = run(BUSY.format(signals=(0.2,), seconds=0, rounds=12_000_000, looks=True))
    assert "received SIGTERM" in done.stdout and done.returncode == 0
    assert "A second signal ends the process" in done.stderr


def test_a_second_signal_during_a_compilation_ends_the_process():
    done = run(BUSY.format(signals=(0.2, 1.5), seconds=0, rounds=10**9, looks=True))
    assert done.returncode == 128 + 15
    assert "received" not in done.stdout and "A second signal ends the process" in done.stderr


def test_a_signal_that_the_run_does_not_look_at_is_answered():
    """Python hears it while long programs are traced, one after the other."""
    done = run(BUSY.format(signals=(0.2,), seconds=3, rounds=1000, looks=False))
    assert "received SIGTERM" in done.stdout and "A second signal ends" in done.stderr
    done = run(BUSY.format(signals=(0.2, 2.5), seconds=60, rounds=1000, looks=False))
    assert done.returncode == 128 + 15 or "KeyboardInterrupt" in done.stderr


def test_a_second_signal_ends_a_run_that_does_not_come_back():
    """It has looked at the first one, and compiles what it needs to judge its answer."""
    late = BUSY.replace("{rounds}", "10**9 if interrupt.received else 1000")
    done = run(late.format(signals=(0.2, 2.0), seconds=60, looks=True))
    assert done.returncode == 128 + 15 and done.stderr == ""


def test_a_signal_that_python_hears_is_not_commented():
    done = run(BUSY.format(signals=(0.2,), seconds=2, rounds=1000, looks=True))
    assert "received SIGTERM" in done.stdout and done.stderr == ""


ONE_AFTER_ANOTHER = """
import os, signal, threading, time, warnings
from mossp._base.interrupt import Interrupt

warnings.simplefilter("ignore")  # of Python 3.12: that there are threads where it is forked

def wait(interrupt):
    ends = time.monotonic() + 20
    while interrupt.received is None and time.monotonic() < ends:
        time.sleep(0.01)

for number in range(3):  # a signal to each; the first that the next one hears is its own
    with Interrupt() as outer:
        os.kill(os.getpid(), signal.SIGTERM)
        wait(outer)
    print(number, outer.received)
with Interrupt() as outer:
    with Interrupt() as inner:
        os.kill(os.getpid(), signal.SIGINT)
        wait(inner)
    print("inner", inner.received, "outer", outer.received)
    os.kill(os.getpid(), signal.SIGTERM)
    wait(outer)
    print("outer", outer.received, flush=True)
    child = os.fork()
    if not child:  # has no thread of its parent
        with Interrupt() as own:
            os.kill(os.getpid(), signal.SIGTERM)
            wait(own)
        print("child", own.received, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
time.sleep(1.5)  # whoever was still waiting for an answer would say so
print("threads", threading.active_count(), "wakeup", signal.set_wakeup_fd(-1))
"""


def test_every_run_hears_its_own_signals_by_one_thread():
    done = run(ONE_AFTER_ANOTHER)
    assert done.stderr == "" and done.returncode == 0
    assert done.stdout.splitlines() == [
        *(f"{number} SIGTERM" for number in range(3)),
        "inner SIGINT outer None",
        "outer SIGTERM",
        "child SIGTERM",
        "threads 2 wakeup -1",
    ]
