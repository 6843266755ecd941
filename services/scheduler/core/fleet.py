"""Cells: their order, their last role fact, and what the policy asks of them at every decision, kept as counters."""

from bisect import bisect_left, insort

import msgspec

from gyre.ids import cell_id
from gyre.records import CELL_PHASES, CellReported, RoleChanged
from services.scheduler.core.settings import CellKind, Settings

SWITCHES_REMEMBERED = 3
"""Role changes of each direction whose cost is averaged: enough to forget an outlier, few enough to follow a change."""


class Cell(msgspec.Struct, kw_only=True):
    """Last word on a cell's role and capacity."""

    kind: CellKind = "elastic"
    position: int = 0
    """Index in the order of cells; 0 is the core."""
    capacity: int = 0
    """Executions that it can serve at a time; 0: it is lost, whatever its role."""
    reported_at_s: float = float("-inf")
    """When its capacity was last reported."""
    change: int = -1
    target: str = "rollout"
    phase: str = ""
    at_s: float = 0.0
    """When its newest phase was told."""
    requested_at_s: float = 0.0
    burst: int = -1
    """The burst in which this change was requested."""

    @property
    def is_settled(self) -> bool:
        """Its role change is complete."""
        return self.phase == CELL_PHASES[self.target][-1]

    @property
    def is_serving(self) -> bool:
        return self.target == "rollout" and self.is_settled and self.capacity > 0

    @property
    def is_lost(self) -> bool:
        return self.capacity == 0


class Fleet(msgspec.Struct):
    """All cells in order. Every list and number beside `cells` follows from it and is kept up to date by `_weigh`."""

    cells: dict[str, Cell] = {}
    names: list[str] = []
    """By position."""
    capacity: int = 0
    """C_R: executions that the serving cells hold."""
    standalone_capacity: int = 0
    """The part of C_R that never trains."""
    rollout_capacity: int = 0
    """C_R if every elastic and standalone cell served."""
    moving: dict[str, None] = {}
    """Cells with a role change under way; a lost cell holds nobody up."""
    unasked: dict[str, None] = {}
    """Cells that never were asked into a role."""
    serving: list[int] = []
    """Positions of the elastic cells that serve, in order."""
    trainers: int = 0
    """Cells in training, their role change done."""
    training: list[int] = []
    """Positions of the elastic cells whose target is training, in order."""
    switch_s: dict[str, list[float]] = {}
    """Target role → what the last role changes took, from request to done."""

    @classmethod
    def of(cls, settings: Settings) -> "Fleet":
        fleet = cls()
        for index in range(settings.cells):
            cell = Cell(kind=settings.cell_kind(index), position=index, capacity=settings.cell_capacity)
            cell.target = initial_role(cell.kind)
            fleet.cells[cell_id(index)] = cell
        fleet._count_anew()
        return fleet

    @property
    def core(self) -> Cell:
        """The cell that steps the optimizer: the first."""
        return self.cells[self.names[0]]

    @property
    def is_moving(self) -> bool:
        return bool(self.moving)

    def at(self, position: int) -> Cell:
        return self.cells[self.names[position]]

    def role_changed(self, fact: RoleChanged) -> bool:
        """Fold a phase; False when it is old news."""
        cell = self.cells.get(fact.cell)
        if cell is None or fact.change < cell.change:
            return False
        phases = CELL_PHASES[fact.target]
        is_new = fact.change > cell.change
        if not is_new and phases.index(fact.phase) <= phases.index(cell.phase):
            return False
        self._weigh(fact.cell, cell, -1)
        if is_new:
            cell.burst, cell.requested_at_s = fact.burst, fact.at_s
        cell.change, cell.target, cell.phase, cell.at_s = fact.change, fact.target, fact.phase, fact.at_s
        self._weigh(fact.cell, cell, 1)
        if cell.is_settled and cell.change > 0:
            costs = self.switch_s.setdefault(cell.target, [])
            costs.append(max(0.0, cell.at_s - cell.requested_at_s))
            del costs[:-SWITCHES_REMEMBERED]
        return True

    def reported(self, fact: CellReported) -> None:
        """Fold a capacity, unless a newer one is known. A cell that nobody knew comes after the last elastic one, before the standalone ones."""
        cell = self.cells.get(fact.cell)
        if cell is not None and fact.at_s >= cell.reported_at_s:
            self._weigh(fact.cell, cell, -1)
            cell.capacity, cell.reported_at_s = max(0, fact.capacity), fact.at_s
            self._weigh(fact.cell, cell, 1)
        elif cell is None and fact.capacity > 0:
            self._add(fact.cell, Cell(capacity=fact.capacity, reported_at_s=fact.at_s))

    def switch_cost_s(self) -> float:
        """Measured cost of going into training and back, seconds; 0 while nothing was measured."""
        return sum(sum(costs) / len(costs) for costs in self.switch_s.values())

    def _add(self, name: str, cell: Cell) -> None:
        before = {other: kept for other, kept in self.cells.items() if kept.kind != "standalone"}
        after = {other: kept for other, kept in self.cells.items() if kept.kind == "standalone"}
        self.cells = {**before, name: cell, **after}
        self._count_anew()

    def _count_anew(self) -> None:
        self.names = list(self.cells)
        self.capacity = self.standalone_capacity = self.rollout_capacity = self.trainers = 0
        self.moving, self.unasked, self.serving, self.training = {}, {}, [], []
        for position, (name, cell) in enumerate(self.cells.items()):
            cell.position = position
            self._weigh(name, cell, 1)

    def _weigh(self, name: str, cell: Cell, sign: int) -> None:
        """Add (1) or take away (−1) what this cell counts for."""
        _member(self.unasked, name, sign, cell.change < 0)
        _member(self.moving, name, sign, not cell.is_settled and not cell.is_lost)
        self.trainers += sign * (cell.target == "training" and cell.is_settled and not cell.is_lost)
        if cell.kind != "training":
            self.rollout_capacity += sign * cell.capacity
        if cell.is_serving:
            self.capacity += sign * cell.capacity
            if cell.kind == "standalone":
                self.standalone_capacity += sign * cell.capacity
        if cell.kind == "elastic" and not cell.is_lost:
            _place(self.serving, cell.position, sign, cell.is_serving)
            _place(self.training, cell.position, sign, cell.target == "training")


def initial_role(kind: CellKind) -> str:
    return "training" if kind == "training" else "rollout"


def _member(table: dict[str, None], name: str, sign: int, holds: bool) -> None:
    if holds and sign > 0:
        table[name] = None
    elif holds:
        table.pop(name, None)


def _place(positions: list[int], position: int, sign: int, holds: bool) -> None:
    if holds and sign > 0:
        insort(positions, position)
    elif holds:
        del positions[bisect_left(positions, position)]
