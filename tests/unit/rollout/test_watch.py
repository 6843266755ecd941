"""A gateway that stood still: what it holds may be others' by now, and it judges nobody before it has listened (C6)."""

import asyncio
from types import SimpleNamespace

import pytest

from gyre.clock import ManualClock
from gyre.records import ExecutionCommanded, ExecutionEnded, ExecutionLeased
from services.rollout.core.ending import Said
from services.rollout.core.leases import Attempts, LeaseBook, Offer
from services.rollout.gateway.peers import LEFT_LEASES, Peers
from services.rollout.gateway.restore import Restored

from .test_leases import LEASE_S, book, process, task
from .test_leasing import Case, DeliveryDouble

OTHER, PAST_LEASE_S = "gateway-1", LEASE_S + 1.0


class LogDouble:
    """The stream of facts, as far as one follower sees it."""

    run = "test"

    def __init__(self) -> None:
        self.facts: list[object] = []
        self.newest = 0
        """What is on record; more than `facts` has where the follower has not seen it yet."""
        self._more = asyncio.Event()

    def put(self, *facts: object) -> None:
        self.facts += facts
        self.newest = max(self.newest, len(self.facts))
        self._more.set()

    async def last_sequence(self, _kinds: object) -> int:
        return self.newest

    async def follow(self, _kinds: object, after: int):
        sequence = after
        while True:
            while sequence < len(self.facts):
                sequence += 1
                yield self.facts[sequence - 1], SimpleNamespace(sequence=sequence)
            self._more.clear()
            await self._more.wait()


def leased(attempt: int, holder: str = OTHER, execution: str = "a") -> ExecutionLeased:
    return ExecutionLeased(execution_id=execution, group_id="g", attempt=attempt, holder=holder, at_s=1.0)


def ended(attempt: int) -> ExecutionEnded:
    return ExecutionEnded(
        execution_id="a", group_id="g", attempt=attempt, task_type="x", tenant="t", purpose="train", ending="completed", reason="submitted",
        detail="", evaluation=None, turns=0, tokens_sampled=0, calls=0, external_calls=0, occupancy_s=0.0, policy_version=0, leased_at_s=1.0,
        started_at_s=1.0, at_s=2.0,
    )  # fmt: skip


class Two(Case):
    """A gateway that holds attempt 1 of `a`, beside another one."""

    def __init__(self) -> None:
        self.log, self.clock, self.restored = LogDouble(), ManualClock(1000.0), Restored()
        self.peers = Peers(self.log, self.clock, "gateway", "here:1", LEASE_S, self.restored.holders)
        self.delivery = DeliveryDouble(task("a"))
        super().__init__([self.delivery], restored=self.restored, clock=self.clock, peers=self.peers)
        self.bus.back.set()
        self.over: list[str] = []
        follow = self.peers.follow(self.leasing.book, self.restored, self.over.append, self.leasing.stopped, 0)
        self.following = asyncio.create_task(follow)

    async def hold(self) -> None:
        await self.settle()
        assert self.environments.sent == [("a", 1)] and self.leasing.lease("a") is not None
        self.environments.sent.clear()
        self.log.put(leased(1, "gateway"))
        await self.settle()
        assert self.environments.sent == [] and self.delivery.said == []

    def lives(self) -> None:
        """The other gateway gives a sign of life."""
        self.peers._heard[OTHER] = self.clock.monotonic_s(), "there:1"

    async def stop(self) -> None:
        self.following.cancel()
        await asyncio.gather(self.following, return_exceptions=True)
        await super().stop()


async def test_what_another_gateway_leased_anew_is_let_go_without_a_word_about_its_delivery():
    """Its environment is told to stop and its slot is free; ack or nak would be about the newer attempt's message."""
    case = Two()
    await case.hold()
    case.log.put(leased(2))
    await case.settle()
    assert case.environments.sent == [("a", 1)] and case.delivery.said == [] and case.over == ["a-a1"]
    assert (
        case.leasing.book.leases == {}
        and case.leasing.book.free_slots() == 8
        and case.leasing._hands.deliveries() == []
    )
    await case.stop()


async def test_what_another_gateway_ended_is_let_go_and_its_standing_order_with_it():
    case = Two()
    await case.hold()
    command = ExecutionCommanded(
        execution_id="a", group_id="g", ordinal=1, command="void", by="test", reason="because", at_s=1.0
    )
    case.restored.orders.apply(command)
    case.log.put(ended(1))
    await case.settle()
    assert case.leasing.book.leases == {} and case.delivery.said == []
    assert case.restored.orders.outstanding() == []
    await case.stop()


@pytest.mark.parametrize("meanwhile", [[leased(2)], [leased(2), ended(2)]], ids=["leased", "leased and ended"])
async def test_a_fenced_attempts_ending_is_neither_put_on_record_nor_acknowledged(meanwhile):
    """The process stands still for longer than a lease; the ending comes before what others put on record meanwhile was folded."""
    case = Two()
    await case.hold()
    case.clock.advance(PAST_LEASE_S)
    case.log.newest = len(meanwhile) + 1
    lease = case.leasing.lease("a")
    ending = asyncio.create_task(case.leasing.end(lease, Said("completed", "submitted", "", None)))
    await case.settle()
    assert not ending.done(), "it waits for what is on record"
    case.log.put(*meanwhile)
    await ending
    assert [type(fact) for fact in case.bus.stored] == [ExecutionLeased] and case.delivery.said == []
    assert case.leasing.book.leases == {}
    await case.stop()


