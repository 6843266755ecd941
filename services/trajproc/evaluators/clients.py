"""The two ways to an evaluator. Each answer is bounded before it is read; what is no answer raises."""

import os
from typing import Protocol

import aiohttp
import grpc.aio

from gyre.api.evaluation.v1 import evaluation_pb2_grpc
from gyre.config import EvaluatorConfig
from gyre.errors import ConfigError, InvalidInput, Unavailable
from gyre.evaluation import Execution, Finding, wire
from gyre.rpc import open_channel
from services.trajproc.evaluators.secrets import without

ANSWER_BYTES_MAX = 64 * 1024
"""Of an HTTP answer; evidence may have 16 KiB. A gRPC answer is bounded by the transport (gyre.rpc, 4 MiB)."""
SHOWN_CHARS_MAX = 200
"""Of a body or a message that says why there is no answer."""


class Client(Protocol):
    """Asks one evaluator."""

    async def ask(self, execution: Execution) -> Finding:
        """One try. Raises whatever went wrong."""

    async def close(self) -> None: ...


def token_of(settings: EvaluatorConfig) -> str:
    """The token in the configured environment variable. Raises ConfigError where it is not set, or can be in no header."""
    if not settings.token_env:
        return ""
    token = os.environ.get(settings.token_env, "").strip()
    if not token:
        raise ConfigError(f"evaluators `{settings.name}`: the environment variable {settings.token_env} is not set")
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(
            f"evaluators `{settings.name}`: the token in {settings.token_env} may hold printable ASCII only"
        )
    return token


def open_client(settings: EvaluatorConfig, token: str) -> Client:
    return HttpClient(settings, token) if settings.transport == "http" else GrpcClient(settings, token)


class HttpClient:
    """JSON by POST (docs/evaluators.md). No redirects, no proxy, no cookies, no compression: what is bounded is what is read."""

    def __init__(self, settings: EvaluatorConfig, token: str) -> None:
        self._settings, self._token = settings, token
        self._headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, execution: Execution) -> Finding:
        body = wire.request_json(execution, self._settings.name, self._settings.kind)
        session = self._open()
        async with session.post(self._settings.url, data=body, allow_redirects=False) as response:
            answer = await _read(response)
            if response.status != 200:
                said = without(answer.decode(errors="replace"), self._token)[:SHOWN_CHARS_MAX]
                raise Unavailable(f"status {response.status}: {said}")
            return wire.finding_of_json(answer)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=self._settings.concurrency),
                timeout=aiohttp.ClientTimeout(total=None),  # the tries have their own
            )  # fmt: skip
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, or InvalidInput once it is over its bound: the rest is never received."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            response.close()
            raise InvalidInput(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


class GrpcClient:
    """EvaluatorService.Evaluate."""

    def __init__(self, settings: EvaluatorConfig, token: str) -> None:
        self._settings, self._token = settings, token
        self._channel = open_channel(settings.address, token)
        self._stub = evaluation_pb2_grpc.EvaluatorServiceStub(self._channel)

    async def ask(self, execution: Execution) -> Finding:
        request = wire.request_proto(execution, self._settings.name, self._settings.kind)
        try:
            response = await self._stub.Evaluate(request, timeout=self._settings.timeout_s)
        except grpc.aio.AioRpcError as error:
            said = without(error.details() or "", self._token)[:SHOWN_CHARS_MAX]
            raise Unavailable(f"{error.code().name}: {said}") from error
        return wire.finding_of_proto(response)

    async def close(self) -> None:
        await self._channel.close()
