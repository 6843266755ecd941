"""Which cell runs a call: stay where the prefix is, leave where training begins, spread what is new (A6).

While some cell is away in training, the others take sessions up to their capacity and no more: what they cannot hold waits, in order of waiting time,
for a place or for the first cell that returns (a pool that leaves must not bury the few that stay). A session that gives up its place between two
calls, for others wait, comes back to where its prefix lies when there is room. While no cell is away there is nothing to wait for, and engines queue
what is too much, first come first served.
"""

from dataclasses import dataclass, field

IMBALANCE_SESSIONS = 4
IMBALANCE_SHARE = 0.25
"""A session also leaves a serving cell that has this many (or this share) more sessions than the emptiest one: a cell that
came back from training would else stay empty until new executions begin."""


@dataclass(slots=True)
class Cell:
    """What routing knows of a cell."""

    order: int
    """Place in the order of cells; the last one goes to training last."""
    serving: bool = False
    suspected: bool = False
    """Its process does not answer; not chosen until it does."""
    sessions: set[str] = field(default_factory=set)
    """Those that have a place here."""


class Routing:
    """Cells and where each session's prefix lies."""

    def __init__(self, cells: list[str], capacity: int) -> None:
        """`capacity`: sessions a cell serves well at a time (C_e)."""
        self.cells = {name: Cell(order) for order, name in enumerate(cells)}
        self._capacity = capacity
        self._home: dict[str, str] = {}
        """Where the session's prefix lies, with a place there or not."""

    def serving(self) -> list[str]:
        """Names of the cells that calls may go to."""
        return [name for name, cell in self.cells.items() if cell.serving and not cell.suspected]

    @property
    def is_any_away(self) -> bool:
        """A cell is in training, or on its way."""
        return any(not cell.serving for cell in self.cells.values())

    def is_placed(self, session: str) -> bool:
        """It has a place at a cell that serves."""
        home = self._home.get(session)
        return home in self.serving() and session in self.cells[home].sessions

    def choose(self, session: str) -> str | None:
        """The cell of the session's next call, now its home; None when no cell can take it and the call must wait."""
        serving = self.serving()
        if not serving:
            return None
        home = self._home.get(session)
        emptiest = min(serving, key=lambda name: (len(self.cells[name].sessions), -self.cells[name].order))
        with_room = [name for name in serving if len(self.cells[name].sessions) < self._capacity]
        is_placed = home in serving and session in self.cells[home].sessions
        if not is_placed and not with_room and self.is_any_away:
            return None
        if home in serving and (is_placed or home in with_room or not self.is_any_away):
            gap = len(self.cells[home].sessions) - len(self.cells[emptiest].sessions)
            chosen = (
                home if gap <= max(IMBALANCE_SESSIONS, IMBALANCE_SHARE * len(self._home) / len(serving)) else emptiest
            )
        elif home is None or home in serving:
            chosen = emptiest
        else:
            chosen = max(with_room, key=lambda name: self.cells[name].order, default=emptiest)
        if chosen != home:
            self.forget(session)
            self._home[session] = chosen
        self.cells[chosen].sessions.add(session)
        return chosen

    def give_up_place(self, session: str) -> None:
        """Another may have it; where the prefix lies is remembered."""
        if (home := self._home.get(session)) is not None:
            self.cells[home].sessions.discard(session)

    def forget(self, session: str) -> None:
        """The session is over, or moves."""
        home = self._home.pop(session, None)
        if home is not None:
            self.cells[home].sessions.discard(session)

    def set_serving(self, name: str, serving: bool) -> None:
        self.cells[name].serving = serving
        if serving:
            self.cells[name].suspected = False
