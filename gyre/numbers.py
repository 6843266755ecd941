"""Numbers as other programs write them: decimal ASCII digits. Python's own reading takes `1_0` for ten, and the digits of every script."""

import re
from decimal import Decimal
from typing import Any

_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
CHARS_MAX = 400
"""Of text: beyond it no number is meant."""
COUNT_DIGITS_MAX = 18
"""Of a number in a name: what 64 bits hold."""


def real(value: Any) -> float:
    """A number, or text that is one; `nan` and `inf` are none. Raises ValueError, OverflowError; TypeError for what is neither."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise TypeError(f"a number is no {type(value).__name__}")
    if isinstance(value, str) and not (len(value) <= CHARS_MAX and _REAL.fullmatch(value.strip(" \t"))):
        raise ValueError(f"{value[:40]!r} is no decimal number")
    return float(value)


def whole(text: str) -> int:
    """Raises ValueError."""
    if not (len(text) <= CHARS_MAX and _WHOLE.fullmatch(text)):
        raise ValueError(f"{text[:40]!r} is no whole decimal number")
    return int(text)


def is_count(text: str) -> bool:
    """Whether text is a number from 0 on, as names end in one."""
    return text.isascii() and text.isdecimal() and len(text) <= COUNT_DIGITS_MAX
