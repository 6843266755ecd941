"""Snapshots and rollbacks as an environment says them, checked before they are believed (C4)."""

import pytest

from gyre.api.rollout.v1 import environments_pb2 as pb
from services.rollout.gateway.messages import checked_ending


def ended(**fields) -> pb.Ended:
    return pb.Ended(ending="completed", reason="submitted", **fields)


def test_the_quota_left_is_none_where_none_is_said():
    """C6: 0 left is not the same as no quota."""
    assert checked_ending(ended(), has_started=True).quota_left == -1
    assert checked_ending(ended(quota_left=0), has_started=True).quota_left == 0
    assert checked_ending(ended(quota_left=-2), has_started=True).reason == "environment_invalid"


def test_snapshots_and_lost_turns_are_taken_as_they_are_said():
    said = checked_ending(ended(snapshots=3, rollback_turns=5), has_started=True)
    assert (said.ending, said.snapshots, said.rollback_turns) == ("completed", 3, 5)


@pytest.mark.parametrize(
    "fields",
    [{"snapshots": -1}, {"snapshots": 2**31 - 1}, {"snapshots": 1, "rollback_turns": -1},
     {"snapshots": 1, "rollback_turns": 2**31 - 1}, {"rollback_turns": 1}],
)  # fmt: skip
def test_numbers_that_cannot_be_end_the_execution_as_invalid(fields):
    """Bad input; the last: turns lost by going back to a snapshot where none was taken."""
    said = checked_ending(ended(**fields), has_started=True)
    assert (said.ending, said.reason, said.rollback_turns) == ("failed", "environment_invalid", 0)
    assert "snapshot" in said.detail
