"""A sandbox reaches the world, not the machine and the network that its gateway stands in (E, security)."""

import asyncio
import contextlib
import ipaddress
import socket
from base64 import b64encode

import pytest

from gyre.env.outside import Outside, Rules
from gyre.env.outside.reach import HostRefused, Reach, is_public
from gyre.env.outside.wire import Request
from tests.unit.env.test_outside import Far, ask, gateway, journal

OURS = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "168.63.129.16", "224.0.0.1",
    "255.255.255.255", "::1", "::", "fe80::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
    "2002:7f00:1::", "::ffff:a9fe:a9fe",
]  # fmt: skip


@pytest.mark.parametrize("address", OURS)
def test_no_form_of_an_address_of_ours_is_of_the_world(address):
    assert not is_public(ipaddress.ip_address(address))
    assert "no host of the world" in Reach(["*"]).why_not(address)
    assert Reach(["*", address]).why_not(address) == ""


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_addresses_of_the_world_are_reached(address):
    assert Reach(["*"]).why_not(address) == ""


def test_a_pattern_opens_nothing_of_ours_and_a_network_does():
    assert Reach(["127.0.0.*"]).why_not("127.0.0.1")
    reach = Reach(["*.example.com", "10.1.0.0/16"])
    assert reach.why_not("10.1.2.3") == "" and reach.why_not("10.2.2.3") and reach.why_not("8.8.8.8")
    assert reach.why_not("a.example.com") == "" and reach.why_not("example.org")


@pytest.mark.parametrize("written", ["127.1", "2130706433", "0177.0.0.1", "127.0.0.1.", "１２７.0.0.1"])
def test_an_address_written_otherwise_is_refused(written):
    assert Reach(["*"]).why_not(written)


@contextlib.contextmanager
def names(monkeypatch, **known: list[str]):
    """A world of names: the loop's resolver asks here."""
    loop, real = asyncio.get_running_loop(), asyncio.get_running_loop().getaddrinfo
    asked: list[str] = []

    async def getaddrinfo(host, port, **options):
        if host not in known:
            return await real(host, port, **options)
        asked.append(host)
        answers = known[host]
        text = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))
            for one in text.split()
        ]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    yield asked


async def test_only_the_addresses_that_may_be_reached_are_given(monkeypatch):
    with names(monkeypatch, mixed=["10.0.0.1 8.8.8.8 ::1"], inner=["10.0.0.1"]):
        assert [found["host"] for found in await Reach(["*"]).resolve("mixed", 80)] == ["8.8.8.8"]
        with pytest.raises(HostRefused, match=r"inner \(10\.0\.0\.1\)"):
            await Reach(["*"]).resolve("inner", 80)
        assert [found["host"] for found in await Reach(["inner"]).resolve("inner", 80)] == ["10.0.0.1"]
        assert [found["host"] for found in await Reach(["*", "10.0.0.0/8"]).resolve("inner", 80)] == ["10.0.0.1"]


async def connect(way, target: str) -> str:
    """First line of the answer to CONNECT."""
    reader, writer = await asyncio.open_connection(way.host, way.port)
    try:
        key = b64encode(f"{way.name}:{way.token}".encode()).decode()
        writer.write(
            f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\nproxy-authorization: Basic {key}\r\n\r\n".encode()
        )
        return (await reader.readline()).decode()
    finally:
        writer.close()


async def test_by_default_nothing_of_this_machine_is_reached(monkeypatch):
    """By address, by a name that means it, in other characters, and through a tunnel."""
    async with Far() as far, gateway(Outside()) as made:
        held = journal()
        way = made.admit("e0-a1", lambda: held)
        with names(monkeypatch, **{"far.example": ["127.0.0.1"]}):
            for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "far.example"):
                status, body, headers = await ask(way, f"http://{host}:{far.port}/a")
                assert (status, headers["x-gyre-error"]) == (403, "host_refused"), (host, body)
                assert " 403 " in await connect(way, f"{host}:{far.port}")
        assert far.asked == []


async def test_dots_of_another_script_are_dots():
    """They are made plain where the host is looked up, and an address is then looked up no more."""
    async with Far() as far, gateway(Outside()) as made:
        held = journal()
        way = made.admit("e0-a1", lambda: held)
        request = Request("GET", f"http://127\u30020\u30020\u30021:{far.port}/a", [])
        answer = await made._proxy.answer(way.gate, request)
        assert answer.status == 403 and far.asked == []


async def test_what_is_named_is_reached_by_request_and_by_tunnel():
    async with Far() as far, gateway(Outside(rules=Rules(hosts=("localhost",)))) as made:
        held = journal()
        way = made.admit("e0-a1", lambda: held)
        assert (await ask(way, f"http://localhost:{far.port}/a"))[:2] == (200, b"1: /a")
        assert " 200 " in await connect(way, f"localhost:{far.port}")
        assert (await ask(way, f"{far.base}/a"))[0] == 403


async def test_what_was_checked_is_what_is_connected_to(monkeypatch):
    """The name is looked up once: who answers for it cannot mean this machine the second time."""
    connected: list[tuple[str, int]] = []

    async def connect_to(sock, address):
        connected.append(address[:2])
        raise OSError("nobody there")

    async def open_to(host, port):
        connected.append((host, port))
        raise OSError("nobody there")

    async with gateway(Outside()) as made:
        held = journal()
        way = made.admit("e0-a1", lambda: held)
        turns = {"one.example": ["8.8.8.8", "127.0.0.1"], "two.example": ["8.8.4.4", "127.0.0.1"]}
        with names(monkeypatch, **turns) as asked, monkeypatch.context() as patched:
            patched.setattr(asyncio.get_running_loop(), "sock_connect", connect_to)
            answer = await made._proxy.answer(way.gate, Request("GET", "http://one.example:81/", []))
            patched.setattr(asyncio, "open_connection", open_to)
            with pytest.raises(OSError, match="nobody there"):
                await made._proxy._connected("two.example", 82)
        assert answer.status == 502
        assert connected == [("8.8.8.8", 81), ("8.8.4.4", 82)] and asked == ["one.example", "two.example"]
