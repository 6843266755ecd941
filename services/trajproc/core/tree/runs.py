"""What the builder is made of: records that have their place, and runs.

    leg    a stretch of a record's new tokens that lies on one run; a record has one leg, unless some of its tokens were there already

A record names its context by parent and cut. It hangs from the record whose *new* tokens hold the last token before the cut, so cuts rise strictly
from the root on, and jump pointers (Myers, An applicative random-access stack, 1983) find the holder of a position in logarithmic time.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import numpy.typing as npt

from gyre.records import CallRecorded, array
from services.trajproc.core.tree.problems import ITEM_BYTES

NO_RUN = -1
"""The root, as the run in which the empty context ends."""
COMPARED_FIRST = 64
"""Tokens compared at once, doubled while they agree: a comparison costs what agrees, not what is there."""


@dataclass(slots=True, eq=False, repr=False)
class Placed:
    """A record that has its place: its new tokens are positions cut … total−1."""

    record: CallRecorded
    above: Placed | None
    """The record whose new tokens hold position cut − 1."""
    jump: Placed | None = None
    depth: int = 1
    cut: int = 0
    total: int = 0
    legs: list[tuple[int, int]] = field(default_factory=list)
    """(position where it enters a run, the run), rising."""
    end: tuple[int, int] = (NO_RUN, 0)
    """Place of the whole context."""

    def __post_init__(self) -> None:
        self.cut = self.record.parent_tokens
        self.total = self.record.prompt_tokens + len(self.record.output_ids) // ITEM_BYTES
        if self.above is None:
            return
        above, middle = self.above, self.above.jump
        self.depth = above.depth + 1
        far = middle.jump if middle else None
        is_even = middle is not None and above.depth - middle.depth == middle.depth - (far.depth if far else 0)
        self.jump = far if is_even else above

    def run_before(self, position: int) -> int:
        """The run that holds the token before `position`, one of its own new tokens."""
        return self.legs[bisect_left(self.legs, (position,)) - 1][1]

    def after(self, position: int) -> npt.NDArray:
        """int32[≥1 while position < total]: its own tokens from `position` to the end of prompt or output."""
        if position < self.record.prompt_tokens:
            return array(self.record.prompt_delta, "int32")[position - self.cut :]
        return array(self.record.output_ids, "int32")[position - self.record.prompt_tokens :]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Run:
    """Positions start … of the record that brought it, up to the end of that record's context."""

    placed: Placed
    start: int
    parent: int
    """The run that it leaves, or NO_RUN."""


def holder(placed: Placed | None, cut: int) -> Placed | None:
    """The nearest of `placed` and those above it whose new tokens hold position cut − 1; None at the root."""
    while placed is not None and placed.cut >= cut:
        placed = placed.jump if placed.jump is not None and placed.jump.cut >= cut else placed.above
    return placed


def agreed(one: Placed, other: Placed, position: int) -> int:
    """First position from `position` on where two records' new tokens differ, or one of them ends."""
    span = COMPARED_FIRST
    while position < one.total and position < other.total:
        mine, theirs = one.after(position)[:span], other.after(position)[:span]
        together = min(len(mine), len(theirs))
        differ = mine[:together] != theirs[:together]
        if differ.any():
            return position + int(differ.argmax())
        position, span = position + together, span * 2
    return position
