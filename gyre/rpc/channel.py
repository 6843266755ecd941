"""Client channels that carry the caller's key."""

import grpc
import grpc.aio

from gyre.rpc.server import MESSAGE_BYTES_MAX


class _Bearer:
    """Adds the key to every call."""

    def __init__(self, key: str) -> None:
        self._header = ("authorization", f"Bearer {key}")

    def _with_key(self, details: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        metadata.add(*self._header)
        return grpc.aio.ClientCallDetails(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
        )


class _UnaryUnary(_Bearer, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation, client_call_details, request):
        return await continuation(self._with_key(client_call_details), request)


class _UnaryStream(_Bearer, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation, client_call_details, request):
        return await continuation(self._with_key(client_call_details), request)


class _StreamStream(_Bearer, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, continuation, client_call_details, request_iterator):
        return await continuation(self._with_key(client_call_details), request_iterator)


def open_channel(address: str, key: str = "") -> grpc.aio.Channel:
    """A channel to `address` (host:port). Connects lazily, reconnects by itself within half a second."""
    options = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.enable_http_proxy", 0),
    ]
    interceptors = [_UnaryUnary(key), _UnaryStream(key), _StreamStream(key)] if key else []
    return grpc.aio.insecure_channel(address, options=options, interceptors=interceptors)
