"""Questions and commands to a running run's services by gRPC."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, TypeVar

import grpc

from gyre.cli.screen import not_text
from gyre.errors import Conflict, InvalidInput, NotFound, Unavailable
from gyre.rpc.auth import read_key
from gyre.run_folder import RunFolder

T = TypeVar("T")

CONNECT_S = 2.0
ANSWER_S = 30.0
_ERRORS = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidInput,
    grpc.StatusCode.FAILED_PRECONDITION: Conflict,
}


_own = threading.local()


def in_one_loop(question: Coroutine[Any, Any, T]) -> T:
    """The answer. All questions of a command share one event loop, which lives as long as the command: gRPC's channels keep a poller that is still
    about when its loop is closed, and complains into the next one's."""
    if not hasattr(_own, "runner"):
        _own.runner = asyncio.Runner()
    return _own.runner.run(question)


def address(folder: RunFolder, endpoint: str) -> str:
    """host:port of a service. Raises Unavailable for a run that was never up."""
    try:
        return folder.endpoint(endpoint)
    except NotFound as error:
        raise Unavailable(str(error)) from error


async def connected(channel: grpc.aio.Channel) -> None:
    """Raises Unavailable when nobody answers within CONNECT_S."""
    try:
        async with asyncio.timeout(CONNECT_S):
            await channel.channel_ready()
    except TimeoutError:
        raise Unavailable("nothing answers at the run's address: is it up?") from None


@contextlib.asynccontextmanager
async def scheduler(folder: RunFolder) -> AsyncIterator[Any]:
    """The scheduler's stub. What it refuses inside is raised as the error it means: NotFound, InvalidInput, Conflict, Unavailable."""
    from gyre.api.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceStub
    from gyre.rpc import open_channel

    async with open_channel(address(folder, "scheduler"), read_key(folder.keys, "service")) as channel:
        await connected(channel)
        try:
            yield SchedulerServiceStub(channel)
        except grpc.aio.AioRpcError as error:
            raise _ERRORS.get(error.code(), Unavailable)(error.details()) from error


async def asked(folder: RunFolder, method: str, request: Any, timeout_s: float = ANSWER_S) -> Any:
    """The scheduler's answer to one request."""
    async with scheduler(folder) as stub:
        answer: Awaitable[Any] = getattr(stub, method)(request, timeout=timeout_s)
        return await answer


def request_of(kind: type, **fields: Any) -> Any:
    """A request with these fields. Raises InvalidInput for what no request can hold: text that is not UTF-8, a number of too many bits."""
    try:
        return kind(**fields)
    except UnicodeEncodeError as error:
        raise not_text(error) from error
    except ValueError as error:
        raise InvalidInput(f"this cannot be asked: {error}") from error


def as_dict(message: Any) -> dict[str, Any]:
    """A message with its proto names and its zeros. 64-bit integers are texts, as in protobuf's JSON."""
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
