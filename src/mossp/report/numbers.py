"""The one place that writes numbers for people."""

from __future__ import annotations

import math
from typing import Any

from mossp._base import printing

MINUS = "\N{MINUS SIGN}"
NONE = "\N{EN DASH}"


def value(number: float, digits: int = 8) -> str:
    """An objective or another quantity of its own scale.

    Examples
    --------
    >>> value(0.590736953), value(float("nan")), value(float("-inf"))
    ('0.59073695', 'NaN', '−∞')
    """
    return _finite(number) or _signed(f"{number:.{digits}g}")


def coefficient(number: float) -> str:
    """One entry of x.

    Examples
    --------
    >>> coefficient(-0.125), coefficient(12345.6)
    ('−0.1250', '12346')
    """
    return _finite(number) or _signed(f"{number:#.4g}" if abs(number) < 1e4 else f"{number:.5g}")


def residual(number: float) -> str:
    """Something that should be near zero.

    Examples
    --------
    >>> residual(0.00123), residual(0.0)
    ('1.23e−03', '0')
    """
    if number == 0:
        return "0"
    return _finite(number) or _signed(f"{number:.2e}")


def tolerance(number: float) -> str:
    """What a residual is held against.

    Examples
    --------
    >>> tolerance(1e-2), tolerance(1e-10)
    ('0.01', '1e−10')
    """
    return value(number, 6)


def fixed(number: float, digits: int) -> str:
    """A number with so many decimals, as in a column of a table.

    Examples
    --------
    >>> fixed(-0.666, 2), fixed(0.5, 4)
    ('−0.67', '0.5000')
    """
    return _finite(number) or _signed(f"{number:.{digits}f}")


def count(number: int) -> str:
    """A whole number.

    Examples
    --------
    >>> count(1234567)
    '1,234,567'
    """
    return _signed(f"{number:,}")


def counted(number: int, thing: str) -> str:
    """A number of things.

    Examples
    --------
    >>> counted(1, "replica"), counted(2000, "step")
    ('1 replica', '2,000 steps')
    """
    return printing.counted(number, thing, count(number))


def duration(seconds: float) -> str:
    """A length of time.

    Examples
    --------
    >>> duration(0.0421), duration(3.14159), duration(200), duration(7322)
    ('0.04 s', '3.1 s', '3 min 20 s', '2 h 2 min')
    """
    if not math.isfinite(seconds):
        return NONE
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def setting(content: Any) -> str:
    """A value of a setting, whatever it is.

    Examples
    --------
    >>> setting(25000), setting("auto"), setting(None), setting(True)
    ('25,000', 'auto', '–', 'yes')
    """
    if content is None:
        return NONE
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, int):
        return count(content)
    if isinstance(content, float):
        return tolerance(content)
    return str(content)


def _finite(number: float) -> str:
    """Empty for a finite number, else what to write for it."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else f"{MINUS}∞"
    return ""


def _signed(text: str) -> str:
    return text.replace("-", MINUS)
