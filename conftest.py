"""What all tests share, the examples in docstrings included."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

# Most of a test's time is compilation. Many tests compile the same program, in several processes:
# it is kept from the first time on; and costly optimisations are left to the benchmarks.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Without these, programs run somewhat slower and are compiled in half the time.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
CACHE = Path(__file__).parent / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# Where torch is absent, importing its optimizer is an error that says what to install.
collect_ignore = [] if importlib.util.find_spec("torch") else ["src/mossp/torch"]

MAPS = Path("/proc/self/maps")
ENOUGH = 30_000  # of the 65,530 memory maps that Linux gives a process


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """Every compiled program takes some memory maps: they are let go before there are too many."""
    yield
    if "jax" in sys.modules and MAPS.exists():
        with MAPS.open("rb") as lines:
            if sum(1 for _ in lines) > ENOUGH:
                sys.modules["jax"].clear_caches()
