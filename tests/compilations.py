"""What XLA has compiled in this process."""

from __future__ import annotations

import jax

compilations: list[str] = []  # the names of functions, as JAX has them


def _listen(event: str, *_, **about) -> None:
    if "backend_compile" in event:
        compilations.append(str(about.get("fun_name")))


jax.monitoring.register_event_duration_secs_listener(_listen)


def compiled_by(again) -> int:
    """How many programs a call compiles."""
    compilations.clear()
    again()
    return len(compilations)
