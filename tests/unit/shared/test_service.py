"""How a service ends: which error is told, and with which exit code."""

from gyre.errors import GaveUp
from gyre.service import gyre_error


def test_an_error_of_a_task_group_is_told_as_if_it_had_come_alone():
    """A task of a group, in a group of another: the message and the exit code are those of what Gyre raised, not of the group."""
    cause = GaveUp("three times in vain")
    whole = ExceptionGroup("outer", [OSError("else"), ExceptionGroup("inner", [cause])])
    assert gyre_error(whole) is cause and gyre_error(cause) is cause
    assert gyre_error(ExceptionGroup("defects", [KeyError("x")])) is None and gyre_error(KeyError("x")) is None
