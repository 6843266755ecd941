"""What the doctor says of one illness, and what is left on the disk."""

from dataclasses import dataclass
from typing import Any

Z_MIN = 3.0
"""Standard errors beyond which it is not chance: once in some 700 independent looks."""


@dataclass(frozen=True)
class Room:
    """Where the books and the run's folder are kept."""

    database_bytes: int | None = None
    free_bytes: int | None = None
    """Of that disk; None where it cannot be seen (a database server's)."""
    now_s: float | None = None


@dataclass(frozen=True)
class Evidence:
    what: str
    value: float | None
    line: float
    is_over: bool

    def told(self) -> dict[str, Any]:
        return {"what": self.what, "value": self.value, "line": self.line, "is_over": self.is_over}


@dataclass(frozen=True)
class Finding:
    illness: str
    evidence: list[Evidence]
    """Empty: unknown."""
    figure: str
    remedy: str
    alarm_kinds: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        if not self.evidence:
            return "unknown"
        return "ill" if any(one.is_over for one in self.evidence) else "well"

    def told(self) -> dict[str, Any]:
        return {
            "illness": self.illness, "state": self.state, "figure": self.figure, "evidence": [one.told() for one in self.evidence],
            "remedy": self.remedy,
        }  # fmt: skip
