"""Facts for tests of the trajectory processor: short to write, complete as records."""

import numpy as np

from gyre import ids
from gyre import records as r
from gyre.config import TrajprocConfig
from services.trajproc.core.fold import Processor

LIMITS = r.Limits(wall_s=60, turns_max=10, context_tokens_max=100, output_tokens_max=10)
PAYLOAD = 900_000


def call(
    prompt: list[int],
    output: list[int],
    *,
    index: int = 0,
    parent: int | None = None,
    cut: int = 0,
    execution: str = "g000000-e0",
    attempt: int = 1,
    role: str = "main",
    version: int = 0,
    temperature: float = 1.0,
    delivered: bool = True,
) -> r.CallRecorded:
    """`prompt`: the delta after the first `cut` tokens of call `parent`'s context; the whole prompt without a parent.

    Log-probabilities are −(call index + 1)/100 − position/1000, so that every token's is its own.
    """
    sample = ids.sample_id(execution, attempt)
    return r.CallRecorded(
        call_id=ids.call_id(sample, index), execution_id=execution, group_id=execution.rpartition("-e")[0], attempt=attempt,
        call_index=index, purpose="train", parent="" if parent is None else ids.call_id(sample, parent), parent_tokens=cut,
        prompt_delta=r.pack(prompt, "int32"), prompt_tokens=cut + len(prompt), output_ids=r.pack(output, "int32"),
        logprobs=r.pack(-(index + 1) / 100 - np.arange(len(output)) / 1000, "float32"),
        versions=r.pack([version] * len(output), "int32"),
        sampling=r.Sampling(temperature=temperature, top_p=1.0, max_tokens=10, seed=1), finish_reason="stop", role=role,
        delivered=delivered,
    )  # fmt: skip


def submitted(group: str, purpose: str = "train") -> r.GroupSubmitted:
    task = r.TaskSpec(
        task_id=group, task_type="repair", environment="repair", seed=1, limits=LIMITS, purpose=purpose, group_size=2
    )
    return r.GroupSubmitted(group_id=group, task=task, tier="all", at_s=1.0)


def dispatched(
    group: str, members: int = 2, version: int = 0, *, task_type: str = "repair", purpose: str = "train", base: int = 0
) -> r.GroupDispatched:
    return r.GroupDispatched(
        group_id=group, execution_ids=[ids.execution_id(group, member) for member in range(members)], task_type=task_type,
        tenant="default", purpose=purpose, tier="all", policy_version=version, queue_wait_s=0.0, promotions=0, at_s=2.0,
        attempt_base=base,
    )  # fmt: skip


def leased(group: str, member: int, attempt: int = 1) -> r.ExecutionLeased:
    return r.ExecutionLeased(
        execution_id=ids.execution_id(group, member), group_id=group, attempt=attempt, holder="gateway", at_s=3.0
    )


def ended(
    group: str,
    member: int,
    outcome: float | None = 1.0,
    *,
    attempt: int = 1,
    turns: int = 1,
    calls: int | None = None,
    ending: str = "completed",
    valid: bool = True,
    placeholder: bool = False,
    purpose: str = "train",
    at_s: float = 10.0,
    traceparent: str = "",
) -> r.ExecutionEnded:
    evaluation = None if outcome is None else r.Evaluation(outcome=outcome, valid=valid, placeholder=placeholder)
    return r.ExecutionEnded(
        execution_id=ids.execution_id(group, member), group_id=group, attempt=attempt, task_type="repair", tenant="default",
        purpose=purpose, ending=ending, reason="submitted", evaluation=evaluation, turns=turns,
        calls=turns if calls is None else calls, tokens_sampled=2 * turns, at_s=at_s, traceparent=traceparent,
    )  # fmt: skip


def execution(
    group: str, member: int, outcome: float | None = 1.0, *, turns: int = 1, version: int = 0, **ending
) -> list:
    """A lease, `turns` calls of which each continues the one before (2 sampled tokens each), and the ending."""
    name = ids.execution_id(group, member)
    facts: list = [leased(group, member, ending.get("attempt", 1))]
    for index in range(turns):
        facts.append(
            call(
                [1, 2, 3] if index == 0 else [10 + index], [20 + 2 * index, 21 + 2 * index], index=index,
                parent=None if index == 0 else index - 1, cut=0 if index == 0 else 5 + 3 * (index - 1), execution=name,
                version=version, attempt=ending.get("attempt", 1),
            )
        )  # fmt: skip
    return [*facts, ended(group, member, outcome, turns=turns, **ending)]


