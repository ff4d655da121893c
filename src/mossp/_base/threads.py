"""How many threads BLAS takes: one for the small matrices of polishing, all for large products.

A factorisation of the order of a hundred is over before other threads have begun; these then wait
in a loop, at the expense of whatever runs beside and after it: polishing takes up to four times as
long with two threads as with one.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

LARGE = 2**26  # multiplications in a product from which on threads are worth their waiting


class Limit:
    """The limit of this process, which its threads share: the first sets it, the last lifts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._set: Any = None

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """One thread for BLAS.

        Examples
        --------
        >>> import numpy as np
        >>> with limit.one():
        ...     float(np.eye(2).sum())
        2.0
        """
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._set = controller().limit(limits=1)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._lift()

    @contextlib.contextmanager
    def for_product(self, size: int) -> Iterator[None]:
        """All threads for a product of so many multiplications, if it is a large one."""
        if size < LARGE or not self._users:
            yield
            return
        with self._lock:
            self._lift()
        try:
            yield
        finally:
            with self._lock:
                if self._users and self._set is None:
                    self._set = controller().limit(limits=1)

    def _lift(self) -> None:
        if self._set is not None:
            self._set.restore_original_limits()
        self._set = None


@functools.cache
def controller() -> Any:
    """Of the BLAS of NumPy and of SciPy, which are two."""
    import scipy.linalg  # noqa: F401  # whose BLAS is loaded with it
    import threadpoolctl

    return threadpoolctl.ThreadpoolController().select(user_api="blas")


limit = Limit()
