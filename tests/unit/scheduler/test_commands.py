"""What an execution can be told, by where it is; refusals say what would be right (C2)."""

import pytest

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.errors import Conflict, InvalidInput, NotFound
from services.scheduler import commands
from services.scheduler.core import Settings, State, apply
from tests.unit.scheduler import facts

NAME = "g000000-e0"


@pytest.fixture
def state():
    """One evaluation group of two, dispatched; another that waits."""
    made = State(Settings(cells=1, cell_capacity=8, groups_per_step=1, steps_per_publish=1, extra_depth_steps=0.0))
    apply(made, facts.submitted(0, purpose="evaluation"))
    facts.settle(made)
    apply(made, facts.submitted(1))
    return made


def told(state, word, name=NAME):
    for found in commands.meant(state, name):
        apply(state, commands.command(found, word, "me", "why", 1.0))


def test_a_group_stands_for_its_unfinished_executions(state):
    assert [found.execution_id for found in commands.meant(state, "g000000")] == ["g000000-e0", "g000000-e1"]
    apply(state, facts.leased(NAME))
    apply(state, facts.running(NAME))
    apply(state, facts.ended(NAME, purpose="evaluation"))
    assert [found.execution_id for found in commands.meant(state, "g000000")] == ["g000000-e1"]
    with pytest.raises(Conflict, match="has ended"):
        told(state, "void")


def test_commands_are_numbered_and_only_what_makes_sense_is_taken(state):
    with pytest.raises(Conflict, match="queued: it has no attempt"):
        told(state, "release")
    with pytest.raises(Conflict, match="not suspended; it can be suspended"):
        told(state, "resume")
    told(state, "suspend")
    with pytest.raises(Conflict, match="suspended already; it can be resumed"):
        told(state, "suspend")
    told(state, "resume")
    apply(state, facts.leased(NAME))
    apply(state, facts.running(NAME))
    told(state, "release")
    told(state, "void")
    with pytest.raises(Conflict, match="being voided"):
        told(state, "resume")
    assert state.groups["g000000"].executions[NAME].commanded == 4


def test_unknown_and_undispatched_names_are_told_apart(state):
    with pytest.raises(NotFound, match="named like g000012-e3"):
        commands.meant(state, "g000009-e0")
    with pytest.raises(NotFound, match="g000000-e0, g000000-e1"):
        commands.meant(state, "g000000-e7")
    with pytest.raises(Conflict, match="has not been dispatched"):
        commands.meant(state, "g000001")


@pytest.mark.parametrize(
    "request_",
    [
        pb.CommandExecutionsRequest(ids=[NAME]),
        pb.CommandExecutionsRequest(command=pb.COMMAND_VOID),
        pb.CommandExecutionsRequest(command=9, ids=[NAME]),
        pb.CommandExecutionsRequest(command=pb.COMMAND_VOID, ids=[NAME], reason="x" * 501),
    ],
)
def test_a_request_that_is_wrong_as_a_whole_is_refused(request_):
    with pytest.raises(InvalidInput):
        commands.checked(request_)


def test_what_is_truncated_can_only_be_voided_and_what_is_queued_cannot_be_truncated(state):
    """C5: a queued execution has left nothing to be scored."""
    with pytest.raises(Conflict, match="queued: it has done nothing that could be scored"):
        told(state, "truncate")
    apply(state, facts.leased(NAME))
    apply(state, facts.running(NAME))
    told(state, "truncate")
    for word in ("truncate", "suspend", "resume", "release"):
        with pytest.raises(Conflict, match="being truncated; it can only be voided"):
            told(state, word)
    told(state, "void")


def test_a_command_whose_number_another_took_in_the_same_moment_is_said_to_be_lost(state):
    """C2, C5: an operator's suspend and a policy's truncate, both number 1: the stream keeps the first, so the other did not happen."""
    apply(state, facts.leased(NAME))
    apply(state, facts.running(NAME))
    (found,) = commands.meant(state, NAME)
    late, mine = (commands.command(found, word, "me", "why", 1.0) for word in ("truncate", "suspend"))
    apply(state, late)
    assert commands.lost(state, [mine]) == {NAME: f"{NAME} was told to truncate in the same moment; ask again"}
    assert commands.lost(state, [late]) == {}
