"""Tasks from the configured source, as the scheduler takes them."""

import asyncio
import importlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.api.scheduler.v1 import scheduler_pb2_grpc as rpc
from gyre.config import Config
from gyre.env import Task
from gyre.errors import ConfigError, GyreError, InvalidInput

CHUNK = 32
"""Tasks of one SubmitTasks call: far below the message limit for payloads of up to 100 kB each."""
EPOCH = 4096
"""Tasks asked of the source at a time; it is asked again, under another seed, when they are used up."""

RETRIED = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
"""Statuses that pass: a full queue, a scheduler that is being restarted."""

Source = Callable[[str, int, int], Iterator[Task]]


def load_source(config: Config) -> Source:
    """The function `tasks.source` names; the working directory is looked through as well. Raises ConfigError."""
    module_name, _, function_name = config.tasks.source.partition(":")
    if not module_name or not function_name:
        raise ConfigError(f"tasks.source must read `package.module:function`, not {config.tasks.source!r}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        source = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:  # whatever the author's module raises while it is imported
        raise ConfigError(f"tasks.source {config.tasks.source!r} cannot be loaded: {_named(error)}") from error
    if not callable(source):
        raise ConfigError(f"tasks.source {config.tasks.source!r} is a {type(source).__name__}, not a function")
    return source


def check_source(source: Source, config: Config) -> None:
    """One task of each split, before anything is started. Raises ConfigError, InvalidInput."""
    next(training(source, config))
    if config.evaluation.tasks:
        for task in _asked(source, config, "heldout", 1, config.run.seed):
            _message(task, config, task.task_id, "evaluation", 1)
            return
        raise ConfigError(
            f"tasks.source {config.tasks.source!r} yields no held-out tasks; evaluation.tasks 0 leaves evaluations out"
        )


def heldout(source: Source, config: Config, phase: str) -> list[pb.Task]:
    """The evaluation's tasks, the same ones before and after; `phase` keeps their ids apart."""
    tasks = _asked(source, config, "heldout", config.evaluation.tasks, config.run.seed)
    return [_message(task, config, f"{phase}-{task.task_id}", "evaluation", 1) for task in tasks]


def training(source: Source, config: Config) -> Iterator[pb.Task]:
    """Training tasks for ever, in an order that depends on the run's seed alone."""
    for epoch in itertools.count():
        is_empty = True
        for task in _asked(source, config, "train", EPOCH, config.run.seed + epoch):
            is_empty = False
            name = f"train-{epoch}-{task.task_id}"
            yield _message(task, config, name, "train", config.scheduler.group_size)
        if is_empty:
            raise ConfigError(f"tasks.source {config.tasks.source!r} yields no training tasks")


def _asked(source: Source, config: Config, split: str, count: int, seed: int) -> Iterator[Task]:
    """At most `count` tasks. Raises InvalidInput for whatever the author's function raises, and for what is no task."""
    name = f"tasks.source {config.tasks.source!r}"
    try:
        for task in itertools.islice(source(split, count, seed), count):
            if not isinstance(task, Task):
                raise InvalidInput(f"{name} must yield gyre.env.Task, not {type(task).__name__}")
            yield task
    except GyreError:
        raise
    except Exception as error:
        raise InvalidInput(f"{name} failed when asked for {split} tasks: {_named(error)}") from error


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _message(task: Task, config: Config, task_id: str, purpose: str, group_size: int) -> pb.Task:
    """Raises InvalidInput when the task's fields do not hold what they should."""
    try:
        return _filled(task, config, task_id, purpose, group_size)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"tasks.source {config.tasks.source!r}: task {str(task.task_id)[:80]!r} must have texts, a seed of 64 bits and a payload of "
            f"JSON values: {_named(error)}"
        ) from error


def _filled(task: Task, config: Config, task_id: str, purpose: str, group_size: int) -> pb.Task:
    if not isinstance(task.payload, dict):
        raise TypeError(f"payload is a {type(task.payload).__name__}, not a dict")
    given = config.tasks
    limits = pb.Limits(
        wall_s=given.wall_s, turns_max=given.turns_max, context_tokens_max=given.context_tokens_max,
        output_tokens_max=given.output_tokens_max, tokens_max=given.tokens_max, calls_max=given.calls_max,
        concurrency_max=given.concurrency_max,
    )  # fmt: skip
    return pb.Task(
        task_id=task_id, task_type=task.task_type, environment=given.environment, seed=task.seed,
        payload_json=json.dumps(task.payload, allow_nan=False), tenant="default", purpose=purpose, group_size=group_size,
        temperature=given.temperature, top_p=given.top_p, limits=limits,
    )  # fmt: skip


async def submit(scheduler: rpc.SchedulerServiceStub, tasks: list[pb.Task]) -> list[str]:
    """Group ids, in order. Waits while the queue is full or the scheduler away; raises InvalidInput for tasks it refuses.

    A task id that is known already is accepted once, so sending a task again after a lost reply is safe.
    """
    groups: list[str] = []
    while len(groups) < len(tasks):
        chunk = tasks[len(groups) : len(groups) + CHUNK]
        try:
            reply = await scheduler.SubmitTasks(pb.SubmitTasksRequest(tasks=chunk), timeout=60)
            groups += reply.group_ids  # those before the first that found the queue full
        except grpc.aio.AioRpcError as error:
            if error.code() not in RETRIED:
                raise InvalidInput(f"the scheduler refused tasks: {error.details()}") from error
            trailing = dict(error.trailing_metadata() or ())
            await asyncio.sleep(float(trailing.get("retry-after-s", 0.5)))
    return groups
