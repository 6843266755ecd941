"""What must hold in a storm at every fact and every decision (safety), and when it is over (liveness)."""

from collections import Counter
from typing import Any

import msgspec

from gyre import records as r
from gyre.records.lifecycle import ExecutionState
from services.scheduler.core import Settings, State, apply, decide, decode_state, encode_state

ROUNDS_MAX = 8
"""Decisions that follow from each other at one moment: boundary, returns, groups, a release, alarms."""
MOVES_MAX = 2
"""Moves of one cell that follow from each other at one moment: back for a boundary, and in again."""


class Checks:
    """Of a storm, which provides these."""

    settings: Settings
    now_s: float
    truth: State
    published: set[int]
    trained: Counter[str]
    said: Counter[str]
    stream: list[Any]
    _mine: State
    _offered: dict[str, r.TaskDispatched]
    _deliveries: Counter[str]

    def _check(self, fact: Any) -> None:
        match fact:
            case r.WeightsPublished():
                self.published.add(fact.version)
            case r.GroupDispatched():
                assert fact.policy_version in self.published, "dispatched under a version that was not published"
            case r.BurstOpened():
                assert fact.first_step in self.published, "trained from a version that was not published"
            case r.StepUpdated():
                assert self.truth.opened_step <= fact.step, "a step outside of every burst"

    def _check_decisions(self, decisions: list[Any]) -> None:
        mine = self._mine
        moves = [d for d in decisions if isinstance(d, r.RoleChanged) and d.change > 0]
        if moves:
            assert not mine.fleet.moving, "a move was decided while another was under way"
            assert all(not mine.cells[move.cell].is_lost for move in moves)
            assert all(mine.cells[move.cell].kind == "elastic" for move in moves)
        if moves and self.settings.mode in ("elastic", "elastic_plus"):
            (move,) = moves
            cell = mine.cells[move.cell]
            if move.target == "training":
                assert mine.waterlevel <= mine.capacity - cell.capacity, "more would run than the rest can hold"
                assert cell.position == 0 or mine.fleet.core.target == "training", "a satellite before the core"
                assert cell.position == mine.fleet.serving[0], "out of order in"
            else:
                assert cell.position == mine.fleet.training[-1], "out of order out"
        self._check_that_decisions_settle(are_moves_instant=False)
        self._check_that_decisions_settle(are_moves_instant=True)

    def _check_that_decisions_settle(self, are_moves_instant: bool) -> None:
        """Were this all that ever happens, at this very time: no rule asks for what another takes back.

        With instant moves a cell may come back for a boundary and go in again, and no more than that.
        """
        again = decode_state(encode_state(self._mine))
        asked = Counter[str]()
        for _ in range(ROUNDS_MAX + MOVES_MAX * len(again.cells) * are_moves_instant):
            following = decide(again, self.now_s)
            for fact in following:
                apply(again, fact)
                if are_moves_instant and isinstance(fact, r.RoleChanged) and fact.change > 0:
                    asked[fact.cell] += 1
                    for phase in r.CELL_PHASES[fact.target][1:]:
                        apply(again, msgspec.structs.replace(fact, phase=phase))
            assert max(asked.values(), default=0) <= MOVES_MAX, "a cell is sent to and fro"
            if not following:
                return
        raise AssertionError("decisions do not settle")

    def assert_all_ended(self) -> None:
        state = self.truth
        assert not state.queue.groups and not state.evaluations, "a task was never sent"
        assert state.waterlevel == 0, "an execution never ended"
        assert not state.groups and state.outstanding_groups == 0, "a group was never trained or dropped"
        assert all(count == 1 for count in self.trained.values()), "a sample was trained twice"
        executions = Counter(sample.rpartition("-a")[0] for sample in self.trained)
        assert all(count == 1 for count in executions.values()), "an execution was trained as two attempts"
        assert set(self._offered) >= set(executions), "an execution that was never given out"
        assert state.executions_by_state.get(ExecutionState.TRAINED, 0) == len(self.trained)
        assert state.dispatched == state.finished
        sent = {name for fact in self.stream if isinstance(fact, r.GroupDispatched) for name in fact.execution_ids}
        voided = {
            fact.execution_id for fact in self.stream if isinstance(fact, r.ExecutionEnded) and fact.ending == "voided"
        }
        assert sent - set(self._offered) <= voided, "never given out, and nobody voided it before"
        for execution in self._offered:
            assert self._deliveries[execution] >= 1 or self.said["ExecutionEnded"]
