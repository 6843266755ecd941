"""Many in parts: what binds a value for each of them in one statement takes no more than every database allows."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

AT_ONCE = 900
"""Of one statement, with a few values for each: SQLite takes 32,766 values in all, PostgreSQL 65,535."""

T = TypeVar("T")


def in_parts(items: Iterable[T], at_once: int = AT_ONCE) -> Iterator[list[T]]:
    """`items` in their order, `at_once` of them in each part but the last, which has at least one."""
    left = iter(items)
    while part := list(islice(left, at_once)):
        yield part
