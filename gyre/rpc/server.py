"""An asyncio gRPC server: loopback, key, health, reflection, errors with a code."""

from collections.abc import Callable
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from gyre.errors import Conflict, GyreError, InvalidInput, NotFound, Overloaded, Unavailable
from gyre.rpc.auth import is_allowed

REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""Larger requests are refused by the transport before they are read into memory (gRPC's own default, made explicit)."""
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""Of what one of our processes sends another: a prompt of a million tokens has up to 5 bytes for each, an answer of the ledger as much."""

_STATUS = {
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    NotFound: grpc.StatusCode.NOT_FOUND,
    Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
}


async def abort_with(context: grpc.aio.ServicerContext, error: GyreError) -> NoReturn:
    """Answer with the status that fits the error; its code goes in the trailing metadata, and when to come again, in the words of all clients."""
    trailing: list[tuple[str, str | bytes]] = [("gyre-code", error.code)]
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
    if isinstance(error, Overloaded):
        trailing += _when_again(error, status)
    await context.abort(status, str(error), tuple(trailing))
    raise AssertionError("abort returns never")


def _when_again(error: Overloaded, status: grpc.StatusCode) -> list[tuple[str, str | bytes]]:
    """An OTLP exporter comes again after RESOURCE_EXHAUSTED only where RetryInfo says when; where it looks for that differs.

    retry-after-s              ours
    grpc-status-details-bin    google.rpc.Status, by gRPC's rich errors (Go, Java, C++)
    google.rpc.retryinfo-bin   the message itself (OpenTelemetry's Python)
    """
    again = RetryInfo()
    again.retry_delay.FromNanoseconds(round(error.retry_after_s * 1e9))
    details = Status(code=status.value[0], message=str(error))
    details.details.add().Pack(again)
    return [
        ("retry-after-s", f"{error.retry_after_s:g}"),
        ("grpc-status-details-bin", details.SerializeToString()),
        ("google.rpc.retryinfo-bin", again.SerializeToString()),
    ]


class _KeyCheck(grpc.aio.ServerInterceptor):
    def __init__(self, keys: dict[str, str]) -> None:
        self._keys = keys

    async def intercept_service(self, continuation, handler_call_details):
        metadata = dict(handler_call_details.invocation_metadata or ())
        if is_allowed(handler_call_details.method, metadata.get("authorization", ""), self._keys):
            return await continuation(handler_call_details)
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(_request: Any, context: grpc.aio.ServicerContext) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong or missing key in `authorization: Bearer …`")
    raise AssertionError("abort returns never")


class RpcServer:
    """Servicers on one address. `add` them, `start`, and `stop` when done."""

    def __init__(
        self, address: str, keys: dict[str, str] | None = None, request_bytes_max: int = REQUEST_BYTES_MAX
    ) -> None:
        """`keys`: role → key (gyre.rpc.auth); None leaves the server open, for tests only."""
        self.address = address
        options = [
            ("grpc.max_receive_message_length", request_bytes_max),
            ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
            ("grpc.so_reuseport", 0),
            # Clients that ask whether we are there (open_channel's keepalive_s) are no attackers.
            ("grpc.http2.max_ping_strikes", 0),
        ]
        self._server = grpc.aio.server(interceptors=[_KeyCheck(keys or {})], options=options)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._names = [health.SERVICE_NAME, reflection.SERVICE_NAME]
        self.port = 0

    def add(self, register: Callable[[Any, Any], None], servicer: Any, name: str) -> None:
        """`register` is the generated add_…_to_server, `name` the service's full name."""
        register(servicer, self._server)
        self._names.append(name)

    async def start(self) -> None:
        """Raises Unavailable with the address when the port is in use."""
        reflection.enable_server_reflection(self._names, self._server)
        try:
            self.port = self._server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {self.address}: the port is in use or not ours ({error})") from error
        await self._server.start()
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float = 1.0) -> None:
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)
