"""SchedulerService: tasks and commands in, state out."""

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
from google.protobuf.message import Message

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.api.scheduler.v1 import scheduler_pb2_grpc
from gyre.clock import Clock
from gyre.errors import Conflict, GyreError, InvalidInput, Overloaded
from gyre.ids import group_id
from gyre.records import ExecutionCommanded, GroupSubmitted, RunStarted, TaskSpec
from gyre.records.execution import Command
from gyre.rpc import abort_with
from services.scheduler import commands
from services.scheduler.admission import Admission
from services.scheduler.bus import Feed
from services.scheduler.core.estimate import predicted_s
from services.scheduler.describe import describe, queues
from services.scheduler.intake import parse
from services.scheduler.watch import Watched
from services.scheduler.what_if import WhatIf

STEPS_MAX = 10_000_000


class Scheduler(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Answers when the facts it made are durable and part of the state."""

    def __init__(self, feed: Feed, clock: Clock, watched: Watched, what_if: WhatIf) -> None:
        self._feed = feed
        self._watched = watched
        self._what_if = what_if
        self._clock = clock
        self._submitting = asyncio.Lock()
        """Group ids count submissions, so these happen one after another."""
        self._commanding = asyncio.Lock()
        """As ordinals count commands."""

    async def SubmitTasks(self, request: pb.SubmitTasksRequest, context: grpc.aio.ServicerContext):
        try:
            tasks = [parse(task, index) for index, task in enumerate(request.tasks)]
            # Shielded: a caller that leaves must not stop between a fact and its number.
            ids = await asyncio.shield(asyncio.ensure_future(self._submit(tasks)))
            return pb.SubmitTasksResponse(group_ids=ids)
        except GyreError as error:
            await abort_with(context, error)

    async def StartTraining(self, request: pb.StartTrainingRequest, context: grpc.aio.ServicerContext):
        try:
            if not 1 <= request.steps <= STEPS_MAX:
                raise InvalidInput(f"steps is 1 to {STEPS_MAX}, not {request.steps}")
            state = self._feed.state
            if request.steps > state.steps_wanted:
                fact = RunStarted(steps=request.steps, fingerprint=state.settings.fingerprint, at_s=self._clock.now_s())
                await self._feed.tell([fact])
            return pb.StartTrainingResponse()
        except GyreError as error:
            await abort_with(context, error)

    async def CommandExecutions(self, request: pb.CommandExecutionsRequest, context: grpc.aio.ServicerContext):
        try:
            word = commands.checked(request)
            return await asyncio.shield(asyncio.ensure_future(self._command(word, request)))
        except GyreError as error:
            await abort_with(context, error)

    async def WatchWaterlevel(self, request: pb.WatchWaterlevelRequest, context: grpc.aio.ServicerContext):
        async for point in self._stream(context, self._watched.waterlevel()):
            yield point

    async def WatchRoles(self, request: pb.WatchRolesRequest, context: grpc.aio.ServicerContext):
        async for point in self._stream(context, self._watched.roles(self._feed.state)):
            yield point

    async def _stream(
        self, context: grpc.aio.ServicerContext, points: AsyncIterator[Message]
    ) -> AsyncIterator[Message]:
        try:
            async for point in points:
                yield point
        except GyreError as error:
            await abort_with(context, error)

    async def GetQueues(self, request: pb.GetQueuesRequest, context: grpc.aio.ServicerContext):
        return queues(self._feed.state, self._clock.now_s())

    async def WhatIf(self, request: pb.WhatIfRequest, context: grpc.aio.ServicerContext):
        try:
            return await self._what_if.ask(self._feed.state, request)
        except GyreError as error:
            await abort_with(context, error)

    async def GetState(self, request: pb.GetStateRequest, context: grpc.aio.ServicerContext):
        return describe(self._feed.state)

    async def _command(self, word: Command, request: pb.CommandExecutionsRequest) -> pb.CommandExecutionsResponse:
        """The reply, when every command is durable and part of the state."""
        reply = pb.CommandExecutionsResponse()
        async with self._commanding:
            facts: dict[str, ExecutionCommanded] = {}
            for name in dict.fromkeys(request.ids):
                try:
                    for found in commands.meant(self._feed.state, name):
                        fact = commands.command(found, word, request.by, request.reason, self._clock.now_s())
                        if facts.setdefault(found.execution_id, fact) is fact:
                            state = str(found.execution.state)
                            reply.commanded.add(execution_id=found.execution_id, ordinal=fact.ordinal, state=state)
                except GyreError as error:
                    reply.refused.add(id=name, code=error.code, message=str(error))
            await self._feed.tell(list(facts.values()))
            lost = commands.lost(self._feed.state, facts.values())
        kept = [one for one in reply.commanded if one.execution_id not in lost]
        del reply.commanded[:]
        reply.commanded.extend(kept)
        for name, message in lost.items():
            reply.refused.add(id=name, code=Conflict.code, message=message)
        return reply

    async def _submit(self, tasks: list[TaskSpec]) -> list[str]:
        """Group ids of the tasks accepted, in order: all, or those before the first for which there is no room.

        Raises Overloaded when that was the first task. Task ids known already cost no place.
        """
        async with self._submitting:
            state, now_s = self._feed.state, self._clock.now_s()
            admission = Admission(state, now_s)
            facts: dict[str, GroupSubmitted] = {}
            accepted: list[str] = []
            known = {task.task_id: state.group_of_task.get(task.task_id, "") for task in tasks}
            for task in tasks:
                if not known[task.task_id] and task.task_id not in facts:
                    tier = state.settings.tier_for(predicted_s(state.estimates, task.task_type, task.limits.wall_s))
                    try:
                        admission.admit(task, tier)
                    except Overloaded:
                        if not accepted:
                            raise
                        break
                    group = group_id(state.num_submitted + len(facts))
                    facts[task.task_id] = GroupSubmitted(group_id=group, task=task, tier=tier, at_s=now_s)
                accepted.append(task.task_id)
            await self._feed.tell(list(facts.values()))
            return [known[task] or state.group_of_task[task] for task in accepted]
