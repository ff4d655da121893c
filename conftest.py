"""What all tests share, the examples in docstrings included."""

import contextlib
import ctypes
import gc
import importlib.util
import os
import sys
from pathlib import Path

from tests import compiling

# MOSSP_TEST_OPTIMIZED=1 compiles as users do, with all optimisations: `make test-optimized`.
CACHE = Path(__file__).parent / ".pytest_cache" / "compiled"
QUICK = {} if os.environ.get("MOSSP_TEST_OPTIMIZED") else compiling.QUICKLY
for setting, value in (QUICK | compiling.kept_in(str(CACHE))).items():
    os.environ.setdefault(setting, value)
os.environ["MOSSP_CACHE"] = "off"  # nothing is left in the user's folder
# There is a worker for every core: threads of BLAS beside it would only wait for one another.
for threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")
# Problems take turns here as nowhere else.
os.environ.setdefault("MOSSP_PROGRAMS", "600")

# MOSSP_TYPECHECK=1: shapes in the signatures of these modules are verified at every call. They see
# arrays only; arguments of users, which may be wrong, are validated elsewhere.
TYPED = [
    "mossp._base.power",
    "mossp.certificates",
    "mossp.moreau",
    "mossp.oracles",
    "mossp.regularizers.prox",
]
if os.environ.get("MOSSP_TYPECHECK") == "1":
    from jaxtyping import install_import_hook

    install_import_hook(TYPED, "beartype.beartype")

# Where torch is absent, importing its optimizer is an error that says what to install.
collect_ignore = [] if importlib.util.find_spec("torch") else ["src/mossp/torch", "tests/torch"]


# Tracing makes many small objects that live for long, and looking through them again and again
# takes a tenth of the time; what the tests consist of is never thrown away.
gc.set_threshold(100_000, 20, 20)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()


class Memory:
    """The compiled programs of a worker, those of the tests' own functions too, go in time."""

    STATUS = Path("/proc/self/statm")
    limit = 5 * 2**28  # bytes; what is kept after all is no reason to clear again soon

    @classmethod
    def resident(cls) -> int:
        return int(cls.STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @classmethod
    def clear(cls) -> None:
        sys.modules["jax"].clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        cls.limit = max(cls.limit, cls.resident() + 2**29)


def pytest_runtest_teardown():
    if "jax" in sys.modules and Memory.STATUS.exists() and Memory.resident() > Memory.limit:
        Memory.clear()
