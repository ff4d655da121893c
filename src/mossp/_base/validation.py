"""What an argument may be: numbers, whole numbers and choices, refused in one sentence.

Numbers are real numbers: Python's and NumPy's, fractions, and what NumPy can read as an array of
them. What JAX traces has no value yet, and passes.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import TypeGuard, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.printing import shown
from mossp._base.types import AnyArray, AnyNumber, HostArray

T = TypeVar("T")

Holds = Callable[[AnyArray], AnyArray]  # whether a number is inside; of an array, entry by entry

MOST_COUNTED = 2**40  # steps, samples, replicas: nobody waits for more


def is_real(value: object) -> TypeGuard[float]:
    """Whether it is a number of Python or NumPy; durations and truth values claim to be one."""
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.timedelta64))


def real(value: AnyNumber) -> AnyNumber:
    """A whole number or a fraction as a float, so that lam = 1 and lam = 0.5 share a program.

    What is no number stays as it is, for the check that follows.

    Examples
    --------
    >>> real(3), real("3")
    (3.0, '3')
    """
    rational = is_real(value) and isinstance(value, numbers.Rational)
    return _float(value, otherwise=value) if rational else value


def integral(value: AnyNumber) -> AnyNumber:
    """A whole number of any type, or a fraction that is one, as an int; the rest as it is."""
    rational = is_real(value) and isinstance(value, numbers.Rational)
    return int(value) if rational and value % 1 == 0 else value


def number(value: AnyNumber) -> AnyNumber:
    """The same, and a float for an array of one number without an axis."""
    array = concrete(value)
    return float(array) if array is not None and array.ndim == 0 else value


def reals(value: AnyNumber) -> AnyNumber:
    """The same, and an array for a list of numbers."""
    if isinstance(value, (list, tuple)):
        parts = [concrete(part) for part in value]
        if all(part is not None and not part.ndim for part in parts):
            return np.array(parts, np.float64)
    return real(value)


def concrete(value: object) -> HostArray | None:
    """Real numbers as a NumPy array; None for anything else, and for what has no value yet."""
    if isinstance(value, jax.core.Tracer):
        return None
    if is_real(value):
        return None if (found := _float(value, otherwise=None)) is None else np.asarray(found)
    if not hasattr(value, "__array__") or hides_entries(value):
        return None
    if isinstance(value, jax.Array) and not isinstance(value.dtype, np.dtype):
        return None  # random keys
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    # JAX knows more types of real numbers, such as bfloat16.
    good = array.dtype.kind in "iuf" or jnp.issubdtype(array.dtype, jnp.floating)
    return array if good else None


def is_number(
    value: object, holds: Holds | None = None, *, several: bool = False, finite: bool = True
) -> bool:
    """Whether it is a number (`several`: or an array of them), each finite, for which it holds."""
    if isinstance(value, jax.core.Tracer):
        return True
    array = concrete(value)
    if array is None or (array.ndim and not several):
        return False
    if finite and not np.isfinite(array).all():
        return False
    with np.errstate(invalid="ignore"):  # inf % 1
        return holds is None or bool(np.all(holds(array)))


def is_weight(alpha: AnyNumber) -> AnyArray:
    """Whether it can weigh what is new against what was there before."""
    return (alpha > 0) & (alpha <= 1)


def require(
    owner: object, name: str, value: object, needs: str, holds: Holds, *,
    several: bool = False, finite: bool = True,
) -> None:  # fmt: skip
    """Raise a ValueError unless `value` is a number for which `holds`.

    Examples
    --------
    >>> require(np.ones(1), "mu", 0.0, "mu > 0", lambda mu: mu > 0)
    Traceback (most recent call last):
    ValueError: ndarray needs mu > 0, but mu = 0.0 was given.
    """
    if is_number(value, holds, several=several, finite=finite):
        return
    array = concrete(value)
    if array is None:
        why = f", which is {'too large' if is_real(value) else 'no real number'}"
    elif array.ndim and not several:
        why = f", an array of shape {array.shape} in place of one number"
    else:
        why = "" if not finite or np.isfinite(array).all() else ", which is not finite"
    raise ValueError(
        f"{type(owner).__name__} needs {needs}, but {name} = {shown(value)} was given{why}."
    )


def require_positive(owner: object, name: str, value: object) -> None:
    """Raise ValueError unless `value` is a positive, finite number, or an array of them."""
    needs = f"a positive, finite {name}"
    require(owner, name, value, needs, lambda given: given > 0, several=True)


def require_shape(name: str, field: str, value: AnyArray, shape: tuple[int | str, ...]) -> None:
    """Raise ValueError unless the shape is this one; a letter in it stands for any length."""
    given = np.shape(value)
    if len(given) == len(shape) and all(
        isinstance(need, str) or need == have for need, have in zip(shape, given, strict=True)
    ):
        return
    need = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    raise ValueError(f"{name} needs {field} of shape ({need}), but {field} has shape {given}.")


def require_finite(name: str, field: str, value: object) -> None:
    """Raise ValueError unless all numbers are real and finite; what is traced has no values yet."""
    if isinstance(value, jax.core.Tracer):
        return
    array = concrete(value)
    if array is None:
        raise ValueError(f"{name} needs real numbers, but {field} = {shown(value)} was given.")
    bad = ~np.isfinite(array)
    if bad.any():
        where = f" at index {tuple(map(int, np.argwhere(bad)[0]))}" if bad.ndim else ""
        raise ValueError(
            f"{name} needs finite numbers, but {field} holds NaN or an infinite value{where}."
        )


def whole(name: str, value: object, least: int, most: int = MOST_COUNTED) -> int:
    """A whole number in a range, as an int."""
    if not is_real(value) or value % 1 != 0:
        raise TypeError(f"{name} must be a whole number, but {shown(value)} was given.")
    count = int(value)
    if count < least:
        raise ValueError(f"{name} must be at least {least}, but {shown(value)} was given.")
    if count > most:
        raise ValueError(f"{name} must be at most {most:,}, but {shown(value)} was given.")
    return count


def positive(name: str, value: object) -> float:
    """A positive and finite number, as a float."""
    if not is_real(value):
        raise TypeError(f"{name} must be a number, but {shown(value)} was given.")
    found = _float(value, otherwise=math.inf)
    if not 0 < found < math.inf:
        raise ValueError(f"{name} must be positive and finite, but {shown(value)} was given.")
    return found


def is_choice(value: object, choices: Sequence[object]) -> bool:
    """Whether it is one of these; an array, which answers == entry by entry, is none of them."""
    plain = value is None or isinstance(value, (bool, int, str, np.bool_))
    return plain and value in choices


def check_choice(name: str, given: object, choices: Sequence[object]) -> None:
    """Raise ValueError unless an argument is one of its choices."""
    if not is_choice(given, choices):
        raise ValueError(
            f"{name} must be {' or '.join(map(repr, choices))}, but {shown(given)} was given."
        )


def hides_entries(value: object) -> bool:
    """Whether it is a masked array with entries that are missing, which np.asarray would show."""
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any())


def _float(value: AnyNumber, otherwise: T) -> float | T:
    try:
        return float(value)
    except OverflowError:  # 10**400
        return otherwise
