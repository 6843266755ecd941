"""What goes through the tool gateway's proxy arrives as it was sent: bytes of headers, lengths, addresses (C4)."""

import asyncio
import contextlib
from base64 import b64encode

import pytest
from yarl import URL

from gyre.env.outside.proxy import as_written
from tests.unit.env.test_outside import gateway, journal


@contextlib.asynccontextmanager
async def far(reply: bytes):
    """(its port, the heads of the requests that it got); it answers each with `reply` and closes."""
    heads: list[bytes] = []

    async def serve(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(reply)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        server.close()


async def said(way, request: bytes) -> bytes:
    """Head of the answer to a request, which gets the execution's name and token."""
    reader, writer = await asyncio.open_connection(way.host, way.port)
    try:
        key = b64encode(f"{way.name}:{way.token}".encode())
        writer.write(request + b"\r\nhost: x\r\nproxy-authorization: Basic " + key + b"\r\n\r\n")
        return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()


@pytest.mark.parametrize(
    "header",
    ["location: /日本".encode(), b"x-name: caf\xe9", b"x-name: a\x01b", b"x-name: caf\xc3\xa9 \xff"],
    ids=ascii,
)
async def test_a_replys_header_of_any_bytes_arrives_also_from_the_record(tmp_path, header):
    """The call went out and was counted; its answer must not be lost over a letter."""
    path = tmp_path / "e0.tape"
    async with far(b"HTTP/1.1 302 Found\r\n" + header + b"\r\ncontent-length: 0\r\n\r\n") as (port, heads):
        asked = f"GET http://127.0.0.1:{port}/a HTTP/1.1".encode()
        for is_replay in (False, True):
            async with gateway() as made:
                mine = journal(path, is_replay=is_replay)
                head = await said(made.admit("e0-a1", lambda mine=mine: mine), asked)
                assert head.startswith(b"HTTP/1.1 302 ") and header in head, head
                mine.close()
        assert len(heads) == 1


@pytest.mark.parametrize("length", [b"content-length: 1234\r\n", b""], ids=["known", "unknown"])
async def test_a_head_is_answered_with_the_far_ends_length_or_none(length):
    async with far(b"HTTP/1.1 200 OK\r\n" + length + b'etag: "a"\r\n\r\n') as (port, _), gateway() as made:
        mine = journal()
        head = await said(made.admit("e0-a1", lambda: mine), f"HEAD http://127.0.0.1:{port}/a HTTP/1.1".encode())
        assert (length in head) and b"content-length: 0" not in head, head


@pytest.mark.parametrize("target", ["/a%7Eb%2Fc/../d?x=%7E%2F+y;z&s=a%20b", "/~a//b?q='(*)'", "/?x=/a", "/%e2%82%ac"])
async def test_an_address_goes_out_as_it_was_written(target):
    """A signature covers it letter by letter."""
    async with far(b"HTTP/1.1 204 No Content\r\n\r\n") as (port, heads), gateway() as made:
        mine = journal()
        assert b" 204 " in await said(
            made.admit("e0-a1", lambda: mine), f"GET http://127.0.0.1:{port}{target}#part HTTP/1.1".encode()
        )
        assert heads[0].split(b"\r\n")[0] == f"GET {target} HTTP/1.1".encode()


async def test_a_requests_header_in_utf_8_goes_out_as_it_came():
    async with far(b"HTTP/1.1 204 No Content\r\n\r\n") as (port, heads), gateway() as made:
        mine = journal()
        asked = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nx-name: 日本".encode()
        assert b" 204 " in await said(made.admit("e0-a1", lambda: mine), asked)
        assert "x-name: 日本\r\n".encode() in heads[0]


async def test_a_far_end_that_changes_the_protocol_has_given_no_answer():
    async with far(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n") as (port, _):
        async with gateway() as made:
            mine = journal()
            head = await said(made.admit("e0-a1", lambda: mine), f"GET http://127.0.0.1:{port}/ HTTP/1.1".encode())
            assert head.startswith(b"HTTP/1.1 502 ") and b"x-gyre-error: unavailable" in head


@pytest.mark.parametrize("url", ["http://[::1]:8/a?b", "http://u:p%40@h/x", "https://h/", "http://h:80/?x=/a"])
def test_whom_an_address_names_stays_whom_it_names(url):
    assert (written := as_written(url, URL(url))).raw_host == URL(url).raw_host
    assert (written.port, written.user, written.password) == (URL(url).port, URL(url).user, URL(url).password)
