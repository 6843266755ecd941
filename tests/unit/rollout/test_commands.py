"""Commands to executions: what stands, what is done, what a suspension does to deadlines and attempts (C2)."""

import math

import pytest

from gyre import records as r
from gyre.errors import Conflict
from services.rollout.core.commands import Orders
from services.rollout.core.leases import Attempts, Offer
from services.rollout.gateway.restore import Restored

from .test_leases import LEASE_S, book, process, task

NAME = {"execution_id": "a", "group_id": "g"}


def commanded(ordinal: int, word: r.execution.Command) -> r.ExecutionCommanded:
    return r.ExecutionCommanded(**NAME, ordinal=ordinal, command=word, by="operator", reason="why", at_s=float(ordinal))


def suspended(ordinal: int, at_s: float, attempt: int = 1) -> r.ExecutionSuspended:
    return r.ExecutionSuspended(**NAME, attempt=attempt, ordinal=ordinal, at_s=at_s)


def resumed(ordinal: int, at_s: float, attempt: int = 1) -> r.ExecutionResumed:
    return r.ExecutionResumed(**NAME, attempt=attempt, ordinal=ordinal, at_s=at_s)


def leased(attempt: int) -> r.ExecutionLeased:
    return r.ExecutionLeased(**NAME, attempt=attempt, holder="gw", at_s=0.0)


def ended(attempt: int) -> r.ExecutionEnded:
    return r.ExecutionEnded(
        **NAME, attempt=attempt, task_type="t", tenant="d", purpose="train", ending="voided", reason="voided"
    )


def test_a_command_is_outstanding_until_its_effect_is_on_record():
    orders = Orders()
    assert orders.apply(commanded(1, "suspend")) and not orders.apply(commanded(1, "suspend"))
    assert orders.is_held("a") and orders.outstanding() == ["a"]
    orders.apply(suspended(1, 10.0))
    assert orders.outstanding() == [] and orders.is_held("a")
    assert orders.apply(commanded(2, "resume"))
    assert not orders.is_held("a") and orders.outstanding() == ["a"]
    orders.apply(resumed(2, 17.0))
    assert orders.outstanding() == []
    assert orders.apply(commanded(3, "void"))
    orders.apply(ended(1))
    assert orders.get("a") is None


def test_suspensions_add_up_for_one_attempt_and_begin_anew_with_the_next():
    """7 s and then 3 s so far; attempt 2 has never been suspended."""
    orders = Orders()
    for fact in (commanded(1, "suspend"), suspended(1, 10.0), commanded(2, "resume"), resumed(2, 17.0)):
        orders.apply(fact)
    assert orders.paused_s("a", 1, 100.0) == 7.0
    for fact in (commanded(3, "suspend"), suspended(3, 20.0)):
        orders.apply(fact)
    assert orders.paused_s("a", 1, 23.0) == 10.0 and orders.paused_s("a", 2, 23.0) == 0.0
    for fact in (commanded(4, "release"), leased(2), commanded(5, "suspend"), suspended(5, 30.0, attempt=2)):
        orders.apply(fact)
    assert orders.paused_s("a", 2, 31.0) == 1.0 and orders.releases("a") == 1


def test_a_suspension_moves_the_servers_deadline_by_its_length():
    """100 s of wall clock and 20 s of grace from the start at 1 s: 121 s, and 151 s after 30 s of suspension."""
    made = book()
    made.attach(process("p"), 0)
    lease = made.offer(task("a"), 1, 0)[1]
    lease.started_s = 1.0
    assert lease.deadline_s() == 121.0
    lease.suspend(10.0)
    lease.suspend(20.0)
    assert lease.deadline_s() == math.inf and made.overdue(1e9) == []
    lease.resume(40.0)
    lease.resume(50.0)
    assert lease.deadline_s() == 151.0


def test_a_released_attempt_is_fenced_before_there_is_a_newer_one():
    made = book()
    made.attach(process("p"), 0)
    made.offer(task("a"), 1, 0)
    made.attempts.fence("a")
    with pytest.raises(Conflict, match="released"):
        made.find("p", "a", 1)
    assert made.attach(process("p", a=1), 1) == [("a", 1)]
    made.release("a")
    offer, lease = made.offer(task("a"), 1, 2)
    assert (offer, lease.attempt) == (Offer.ASSIGN, 2)
    assert made.attempts.is_current("a", 2)


def test_after_a_restart_a_released_attempt_does_not_go_on_though_its_environment_still_runs_it():
    """Facts of the earlier gateway: leased, then released; nobody leased it since."""
    restored = Restored()
    for fact in (leased(1), commanded(1, "release")):
        restored.apply(fact)
    made = book(0, restored.attempts)
    assert made.attach(process("p", a=1), 0) == [("a", 1)]
    assert not made.may_still_run("a", 0)
    assert made.offer(task("a"), 2, 0)[1].attempt == 2


def test_commands_to_what_is_over_are_forgotten():
    restored = Restored()
    for fact in (leased(1), ended(1), commanded(1, "void")):
        restored.apply(fact)
    assert restored.orders.outstanding() == []


def test_what_an_earlier_gateway_leased_may_still_run_for_one_lease():
    attempts = Attempts()
    attempts.leased("a", 1)
    made = book(0, attempts)
    assert made.may_still_run("a", LEASE_S - 1) and not made.may_still_run("a", LEASE_S)
    made.attach(process("p", a=1), LEASE_S - 1)
    assert made.may_still_run("a", LEASE_S + 1)
