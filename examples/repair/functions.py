"""The functions that generated packages are made of, and the faults that can be planted in each.

A `Function` is a right piece of Python with the ways in which people get it wrong. Its parameters are placeholders such
as `{price}`, each drawn from a few names, so that the same function looks different in different packages. What is right
follows from the name of the function and from its tests: nothing else tells which form is the faulty one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Arguments = Callable[[Random], tuple]

KINDS = ("comparison", "operator", "name", "missing_return", "condition", "constant", "import")
"""Kinds of fault; a task's type is `repair.<kind>`."""

NAMES = {
    "xs": ("xs", "items"),
    "n": ("n", "number"),
    "price": ("price", "cost"),
    "width": ("width", "w"),
    "height": ("height", "h"),
}
"""Placeholder → names it may take in a package. A placeholder that is not listed is used as it is."""


@dataclass(frozen=True)
class Fault:
    """In line `line` (0 is the `def`), the first `right` was written as `wrong`."""

    kind: str
    line: int
    right: str
    wrong: str


@dataclass(frozen=True)
class Function:
    name: str
    lines: tuple[str, ...]
    faults: tuple[Fault, ...]
    arguments: Arguments


def _function(source: str, arguments: Arguments, *faults: tuple[str, int, str, str]) -> Function:
    lines = tuple(source.strip().split("\n"))
    return Function(lines[0][4 : lines[0].index("(")], lines, tuple(Fault(*f) for f in faults), arguments)


def _int(rng: Random, low: int = 2, high: int = 9) -> int:
    return rng.randint(low, high)


def _ints(rng: Random) -> list[int]:
    return [rng.randint(1, 9) for _ in range(rng.randint(3, 4))]


def _word(rng: Random) -> str:
    return rng.choice(("red", "blue", "tea", "sun", "oak"))


MODULES: dict[str, tuple[Function, ...]] = {
    "nums": (
        _function(
            "def is_even({n}):\n    return {n} % 2 == 0",
            lambda r: (_int(r, 0, 20),),
            ("comparison", 1, "==", "!="),
            ("constant", 1, "2", "3"),
            ("operator", 1, "%", "//"),
        ),
        _function(
            "def gap(a, b):\n    return abs(a - b)",
            lambda r: (_int(r), _int(r)),
            ("operator", 1, "-", "+"),
            ("name", 1, "- b", "- a"),
        ),
        _function(
            "def sign({n}):\n    if {n} < 0:\n        return -1\n    return 1",
            lambda r: (r.choice((-3, -2, 0, 4, 5)),),
            ("comparison", 1, "<", ">="),
            ("comparison", 1, "<", "<="),
            ("constant", 2, "return -1", "return 0"),
        ),
    ),
    "text": (
        _function(
            "def shout(s):\n    return s.upper() + '!'",
            lambda r: (_word(r),),
            ("name", 1, "upper", "lower"),
            ("missing_return", 1, "return s", "s"),
        ),
        _function(
            "def initial(s):\n    return s[0]",
            lambda r: (_word(r),),
            ("constant", 1, "0", "1"),
            ("missing_return", 1, "return s", "s"),
        ),
        _function(
            "def is_blank(s):\n    return not s.strip()",
            lambda r: (r.choice(("", " ", "a", "to")),),
            ("condition", 1, "return not s", "return s"),
            ("name", 1, "strip", "upper"),
        ),
    ),
    "money": (
        _function(
            "def net({price}, cut):\n    return {price} - cut",
            lambda r: (_int(r, 10, 20), _int(r)),
            ("operator", 1, "-", "+"),
            ("operator", 1, "-", "*"),
        ),
        _function(
            "def change(paid, {price}):\n    if paid < {price}:\n        return 0\n    return paid - {price}",
            lambda r: (_int(r, 1, 9), _int(r, 1, 9)),
            ("comparison", 1, "<", ">"),
            ("constant", 2, "return 0", "return 1"),
            ("operator", 3, "-", "+"),
        ),
        _function(
            "def is_paid(paid, {price}):\n    return paid >= {price}",
            lambda r: (_int(r, 4, 7), _int(r, 4, 7)),
            ("comparison", 1, ">=", ">"),
            ("comparison", 1, ">=", "<="),
        ),
    ),
    "clock": (
        _function(
            "def hours(minutes):\n    return minutes // 60",
            lambda r: (_int(r, 100, 400),),
            ("constant", 1, "60", "6"),
            ("operator", 1, "//", "%"),
        ),
        _function(
            "def days(weeks):\n    return weeks * 7",
            lambda r: (_int(r),),
            ("constant", 1, "7", "5"),
            ("operator", 1, "*", "+"),
            ("missing_return", 1, "return weeks", "weeks"),
        ),
        _function(
            "def wait(start, stop):\n    if not start:\n        return 0\n    return stop - start",
            lambda r: (r.choice((0, 2, 3, 4)), _int(r, 5, 9)),
            ("condition", 1, "if not start", "if start"),
            ("name", 3, "return stop", "return start"),
            ("operator", 3, "-", "+"),
        ),
    ),
    "grid": (
        _function(
            "def area({width}, {height}):\n    return {width} * {height}",
            lambda r: (_int(r), _int(r)),
            ("operator", 1, "*", "+"),
            ("name", 1, "* {height}", "* {width}"),
        ),
        _function(
            "def edge({width}, {height}):\n    return 2 * ({width} + {height})",
            lambda r: (_int(r), _int(r)),
            ("constant", 1, "2", "4"),
            ("operator", 1, "+", "-"),
        ),
        _function(
            "def cell(row, col, {width}):\n    return row * {width} + col",
            lambda r: (_int(r), _int(r), _int(r)),
            ("operator", 1, "+", "-"),
            ("name", 1, "row", "col"),
        ),
    ),
    "seqs": (
        _function(
            "def last({xs}):\n    return {xs}[-1]",
            lambda r: (_ints(r),),
            ("constant", 1, "-1", "0"),
            ("missing_return", 1, "return {xs}", "{xs}"),
        ),
        _function(
            "def total({xs}):\n    result = 0\n    for x in {xs}:\n        result += x\n    return result",
            lambda r: (_ints(r),),
            ("constant", 1, "0", "1"),
            ("operator", 3, "+=", "-="),
            ("name", 4, "return result", "return x"),
        ),
        _function(
            "def is_empty({xs}):\n    return not {xs}",
            lambda r: (r.choice(([], [1], [2, 3])),),
            ("condition", 1, "return not {xs}", "return {xs}"),
        ),
    ),
}
"""Module name → the functions it may hold."""

IMPORTS = (
    ("import math", "math", "maths", "def root(n):\n    return math.isqrt(n)", lambda r: (r.choice((9, 16, 25)),)),
    ("import json", "json", "jason", "def dump(n):\n    return json.dumps(n)", lambda r: (_int(r),)),
    ("import string", "string", "strings", "def digits():\n    return string.digits", lambda r: ()),
    (
        "import calendar",
        "calendar",
        "calender",
        "def leap(n):\n    return calendar.isleap(n)",
        lambda r: (r.choice((1999, 2000, 2004)),),
    ),
)
"""(right import line, right module, misspelled module, the function that needs it, its arguments)."""
