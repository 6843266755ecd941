"""What the scheduler tells executions that a batch waited for in vain (C5)."""

import msgspec
import pytest

from gyre import records as r
from services.scheduler.core import Settings, State, apply, decide, decode_state, encode_state
from tests.unit.scheduler import facts

LATE = ["g000000-e0", "g000000-e1", "g000000-e2"]


@pytest.fixture
def state():
    """A group of three: member 0 runs, 1 is leased, 2 is queued."""
    made = State(Settings(cells=1, cell_capacity=8, groups_per_step=1, steps_per_publish=1, extra_depth_steps=0.0))
    for fact in (facts.submitted(0, size=3), facts.started_run(4)):
        apply(made, fact)
    facts.settle(made)
    for fact in (facts.leased(LATE[0]), facts.running(LATE[0]), facts.leased(LATE[1])):
        apply(made, fact)
    return made


def overdue(policy: str, names=None, ordinal: int = 1) -> r.BatchOverdue:
    return r.BatchOverdue(
        step=0, ordinal=ordinal, policy=policy, execution_ids=LATE if names is None else names, turns=2, turns_target=4,
        waited_s=60.0, at_s=70.0,
    )  # fmt: skip


def commanded(state) -> list[tuple[str, str, int]]:
    found = [fact for fact in decide(state, 71.0) if isinstance(fact, r.ExecutionCommanded)]
    assert all((fact.by, fact.group_id) == ("trajproc", "g000000") and fact.reason for fact in found)
    return [(fact.execution_id, fact.command, fact.ordinal) for fact in found]


@pytest.mark.parametrize(("policy", "first"), [("truncate", "truncate"), ("drop", "void")])
def test_each_is_told_once_and_what_never_started_is_voided(state, policy, first):
    """C5: policy truncate: the one that runs finishes; those that are leased or queued have not started and left nothing. Policy drop: all are
    voided. A snapshot in between keeps what is still to be told."""
    apply(state, overdue(policy))
    state = decode_state(encode_state(state))
    assert commanded(state) == [(LATE[0], first, 1), (LATE[1], "void", 1), (LATE[2], "void", 1)]
    for fact in decide(state, 71.0):
        apply(state, fact)
    assert not commanded(state) and not state.late
    apply(state, overdue(policy, ordinal=2))
    assert not commanded(state), "told already"


@pytest.mark.parametrize("policy", ["later", "wait"])
def test_policies_that_leave_executions_alone_command_nothing(state, policy):
    apply(state, overdue(policy))
    assert not commanded(state)


def test_who_has_ended_meanwhile_is_told_nothing_and_a_persons_command_goes_first(state):
    """C2, C5: member 0 ends by itself before the command, member 1 is suspended by an operator: only member 2 is commanded."""
    apply(state, overdue("drop"))
    apply(state, facts.ended(LATE[0]))
    suspend = r.ExecutionCommanded(
        execution_id=LATE[1], group_id="g000000", ordinal=1, command="suspend", by="me", reason="", at_s=70.5
    )
    apply(state, suspend)
    assert commanded(state) == [(LATE[2], "void", 1)]


def test_the_length_of_a_truncated_execution_says_nothing_of_its_task(state):
    """C1: the estimate of durations learns from the one that ended by itself, not from the one that was cut at 2 s."""
    apply(state, msgspec.structs.replace(facts.ended(LATE[0], ending="timed_out", lasted_s=2.0), reason="truncated"))
    assert not state.estimates
    apply(state, facts.running(LATE[1]))
    apply(state, facts.ended(LATE[1], lasted_s=8.0))
    assert state.estimates["repair"].executions == 1
