"""Leases are put on record beside each other, and those of one execution one after the other (A1, C2)."""

import asyncio

import pytest

from gyre.clock import ManualClock
from gyre.config import Config
from gyre.records import ExecutionLeased, TaskDispatched
from services.rollout.gateway import leasing as leasing_
from services.rollout.gateway.leasing import Leasing
from services.rollout.gateway.peers import Peers
from services.rollout.gateway.restore import Restored
from services.rollout.gateway.running import Totals
from services.rollout.gateway.telling import Idle

from .test_leases import process, task


class DeliveryDouble:
    def __init__(self, record: TaskDispatched, deliveries: int = 1) -> None:
        self.record, self.deliveries, self.traceparent = record, deliveries, ""
        self.said: list[str] = []
        self.signs = 0

    async def ack(self) -> None:
        self.said.append("ack")

    async def nak(self) -> None:
        self.said.append("nak")

    async def in_progress(self) -> None:
        self.signs += 1


class BusDouble:
    """Stores nothing until `back` is set."""

    run = "test"

    def __init__(self) -> None:
        self.back = asyncio.Event()
        self.asked: list[ExecutionLeased] = []
        self.stored: list[ExecutionLeased] = []

    async def publish(self, fact, traceparent: str = "") -> None:
        self.asked.append(fact)
        await self.back.wait()
        if isinstance(fact, ExecutionLeased) and fact.execution_id == "broken":
            raise RuntimeError("a defect")
        self.stored.append(fact)


class QueueDouble:
    def __init__(self, deliveries: list[DeliveryDouble]) -> None:
        self.deliveries = deliveries

    async def next(self, wait_s: float) -> DeliveryDouble | None:
        await asyncio.sleep(0)
        if self.deliveries:
            return self.deliveries.pop(0)
        await asyncio.sleep(wait_s)
        return None

    async def close(self) -> None:
        pass


class CallsDouble:
    def __init__(self) -> None:
        self.idle = Idle()
        self.is_quiet = asyncio.Event()
        """Cleared: a call is in flight, and whoever closes a session waits for it."""
        self.is_quiet.set()
        self.closed: list[str] = []

    async def stop(self, sample: str) -> Totals:
        self.closed.append(sample)
        await self.is_quiet.wait()
        return Totals()

    async def forget(self, sample: str) -> None: ...

    close = stop


class EnvironmentsDouble:
    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []

    def send(self, instance: str, message) -> None:
        self.sent.append((message.execution_id, message.attempt))


class Case:
    def __init__(
        self, deliveries: list[DeliveryDouble], slots: int = 8, restored: Restored | None = None,
        clock: ManualClock | None = None, peers: Peers | None = None,
    ) -> None:  # fmt: skip
        self.bus, self.environments, self.calls = BusDouble(), EnvironmentsDouble(), CallsDouble()
        self.leasing = Leasing(
            Config(), self.bus, clock or ManualClock(1000.0), b"secret", "http://gateway", restored or Restored(), self.calls,
            self.environments, "gateway", peers,
        )  # fmt: skip
        self.leasing._queue = QueueDouble(deliveries)
        self.leasing.welcome(process("p", slots=slots))
        self.claiming = asyncio.create_task(self.leasing.claim())

    async def settle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    async def stop(self) -> None:
        self.claiming.cancel()
        await asyncio.gather(self.claiming, return_exceptions=True)


async def test_leases_wait_for_the_bus_together_and_are_assigned_only_when_on_record():
    """Five tasks, a bus that is away: five leases on their way at once, no assignment; then all."""
    names = [f"g-e{index}" for index in range(5)]
    case = Case([DeliveryDouble(task(name)) for name in names])
    await case.settle()
    assert [fact.execution_id for fact in case.bus.asked] == names and case.environments.sent == []
    case.bus.back.set()
    await case.settle()
    assert sorted(case.environments.sent) == [(name, 1) for name in names]
    await case.stop()


async def test_no_more_leases_are_on_their_way_than_there_are_places(monkeypatch):
    monkeypatch.setattr(leasing_, "LEASES_AT_ONCE", 2)
    case = Case([DeliveryDouble(task(f"g-e{index}")) for index in range(5)])
    await case.settle()
    assert len(case.bus.asked) == 2
    case.bus.back.set()
    await case.settle()
    assert len(case.environments.sent) == 5
    await case.stop()


async def test_an_execution_that_comes_again_is_considered_when_its_lease_is_on_record():
    """A second delivery while the first is on its way: the same attempt goes on, and there is one lease."""
    case = Case([DeliveryDouble(task("a")), DeliveryDouble(task("a"), 2)])
    await case.settle()
    assert len(case.bus.asked) == 1
    case.bus.back.set()
    await case.settle()
    assert [fact.attempt for fact in case.bus.stored] == [1] and case.environments.sent == [("a", 1)]
    await case.stop()


async def test_what_is_given_back_before_its_lease_is_on_record_is_not_assigned():
    """The environment is lost while the bus is away; the delivery goes back to the queue."""
    delivery = DeliveryDouble(task("a"))
    case = Case([delivery])
    await case.settle()
    await case.leasing.give_back(case.leasing.lease("a"), "its environment is gone")
    case.bus.back.set()
    await case.settle()
    assert case.environments.sent == [] and delivery.said == ["nak"]
    await case.stop()


async def test_what_is_given_back_while_the_attempt_before_is_closed_goes_back_to_the_queue():
    """Attempt 1 was lost with a call in flight; while that is given up, the environment of attempt 2 is lost too. Nobody holds it any more."""
    restored, delivery = Restored(), DeliveryDouble(task("a"), 2)
    restored.attempts.recorded("a", 1)
    case = Case([delivery], restored=restored)
    case.leasing.book._starting.clear()
    case.calls.is_quiet.clear()
    case.bus.back.set()
    await case.settle()
    assert case.calls.closed == ["a-a1"] and case.environments.sent == []
    await case.leasing.give_back(case.leasing.book.leases["a"], "its environment is gone")
    case.calls.is_quiet.set()
    await case.settle()
    assert delivery.said == ["nak"] and case.leasing.lease("a") is None
    assert case.bus.stored == [] and case.environments.sent == []
    await case.stop()


async def test_an_error_at_one_lease_ends_the_gateway():
    """As an error in claiming always did: it is started anew and finds its place from the facts."""
    case = Case([DeliveryDouble(task("broken"))])
    case.bus.back.set()
    with pytest.raises(RuntimeError, match="a defect"):
        await asyncio.wait_for(case.claiming, 60)


async def test_a_task_that_nobody_had_a_place_for_is_not_exhausted_however_often_it_comes():
    """Twenty deliveries to a gateway without a free slot, each after a restart of it; then one to a gateway that has one."""
    restored = Restored()
    for deliveries in range(1, 21):
        parked = DeliveryDouble(task("a"), deliveries)
        case = Case([], restored=restored)
        case.bus.back.set()
        case.leasing.gone("p")
        await case.leasing.consider(parked)
        assert parked.said == [] and list(case.leasing.parked) == ["a"]
        await case.stop()
    case = Case([DeliveryDouble(task("a"), 21)], restored=restored)
    case.bus.back.set()
    await case.settle()
    assert case.environments.sent == [("a", 21)] and restored.attempts.made("a", 0) == 1
    await case.stop()
