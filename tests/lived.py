"""What was alive during a test and can say something about its failure: runs, with their facts and logs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

TAIL_LINES = 25
"""Of each log: enough for the last traceback or the last steps."""
BUS_CHATTER = "[INF]"
"""What nats-server says of itself when all is well."""


class Teller(Protocol):
    def told(self) -> Iterator[tuple[str, str]]:
        """(title, text) of each section."""


_alive: list[Teller] = []
_over: list[Teller] = []
"""Ended, during the present test."""


def begin() -> None:
    """A test begins: what ended before it is none of its business."""
    _over.clear()


def add(one: Teller) -> None:
    _alive.append(one)


def remove(one: Teller) -> None:
    if one in _alive:
        _alive.remove(one)
        _over.append(one)


def told() -> list[tuple[str, str]]:
    """Sections of a report."""
    return [section for one in (*_over, *_alive) for section in one.told()]


def logs(folder: Path) -> Iterator[tuple[str, str]]:
    """The last lines of each log of a folder; of one that is empty nothing."""
    for log in sorted(folder.glob("*.log")):
        said = log.read_text(errors="replace").splitlines()
        lines = [line for line in said if BUS_CHATTER not in line][-TAIL_LINES:]
        if lines:
            yield f"end of {log}", "\n".join(line[:1000] for line in lines)
