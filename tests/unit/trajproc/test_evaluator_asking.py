"""The shell asks what is open, oldest first, never more at once than it may, and nothing twice (B4, D4)."""

import asyncio

import pytest

from gyre.clock import ManualClock
from gyre.config import EvaluatorConfig
from gyre.evaluation import Execution, Finding
from gyre.records import RewardScored
from services.trajproc.core.fold import Processor
from services.trajproc.evaluators.asking import Asking
from services.trajproc.evaluators.view import Texts
from tests.unit.trajproc.builders import PAYLOAD, config, dispatched, execution, started, submitted

TASTE = EvaluatorConfig(
    name="taste", kind="learned", url="http://127.0.0.1:1/x", concurrency=2, text_chars_max=0, tries=1
)


class Model:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[Execution] = []
        self.waiting: dict[str, asyncio.Future] = {}
        self.closed = False

    async def ask(self, execution: Execution) -> Finding:
        self.asked.append(execution)
        self.waiting[execution.sample_id] = asyncio.get_running_loop().create_future()
        try:
            return await self.waiting[execution.sample_id]
        finally:
            del self.waiting[execution.sample_id]

    async def close(self) -> None:
        self.closed = True


class Desk:
    """A processor with its asking; `said` is what was published and not folded yet."""

    def __init__(self, tmp_path) -> None:
        self.processor = Processor(config(), PAYLOAD, True, [TASTE])
        self.model, self.said = Model(), []

        async def publish(fact: RewardScored) -> None:
            self.said.append(fact)

        self.asking = Asking(self.processor, {"taste": self.model}, {}, Texts(tmp_path), publish, ManualClock())
        self.task = asyncio.create_task(self.asking.run())

    async def see(self, *facts) -> None:
        for fact in facts:
            self.processor.fold(fact)
        self.asking.look()
        await self.settle()

    async def settle(self) -> None:
        """Until nothing moves; no clock, no thread is in it."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def answer(self, sample: str, score: float = 0.5) -> None:
        self.model.waiting[sample].set_result(Finding(score=score))
        await self.settle()


@pytest.fixture
async def desk(tmp_path, monkeypatch):
    async def at_once(function, *arguments):
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", at_once)
    made = Desk(tmp_path)
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)
    assert made.model.closed


def name(member: int, group: int = 0, attempt: int = 1) -> str:
    return f"g{group:06d}-e{member}-a{attempt}"


async def test_questions_are_asked_oldest_first_and_two_at_a_time(desk):
    """Four executions, concurrency 2: the third is asked when one of the first two has answered, though its fact has not come back yet."""
    await desk.see(
        started(), *(fact for group in ("g000000", "g000001") for fact in (submitted(group), dispatched(group)))
    )
    for group in ("g000000", "g000001"):
        for member in (0, 1):
            await desk.see(*execution(group, member, 0.0))
    assert [one.sample_id for one in desk.model.asked] == [name(0), name(1)]
    await desk.answer(name(1))
    assert [one.sample_id for one in desk.model.asked][2:] == [name(0, 1)] and len(desk.model.waiting) == 2
    assert [(fact.sample_id, fact.value, fact.tries) for fact in desk.said] == [(name(1), 0.5, 1)]


async def test_nothing_is_asked_twice_between_an_answer_and_its_fact(desk):
    """The fold knows of an answer when the stream brings it; other facts in between ask nothing again."""
    await desk.see(started(), submitted("g000000"), dispatched("g000000"), *execution("g000000", 0, 0.0))
    await desk.answer(name(0))
    await desk.see(*execution("g000000", 1, 0.0))
    assert [one.sample_id for one in desk.model.asked] == [name(0), name(1)]
    await desk.see(*desk.said)
    await desk.answer(name(1))
    await desk.see(*desk.said)
    assert len(desk.model.asked) == 2 and desk.processor.questions == {}
    assert desk.processor.groups["g000000"].verdicts is not None


async def test_a_question_about_an_attempt_that_no_longer_counts_is_given_up(desk):
    """The group is sent again while its first attempt is being judged: the second is asked about."""
    await desk.see(started(), submitted("g000000"), dispatched("g000000"), *execution("g000000", 0, 0.0))
    assert list(desk.model.waiting) == [name(0)]
    await desk.see(dispatched("g000000", base=1))
    assert desk.model.waiting == {} and desk.said == []
    await desk.see(*execution("g000000", 0, 0.0, attempt=2))
    assert list(desk.model.waiting) == [name(0, attempt=2)]


async def test_an_error_of_the_bus_is_not_swallowed(desk):
    """E: an answer that could not be made durable must not look as if it had been said."""

    async def broken(_fact) -> None:
        raise ConnectionError("the bus is gone")

    desk.asking._publish = broken
    await desk.see(started(), submitted("g000000"), dispatched("g000000"), *execution("g000000", 0, 0.0))
    await desk.answer(name(0))
    with pytest.raises(ConnectionError):
        await desk.task