def group(name: str, outcomes: list[float | None], *, turns: int = 1, version: int = 0, **ending) -> list:
    """A dispatched group whose members have all ended."""
    facts: list = [dispatched(name, len(outcomes), version)]
    for member, outcome in enumerate(outcomes):
        facts += execution(name, member, outcome, turns=turns, version=version, **ending)
    return facts


def opened(step: int, burst: int | None = None, at_s: float = 5.0) -> r.StepOpened:
    return r.StepOpened(step=step, burst=step if burst is None else burst, at_s=at_s)


def updated(step: int, at_s: float = 6.0) -> r.StepUpdated:
    return r.StepUpdated(
        step=step, version=step + 1, burst=step, sample_ids=[], micro_cells={}, metrics={}, opened_at_s=5.0, at_s=at_s
    )


def waterlevel(version: int) -> r.WaterlevelChanged:
    return r.WaterlevelChanged(
        waterlevel=0,
        dispatched=2,
        finished=2,
        capacity=8,
        outstanding_groups=0,
        policy_version=version,
        burst=version,
        at_s=30.0,
    )


def published(version: int) -> r.WeightsPublished:
    return r.WeightsPublished(version=version, path="", checksum="", bytes=0, at_s=0.0)


VERSIONS = 20
"""Weights of versions 1 to 19 are on the stream of every `Live` from its start; 0 is always known."""


def started(steps: int = 10) -> r.RunStarted:
    return r.RunStarted(steps=steps, fingerprint="f", at_s=0.0)


def config(**settings) -> TrajprocConfig:
    return TrajprocConfig(**{"turns_per_step": 2, "milestone_share": 0.0, **settings})


class Live:
    """A processor as the shell drives it: what it says is kept in order, and folded at once."""

    evaluators: tuple = ()

    def __init__(
        self, settings: TrajprocConfig | None = None, past: list | None = None, is_streaming: bool = True
    ) -> None:
        self.processor = Processor(settings or config(), PAYLOAD, is_streaming, self.evaluators)
        self.said: list = []
        self.stream: list = []
        """Facts in the order a stream would hold them; micro-steps are not facts."""
        self.queue: list[r.MicroStep] = []
        for fact in map(published, range(1, VERSIONS)) if past is None else past:
            self.processor.fold(fact)
            self.stream.append(fact)
        if past is not None:
            self.act(100.0)

    def see(self, *facts, now_s: float = 100.0) -> "Live":
        for fact in facts:
            self.stream.append(fact)
            self.processor.fold(fact)
            self.act(now_s)
        return self

    def tick(self, now_s: float) -> "Live":
        self.processor.tick(now_s)
        self.act(now_s)
        return self

    def clock_s(self, now_s: float) -> float:
        """Time goes on with every fact, so that no two alarms share a name."""
        return now_s + len(self.stream) / 1000

    def act(self, now_s: float) -> None:
        while self.processor.intents:
            intent = next(iter(self.processor.intents))
            for record in self.processor.records(intent, self.clock_s(now_s)):
                self.said.append(record)
                (self.queue if isinstance(record, r.MicroStep) else self.stream).append(record)
                self.processor.fold(record)
            assert intent not in self.processor.intents, f"{intent} was said and is still to be said"

    def all(self, kind: type) -> list:
        return [record for record in self.said if isinstance(record, kind)]

    def drops(self) -> dict[str, str]:
        return {drop.sample_id: drop.reason for drop in self.all(r.SampleDropped)}

    def batch(self) -> r.BatchClosed:
        return self.all(r.BatchClosed)[-1]


def names(group_id: str, members: int, attempt: int = 1) -> list[str]:
    """Samples of a group's first members."""
    return [ids.sample_id(ids.execution_id(group_id, member), attempt) for member in range(members)]