async def test_after_a_standstill_nobody_is_judged_for_silence_before_a_lease_of_listening():
    case = Two()
    await case.hold()
    watch, lease = case.leasing.watch, case.leasing.lease("a")
    case.clock.advance(PAST_LEASE_S)
    await watch.look()
    await case.settle()
    assert case.leasing.lease("a") is lease
    case.leasing.heard("p")
    for _ in range(int(PAST_LEASE_S) + 1):
        case.clock.advance(1.0)
        await watch.sign()
        await watch.look()
    assert case.delivery.signs > 0
    await case.settle()
    assert case.leasing.lease("a") is None, "silent for longer than a lease, while somebody listened"
    await case.stop()


async def test_what_was_not_signed_for_a_lease_is_given_back_without_a_word_and_parked_tasks_are_left_to_the_queue():
    """Both are delivered again by the queue itself, perhaps they have been: a nak would take the message from who has it now."""
    case = Two()
    await case.hold()
    parked = DeliveryDouble(task("b", environment="nobody"))
    await case.leasing.consider(parked)
    assert list(case.leasing.parked) == ["b"]
    case.clock.advance(PAST_LEASE_S)
    await case.leasing.watch.sure()
    assert case.leasing.parked == {}
    await case.leasing.give_back(case.leasing.lease("a"), "its environment is gone")
    assert case.delivery.said == [] and parked.said == []
    await case.stop()


async def test_what_a_living_gateway_leased_is_left_to_it_once():
    """It may have stood still, and goes on by its own signs; where nobody signs it, it comes again and is anybody's."""
    case = Two()
    await case.hold()
    case.log.put(leased(1, execution="b"))
    await case.settle()
    case.lives()
    again = [DeliveryDouble(task("b"), deliveries) for deliveries in (2, 3)]
    await case.leasing.consider(again[0])
    assert case.leasing.parked == {} and case.leasing.lease("b") is None and again[0].said == []
    case.clock.advance(LEASE_S)
    case.lives()
    await case.leasing.consider(again[1])
    await case.settle()
    assert case.leasing.lease("b").attempt == 3
    await case.stop()


async def test_an_orphan_waits_for_its_environment_and_is_left_to_its_gateway_should_that_live_after_all():
    clock = ManualClock(1000.0)
    peers = Peers(LogDouble(), clock, "gateway", "here:1", LEASE_S, {"a": OTHER})
    made = book(clock.monotonic_s() - 100)
    made.attempts.recorded("a", 1)
    made.attach(process("p"), clock.monotonic_s())
    assert not peers.is_left(task("a"), made)
    assert made.offer(task("a"), 2, clock.monotonic_s())[0] is Offer.PARK
    peers._heard[OTHER] = clock.monotonic_s(), "there:1"
    assert peers.is_left(task("a"), made), "it was silent and is there again"
    clock.advance((LEFT_LEASES + 1) * LEASE_S)
    assert not peers.is_left(task("a"), made), "it came again much later, its gateway dead: an orphan once more"
    assert made.offer(task("a"), 3, clock.monotonic_s())[0] is Offer.PARK
    clock.advance(LEASE_S)
    assert not peers.is_left(task("a"), made)
    assert made.offer(task("a"), 3, clock.monotonic_s())[0] is Offer.ASSIGN
    made.release("a")
    assert not peers.is_left(task("a", attempt_base=3), made), "a new dispatch is nobody's"


async def test_what_ran_when_this_gateway_began_has_its_lease_of_grace_whenever_its_own_gateway_dies():
    clock = ManualClock(1000.0)
    attempts = Attempts()
    attempts.recorded("a", 1)
    peers = Peers(LogDouble(), clock, "gateway", "here:1", LEASE_S, {"a": OTHER})
    made = LeaseBook(attempts, LEASE_S, 5, clock.monotonic_s())
    made.attach(process("p"), clock.monotonic_s())
    clock.advance(100 * LEASE_S)
    assert not peers.is_left(task("a"), made), "silent"
    assert made.offer(task("a"), 2, clock.monotonic_s())[0] is Offer.PARK
    clock.advance(LEASE_S)
    assert not peers.is_left(task("a"), made)
    assert made.offer(task("a"), 2, clock.monotonic_s())[0] is Offer.ASSIGN


async def test_what_an_attached_environment_runs_goes_on_here_wherever_it_was_leased():
    clock = ManualClock(1000.0)
    peers = Peers(LogDouble(), clock, "gateway", "here:1", LEASE_S, {"a": OTHER})
    peers._heard[OTHER] = clock.monotonic_s(), "there:1"
    made = book()
    made.attempts.recorded("a", 1)
    made.attach(process("p", a=1), clock.monotonic_s())
    assert not peers.is_left(task("a"), made)
    assert made.offer(task("a"), 2, clock.monotonic_s())[0] is Offer.CONTINUE
