"""Client channels that carry the caller's key."""

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from gyre.rpc.server import MESSAGE_BYTES_MAX


class _Keyed(grpc.aio.Channel):
    """A channel all of whose calls carry the key. Interceptors would do the same and cost each call tasks of its own."""

    def __init__(self, channel: grpc.aio.Channel, key: str) -> None:
        self._channel = channel
        self._header = ("authorization", f"Bearer {key}")

    def _with_key(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*request: Any, metadata: Any = None, **options: Any) -> Any:
            return call(*request, metadata=(*(metadata or ()), self._header), **options)

        return made

    def unary_unary(self, *method: Any, **options: Any) -> Any:
        return self._with_key(self._channel.unary_unary(*method, **options))

    def unary_stream(self, *method: Any, **options: Any) -> Any:
        return self._with_key(self._channel.unary_stream(*method, **options))

    def stream_unary(self, *method: Any, **options: Any) -> Any:
        return self._with_key(self._channel.stream_unary(*method, **options))

    def stream_stream(self, *method: Any, **options: Any) -> Any:
        return self._with_key(self._channel.stream_stream(*method, **options))

    async def __aenter__(self) -> "_Keyed":
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._channel.__aexit__(*raised)

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()


def open_channel(address: str, key: str = "", keepalive_s: float = 0.0) -> grpc.aio.Channel:
    """A channel to `address` (host:port). Connects lazily, reconnects by itself within half a second.

    With `keepalive_s` the other side is asked that often whether it is there: a machine that is lost, or a process that stands still, breaks the
    channel after twice as long, and not when TCP gives up."""
    options = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.enable_http_proxy", 0),
    ]
    if keepalive_s:
        each_ms = round(keepalive_s * 1000)
        options += [("grpc.keepalive_time_ms", each_ms), ("grpc.keepalive_timeout_ms", each_ms)]
        options.append(("grpc.http2.max_pings_without_data", 0))
    channel = grpc.aio.insecure_channel(address, options=options)
    return _Keyed(channel, key) if key else channel
