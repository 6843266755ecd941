"""Keeps every evaluator busy with the pool's open questions, oldest first, never more at once than it may have."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from gyre.clock import Clock
from gyre.config import Config, EvaluatorConfig
from gyre.evaluation import Finding
from gyre.ids import sample_id
from gyre.records import ExecutionEnded, RewardScored
from gyre.run_folder import RunFolder
from gyre.tasks import end
from gyre.telemetry import emit_span
from services.trajproc.core.fold.pool import Pool
from services.trajproc.core.scoring import Question
from services.trajproc.evaluators.clients import Client, open_client, token_of
from services.trajproc.evaluators.tries import Answer, ask_within_budget
from services.trajproc.evaluators.view import Texts, execution_of, is_partial

log = logging.getLogger(__name__)

Publish = Callable[[RewardScored], Awaitable[None]]


def open_asking(pool: Pool, folder: RunFolder, config: Config, publish: Publish, clock: Clock) -> "Asking":
    """Clients of every configured evaluator. Raises ConfigError where a token's environment variable is not set."""
    tokens = {one.name: token_of(one) for one in pool.evaluators}
    clients = {one.name: open_client(one, tokens[one.name]) for one in pool.evaluators}
    model = folder.model if (folder.model / "config.json").exists() else Path(config.model.path)
    return Asking(pool, clients, tokens, Texts(model), publish, clock)


class Asking:
    """`look` says that there may be something new to ask; `run` asks."""

    def __init__(
        self,
        pool: Pool,
        clients: Mapping[str, Client],
        tokens: Mapping[str, str],
        texts: Texts,
        publish: Publish,
        clock: Clock,
    ) -> None:
        """`clients` and `tokens` by evaluator, one for each of `pool.evaluators`. `publish` returns when the fact is durable."""
        self._pool = pool
        self._clients = clients
        self._tokens = tokens
        self._texts = texts
        self._publish = publish
        self._clock = clock
        self._asked: dict[Question, asyncio.Task] = {}
        """Asked, and its fact not folded yet."""
        self._seen = -1
        self._news = asyncio.Event()

    def look(self) -> None:
        """Cheap; to be called whenever facts were folded."""
        if self._pool.questions_changed != self._seen:
            self._seen = self._pool.questions_changed
            self._news.set()

    async def run(self) -> None:
        """For ever. An error of the bus or a defect ends it, and is raised."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                self._fill()
        finally:
            await end(*self._asked.values())
            for client in self._clients.values():
                await client.close()

    def _fill(self) -> None:
        for task in [task for task in self._asked.values() if task.done() and not task.cancelled()]:
            task.result()  # a defect, or a bus that is gone for good, is everybody's
        for question in [one for one in self._asked if one not in self._pool.questions.get(one.group_id, ())]:
            self._asked.pop(question).cancel()  # answered on record, or of an attempt that no longer counts
        busy = Counter(asked.evaluator for asked, task in self._asked.items() if not task.done())
        room = {one.name: one.concurrency - busy[one.name] for one in self._pool.evaluators}
        settings = {one.name: one for one in self._pool.evaluators}
        for question in (one for questions in self._pool.questions.values() for one in questions):
            if not any(room.values()):
                break  # thousands may be open: what cannot be asked now is not looked at
            if room[question.evaluator] and question not in self._asked:
                self._begin(question, settings[question.evaluator])
                room[question.evaluator] -= 1

    def _begin(self, question: Question, settings: EvaluatorConfig) -> None:
        member = self._pool.groups[question.group_id].members[question.execution_id]
        payload = self._pool.payloads.get(question.group_id)
        task = asyncio.create_task(self._ask(member.ended, member.sound, payload, settings))
        task.add_done_callback(lambda _: self._news.set())
        self._asked[question] = task

    async def _ask(self, ended: ExecutionEnded, calls: list, payload: dict | None, settings: EvaluatorConfig) -> None:
        client, began_s = self._clients[settings.name], self._clock.now_s()
        shown: list = []

        async def ask() -> Finding:
            if not shown:
                shown.append(await asyncio.to_thread(execution_of, ended, calls, payload, settings, self._texts))
            return await client.ask(shown[0])

        answer = await ask_within_budget(ask, settings, self._clock, secret=self._tokens.get(settings.name, ""))
        fact = _fact(ended, settings, answer, self._clock.now_s())
        emit_span(
            "trajectory.evaluate", began_s, fact.at_s, ended.traceparent, error="" if fact.valid else fact.detail,
            gyre_sample=fact.sample_id, gyre_evaluator=settings.name, gyre_tries=fact.tries,
        )  # fmt: skip
        if not fact.valid:
            log.warning(
                "%s of %s could not be had in %d tries: %s", settings.name, fact.sample_id, fact.tries, fact.detail
            )
        await self._publish(fact)


def _fact(ended: ExecutionEnded, settings: EvaluatorConfig, answer: Answer, now_s: float) -> RewardScored:
    found = answer.finding
    return RewardScored(
        sample_id=sample_id(ended.execution_id, ended.attempt), execution_id=ended.execution_id, group_id=ended.group_id,
        attempt=ended.attempt, task_type=ended.task_type, evaluator=settings.name, kind=settings.kind,
        value=found.score if found else None, valid=found is not None, partial=is_partial(ended), tries=answer.tries,
        took_s=answer.took_s, at_s=now_s, evidence=found.evidence if found else {}, looked_at=found.looked_at if found else [],
        detail=answer.detail, traceparent=ended.traceparent,
    )  # fmt: skip
