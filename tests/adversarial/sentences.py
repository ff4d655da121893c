"""What an error may be: of the right type, and one sentence that a person can read."""

from __future__ import annotations

import re

SHORTEST, LONGEST = 15, 2000  # characters
# Words of JAX, XLA and Python that mean nothing to a user, and addresses.
INTERNALS = re.compile(
    r"Traced<|Tracer|jaxpr|eqx\.|equinox|XlaRuntime|pjit|ConcretizationTypeError"
    r"|object at 0x|NoneType' object|unhashable type|has no attribute|lax\.\w+ requires"
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def fault_of(error: BaseException, allowed: tuple[type[BaseException], ...]) -> str | None:
    """What is wrong with an error, if anything."""
    text = str(error)
    kind = type(error).__name__
    if not isinstance(error, allowed):
        return f"{kind}: {text[:120]!r}"
    if len(text) <= SHORTEST:
        return f"{kind} with {text!r}, which is no sentence"
    if len(text) > LONGEST:
        return f"{kind} with {len(text)} characters"
    if found := CONTROL.search(text):
        return f"{kind} with the control character {found.group()!r}"
    if found := INTERNALS.search(text):
        return f"{kind} that speaks of internals ({found.group()!r}): {text[:160]!r}"
    return None
