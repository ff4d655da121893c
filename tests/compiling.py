"""How tests compile: most of their time is compilation, and several processes meet one program."""

from __future__ import annotations

import importlib.metadata

# XLA ends a process that sets a flag which it does not know, as it does that of the fusion emitters
# from this version of jaxlib on.
WITHOUT_EMITTERS = 0, 11


def flags() -> str:
    """Of XLA, for the version that is installed.

    Without fusion emitters programs run somewhat slower and are compiled in half the time; in one
    piece, a small one takes a tenth less of the processors.
    """
    chosen = ["--xla_cpu_parallel_codegen_split_count=1"]
    version = importlib.metadata.version("jaxlib").split(".")
    if tuple(map(int, version[:2])) < WITHOUT_EMITTERS:
        chosen.append("--xla_cpu_use_fusion_emitters=false")
    return " ".join(chosen)


# Costly optimisations are left to the benchmarks, and to `make test-optimized`.
QUICKLY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": flags()}


def kept_in(folder: str) -> dict[str, str]:
    """A program is compiled once, by whichever process comes first."""
    return {
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
