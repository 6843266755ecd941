"""How an engine in a process of its own gets new weights, and how it is mended when that fails (A4). Pure: one transition table.

    starting ─▶ pausing ─▶ opening ─▶ sending ─▶ closing ─▶ checking ─▶ clearing ─▶ resuming ─▶ serving
       ▲           │          ▲          │          │           │           │           │          │
       │        restart       └──────────┴─ repair ─┴───────────┘        restart     restart     death
       └──────────────────────────────────────────────────────────────────────────────────────────┘

From `opening` to `checking` live weights may be half new: nothing but `checking` leads on to serving. A repair loads the last good
weights in place of the new ones; when that fails too, or the process is silent, it is killed and a new one loads them.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

RESTARTS_MAX = 2
"""New processes within one update; after that the cell is lost."""


class Phase(StrEnum):
    STARTING = "starting"
    """A process without weights that count is started; an old one is killed first."""
    PAUSING = "pausing"
    """Running calls stand still and keep what they have."""
    OPENING = "opening"
    SENDING = "sending"
    CLOSING = "closing"
    CHECKING = "checking"
    """The digest of what would serve is that of what was published."""
    CLEARING = "clearing"
    """Keys and values of older weights are forgotten; running calls compute theirs again."""
    RESUMING = "resuming"
    SERVING = "serving"
    LOST = "lost"


class Outcome(StrEnum):
    DONE = "done"
    FAILED = "failed"
    """The process answered that it could not, or the digest differs."""
    SILENT = "silent"
    """No answer in time, or the process is gone."""


class Mend(StrEnum):
    REPAIR = "repair"
    RESTART = "restart"


_P, _R, _S = Phase, Mend.REPAIR, Mend.RESTART
TABLE: dict[Phase, tuple[Phase | Mend, Phase | Mend, Phase | Mend]] = {
    # phase       done         failed   silent
    _P.STARTING: (_P.PAUSING, _S, _S),
    _P.PAUSING: (_P.OPENING, _S, _S),
    _P.OPENING: (_P.SENDING, _R, _S),
    _P.SENDING: (_P.CLOSING, _R, _S),
    _P.CLOSING: (_P.CHECKING, _R, _S),
    _P.CHECKING: (_P.CLEARING, _R, _S),
    _P.CLEARING: (_P.RESUMING, _S, _S),
    _P.RESUMING: (_P.SERVING, _S, _S),
    _P.SERVING: (_P.PAUSING, _S, _S),
    _P.LOST: (_P.LOST, _P.LOST, _P.LOST),
}
"""What follows each outcome. `serving` and `done`: there are newer weights."""
_COLUMN = {Outcome.DONE: 0, Outcome.FAILED: 1, Outcome.SILENT: 2}


@dataclass(frozen=True, slots=True)
class Update:
    """One way from the weights that serve to others."""

    phase: Phase
    target: int
    """Policy version that is being loaded."""
    good: int | None = None
    """Version that was served last, which a repair goes back to; None before the first."""
    is_repair: bool = False
    """Whether this process was already given a second try."""
    restarts: int = 0

    @property
    def is_over(self) -> bool:
        return self.phase in (Phase.SERVING, Phase.LOST)


def after(update: Update, outcome: Outcome) -> Update:
    """The state that follows when what `update.phase` stands for has ended like this."""
    follows = TABLE[update.phase][_COLUMN[outcome]]
    if isinstance(follows, Phase):
        good = update.target if follows is Phase.SERVING else update.good
        return replace(update, phase=follows, good=good)
    back = update.target if update.good is None else update.good
    if follows is Mend.REPAIR and not update.is_repair:
        return replace(update, phase=Phase.OPENING, target=back, is_repair=True)
    if update.restarts >= RESTARTS_MAX:
        return replace(update, phase=Phase.LOST)
    return replace(update, phase=Phase.STARTING, target=back, is_repair=False, restarts=update.restarts + 1)
