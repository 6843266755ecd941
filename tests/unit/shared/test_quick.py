"""NATS' protocol as the storing connection reads it, whatever pieces it comes in."""

import asyncio
import json

import pytest
from nats.js.errors import APIError

from gyre.bus.quick import Quick
from gyre.errors import Unavailable


class Wire(asyncio.Transport):
    """What was written; closed when it is told to be."""

    def __init__(self, line: Quick) -> None:
        self.written, self._line, self._is_closing = bytearray(), line, False

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._line.connection_lost(None)


def connected(timeout_s: float = 60.0) -> tuple[Quick, Wire]:
    line = Quick("nats://127.0.0.1:4222", "test", None, timeout_s)
    wire = Wire(line)
    line.connection_made(wire)
    line.data_received(b'INFO {"server_id": "x"}\r\nPONG\r\n')
    assert line.is_open and wire.written.startswith(b"CONNECT {") and wire.written.endswith(b"* 1\r\nPING\r\n")
    wire.written.clear()
    return line, wire


async def storing(line: Quick, wire: Wire, data: bytes, headers: dict[str, str]) -> tuple[asyncio.Task, bytes]:
    """The call under way, and the inbox it waits at."""
    wire.written.clear()
    task = asyncio.create_task(line.store("a.b", data, headers))
    await asyncio.sleep(0)
    return task, bytes(wire.written).split(b" ")[2]


def answer(inbox: bytes, said: dict) -> bytes:
    data = json.dumps(said).encode()
    return b"MSG %b 1 %d\r\n%b\r\n" % (inbox, len(data), data)


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_answers_find_who_waits_for_them_in_whatever_pieces_they_come(size):
    line, wire = connected()
    first, inbox = await storing(line, wire, b"one\r\nMSG", {"Nats-Msg-Id": "k", "traceparent": "a\r\nb "})
    head = b"NATS/1.0\r\nNats-Msg-Id: k\r\ntraceparent: a  b\r\n\r\n"
    assert bytes(wire.written) == b"HPUB a.b %b %d %d\r\n%bone\r\nMSG\r\n" % (inbox, len(head), len(head) + 8, head)
    second, other = await storing(line, wire, b"two", {})
    came = b"PING\r\n" + answer(other, {"seq": 8, "note": "\r\n"}) + b"+OK\r\n" + answer(inbox, {"seq": 7})
    for at in range(0, len(came), size):
        line.data_received(came[at : at + size])
    assert (await first, await second) == (7, 8)
    assert wire.written.endswith(b"PONG\r\n")


async def test_refusals_are_jetstreams_own_and_what_nobody_takes_is_unavailable():
    line, wire = connected()
    refused, inbox = await storing(line, wire, b"", {})
    line.data_received(answer(inbox, {"error": {"code": 400, "err_code": 10071, "description": "wrong last sequence"}}))
    with pytest.raises(APIError, match="wrong last sequence") as said:
        await refused
    assert said.value.err_code == 10071
    unheard, inbox = await storing(line, wire, b"", {})
    line.data_received(b"HMSG %b 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n" % inbox)
    with pytest.raises(Unavailable, match="503"):
        await unheard


async def test_who_waits_when_it_breaks_or_says_nothing_is_told():
    line, wire = connected()
    broken, _ = await storing(line, wire, b"", {})
    line.data_received(b"-ERR 'Stale Connection'\r\n")
    with pytest.raises(Unavailable):
        await broken
    with pytest.raises(Unavailable, match="closed"):
        await line.store("a.b", b"", {})
    silent, wire = connected(timeout_s=0.01)
    with pytest.raises(Unavailable, match="no acknowledgement"):
        await silent.store("a.b", b"", {})
    assert not silent.is_open
