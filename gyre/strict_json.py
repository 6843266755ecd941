"""JSON objects that strangers say, read so that every reader behind us can take them: other languages' parsers, records, databases.

Python's own reader takes more than JSON (`NaN`, `Infinity`, numbers that become infinite), and more than a record can hold (integers beyond 64 bits,
half a surrogate pair, any depth).
"""

import json
import math
from typing import Any

import msgspec

from gyre.errors import InvalidInput

DEPTH_MAX = 64
"""Levels of nesting: readers of records decode recursively."""


def read_object(text: str, name: str, bytes_max: int) -> dict[str, Any]:
    """The object in `text`, {} for none. Raises InvalidInput, in which `name` says what could not be read."""
    if (size := len(text.encode("utf-8", "surrogatepass"))) > bytes_max:
        raise InvalidInput(f"{name} has {size} bytes; at most {bytes_max} bytes are taken")
    try:
        value = json.loads(text or "{}", parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{name} must be a JSON object, not {type(value).__name__}")
    check_storable(value, name)
    return value


def check_storable(value: Any, name: str) -> None:
    """What is made of JSON's types can be held by a record. Raises InvalidInput."""
    if depth(value) > DEPTH_MAX:
        raise InvalidInput(f"{name} is nested more than {DEPTH_MAX} deep")
    try:
        msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{name} cannot be stored: {error}; numbers of 64 bits and Unicode text are taken"
        ) from error


def depth(value: Any) -> int:
    """Levels of nesting, counted without recursion."""
    found, level = 0, [value]
    while level:
        found += 1
        outer = [one for one in level if isinstance(one, dict | list | tuple)]
        level = [inner for one in outer for inner in (one.values() if isinstance(one, dict) else one)]
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is too large a number")
    return number


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
