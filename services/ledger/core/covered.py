"""How much of a trace's time has a name: the one definition that every question about traces shares (E).

A trace is measured from its first span's begin to the end of its first `train.gradient` (what an elite sample does later is another story), or of its
last span where it has no gradient yet. The span `execution` is a container (it lies over everything that happens in it) and accounts for nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

CONTAINERS = frozenset({"execution"})
GRADIENT = "train.gradient"


@dataclass(frozen=True)
class Gap:
    """Time between two spans that no span covers."""

    after: str
    before: str
    """Empty at the trace's end, as `after` at its begin."""
    lasted_ns: int


@dataclass(frozen=True)
class Covered:
    """One trace: its length, and the gaps in it."""

    total_ns: int
    gaps: tuple[Gap, ...]
    has_gradient: bool

    @property
    def unaccounted_ns(self) -> int:
        return sum(gap.lasted_ns for gap in self.gaps)

    @property
    def unaccounted_share(self) -> float:
        return self.unaccounted_ns / self.total_ns if self.total_ns else 0.0


def covered(spans: Iterable[tuple[str, int, int]]) -> Covered:
    """`spans` (name, start_ns, end_ns) in order of start, at least one; a span that ends before it begins counts as ending there."""
    found = [(name, start, max(start, end)) for name, start, end in spans]
    gradients = [end for name, _, end in found if name == GRADIENT]
    end_ns = min(gradients) if gradients else max(end for _, _, end in found)
    begin_ns = until_ns = found[0][1]
    gaps, last = [], ""
    for name, start, end in found:
        if name in CONTAINERS or start >= end_ns:
            continue
        if start > until_ns:
            gaps.append(Gap(_stage(last), _stage(name), start - until_ns))
        if end > until_ns:
            until_ns, last = min(end, end_ns), name
    if end_ns > until_ns:
        gaps.append(Gap(_stage(last), "", end_ns - until_ns))
    return Covered(end_ns - begin_ns, tuple(gaps), bool(gradients))


def _stage(name: str) -> str:
    """`execute_tool run_tests` → `execute_tool`: tools are users' and many."""
    return name.split(" ", 1)[0]
