"""Role changes as the cluster carries them out: moves or a drain, then the cost, then the last phase; and cells that fail."""

import random
from collections.abc import Callable

from gyre import records as r
from services.scheduler.simulator.cells import Cell
from services.scheduler.simulator.clock import Events
from services.scheduler.simulator.measures import HOUR_S, Measures
from services.scheduler.simulator.rollout import Rollout
from services.scheduler.simulator.spec import Cluster
from services.scheduler.simulator.training import Training


class Roles:
    """Carries out what the policy requests."""

    def __init__(
        self,
        cluster: Cluster,
        cells: list[Cell],
        rollout: Rollout,
        training: Training,
        events: Events,
        measures: Measures,
    ) -> None:
        self.facts: list = []
        self.came_back: Callable[[], None] = lambda: None
        """Told when a cell serves again."""
        self._cluster, self._cells, self._rollout, self._training = cluster, cells, rollout, training
        self._events, self._measures = events, measures
        self._by_name = {cell.name: cell for cell in cells}
        self._asked: dict[str, r.RoleChanged] = {}
        """Cell → the last change requested of it."""
        self._draining: list[tuple[Cell, r.RoleChanged]] = []

    def request(self, asked: r.RoleChanged) -> None:
        cell = self._by_name[asked.cell]
        self._asked[asked.cell] = asked
        if cell.is_lost:
            return
        if asked.change == 0:  # comes up in its first role
            self._done((cell, asked))
            return
        self._measures.role_changes += 1
        if asked.target == "training":
            self._measures.moved(self._events.now_s, cell.index, "to_training")
            self._leave(cell, asked)
        else:
            self._measures.moved(self._events.now_s, cell.index, "to_rollout")
            cell.is_training = False
            self._say(asked, "released")
            self._count_trainers()
            self._events.at(self._events.now_s + self._cluster.into_rollout_s, self._done, (cell, asked))

    def react(self) -> None:
        """Drains that have come to their end."""
        for cell, asked in [pair for pair in self._draining if not pair[0].num]:
            self._draining.remove((cell, asked))
            self._drained(cell, asked)

    def _leave(self, cell: Cell, asked: r.RoleChanged) -> None:
        if self._cluster.role_transfer:
            self._rollout.evict(cell)
            self._drained(cell, asked)
        else:
            self._rollout.close(cell)
            self._draining.append((cell, asked))
            self.react()

    def _drained(self, cell: Cell, asked: r.RoleChanged) -> None:
        cell.is_serving = False
        self._say(asked, "drained")
        self._events.at(self._events.now_s + self._cluster.into_training_s, self._done, (cell, asked))

    def _done(self, what: tuple[Cell, r.RoleChanged], event: int = 0) -> None:
        cell, asked = what
        if cell.is_lost or asked is not self._asked[cell.name]:
            return
        phases = r.CELL_PHASES[asked.target]
        for phase in phases[phases.index("drained" if asked.target == "training" else "released") + 1 :]:
            self._say(asked, phase)
        self._measures.moved(self._events.now_s, cell.index, asked.target)
        if asked.target == "training":
            cell.is_training = True
            self._count_trainers()
            return
        self._rollout.open(cell)
        self.came_back()
        if self._cluster.rebalance and asked.change > 0:
            self._rollout.place()
            self._rollout.rebalance(cell)

    def _say(self, asked: r.RoleChanged, phase: str) -> None:
        self.facts.append(r.RoleChanged(
            cell=asked.cell, change=asked.change, target=asked.target, phase=phase, at_s=self._events.now_s, burst=asked.burst
        ))  # fmt: skip

    def _count_trainers(self) -> None:
        self._training.set_nodes(sum(cell.nodes for cell in self._cells if cell.is_training))

    # Failures

    def fail_now_and_then(self, rng: random.Random) -> None:
        """Every cell but the core fails after exponential times; the core's failure stops everybody and is a run's restart, not a policy's matter."""
        for cell in self._cells[1:]:
            self._fail_later(cell, rng)

    def _fail_later(self, cell: Cell, rng: random.Random) -> None:
        after_s = rng.expovariate(1.0 / (self._cluster.failure_every_h * HOUR_S))
        self._events.at(self._events.now_s + after_s, self._fails, (cell, rng))

    def _fails(self, what: tuple[Cell, random.Random], event: int) -> None:
        cell, rng = what
        now_s = self._events.now_s
        self._measures.moved(now_s, cell.index, "lost")
        self._draining = [pair for pair in self._draining if pair[0] is not cell]
        self._rollout.lose(cell)
        cell.is_training = False
        self._count_trainers()
        self.facts.append(r.CellReported(cell=cell.name, capacity=0, at_s=now_s, reason="failed"))
        self._events.at(now_s + self._cluster.repair_h * HOUR_S, self._repaired, (cell, rng))

    def _repaired(self, what: tuple[Cell, random.Random], event: int) -> None:
        """It comes up in the role that it was asked for last, as a cell's processes do."""
        cell, rng = what
        cell.is_lost = False
        self.facts.append(
            r.CellReported(cell=cell.name, capacity=cell.slots, at_s=self._events.now_s, reason="repaired")
        )
        self._done((cell, self._asked[cell.name]))
        self._fail_later(cell, rng)
