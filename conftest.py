"""What all tests share, the examples in docstrings included."""

import contextlib
import ctypes
import gc
import importlib.util
import os
import sys
from pathlib import Path

# Most of a test's time is compilation. Many tests compile the same program, in several processes:
# it is kept from the first time on; and costly optimisations are left to the benchmarks.
# MOSSP_TEST_OPTIMIZED=1 compiles as users do, with all of them: `make test-optimized`.
if not os.environ.get("MOSSP_TEST_OPTIMIZED"):
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    # Without these, programs run somewhat slower and are compiled in half the time; in one piece,
    # a small one takes a tenth less of the processors.
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
    )
# There is a worker for every core: threads of BLAS beside it would only wait for one another.
for threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")
# Problems take turns here as nowhere else.
os.environ.setdefault("MOSSP_PROGRAMS", "600")
CACHE = Path(__file__).parent / ".pytest_cache" / "compiled"
os.environ["MOSSP_CACHE"] = "off"  # nothing is left in the user's folder
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

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
