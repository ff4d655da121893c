"""Where nothing can be solved: inside of a JAX transformation, and in a forked process."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np

from mossp._base.types import PyTree


def refuse_tracers(*trees: PyTree) -> None:
    """Raise TypeError inside of jit, vmap or grad, where numbers have no values yet."""
    fork.check()
    refuse_traced(*trees, zero.placed())


class Zero:
    """A number that is traced inside of jit, like all others there."""

    def __init__(self) -> None:
        self._known: Any = np.zeros((), np.float32)

    def placed(self) -> Any:
        """On the device, where it stays: to place it again takes a third of the time."""
        found = jax.device_put(self._known)
        if not isinstance(found, jax.core.Tracer):
            self._known = found
        return found


zero = Zero()


def refuse_traced(*trees: PyTree) -> None:
    """The same for these alone; JAX is not called, and so it may be in a forked process."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees)):
        raise TypeError(
            "A solve runs on the host and cannot be a part of jax.jit, jax.vmap or jax.grad: call "
            "it outside of them, with numbers and arrays that have values."
        )


class Fork:
    """Whether this process was forked from one in which JAX was at work.

    JAX's threads do not survive a fork: the child would wait for them for ever.
    """

    def __init__(self) -> None:
        self.at_work = False
        self.cut_off = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        self.cut_off = self.at_work

    def check(self) -> None:
        """Raise RuntimeError in such a child; remember that JAX is at work."""
        if self.cut_off:
            raise RuntimeError(
                "This process was forked after mossp had been used, and JAX does not survive a "
                "fork: start processes by spawn, as multiprocessing.get_context('spawn') and "
                "joblib do, or fork before the first problem is made."
            )
        self.at_work = True


fork = Fork()
