"""The tool gateway's HTTP form: what goes out is recorded, counted, bounded, repeated in order, and never with a secret on record (C4, C6, C11)."""

import asyncio
import contextlib
import json
import os
import ssl
import sys

import aiohttp
import pytest
from aiohttp import web

from gyre.env.outside import Outside, Rules, ToolGateway
from gyre.env.outside.certificates import Certificates
from gyre.env.recording import Journal, Redactor, Tape
from gyre.env.recording.entries import Called, Checkpoint
from gyre.errors import ConfigError

LINGER_S = 60
HERE = Rules(hosts=("*", "127.0.0.1"))
"""Where the far end of these tests is."""


class Far:
    """A server of the outside world: counts what it is asked, and answers by path."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.asked: list[str] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self._context = context
        self.release = asyncio.Event()

    async def __aenter__(self) -> "Far":
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context).start()
        self.port = self._runner.addresses[0][1]
        self.base = f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release.set()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        body = self.bodies[-1].decode("latin-1")
        self.asked.append(f"{request.method} {request.rel_url} {body}".strip())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        match request.path:
            case "/never":
                await self.release.wait()
            case "/big":
                return web.Response(body=b"x" * 200_000)
            case "/bytes":
                return web.Response(body=bytes(range(256)), headers={"x-kind": "bytes"})
            case "/login":
                return web.json_response(
                    {"access_token": "sesame-0123456789", "user": "ann"}, headers={"set-cookie": "sid=1"}
                )
            case "/away":
                return web.Response(status=302, headers={"location": "/elsewhere"})
        return web.Response(text=f"{len(self.asked)}: {request.path}")


def journal(path=None, quota: int = -1, is_replay: bool = False) -> Journal:
    made = Journal(Tape(path, Redactor(), sync=False) if path else None, quota=quota)
    made.begin("e0-a1", is_replay=is_replay)
    if not is_replay:
        made.keep(Checkpoint(ordinal=0, turn=0, messages="[]"))
    return made


@contextlib.asynccontextmanager
async def gateway(outside: Outside | None = None, far_ssl: ssl.SSLContext | bool = True):
    made = ToolGateway(outside or Outside(rules=HERE), far_ssl)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def ask(way, url: str, method: str = "GET", context: ssl.SSLContext | bool = True, **fields):
    """(status, body, headers) of a request by way of the proxy, on a connection of its own."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as http:
        async with http.request(method, url, proxy=way.proxy_url, allow_redirects=False, **fields) as reply:
            return reply.status, await reply.read(), reply.headers


async def test_a_call_is_made_once_counted_and_answered_from_the_record_by_the_next_attempt(tmp_path):
    """C4: the second attempt gets the same replies in the same order; the far end is asked only for what is new."""
    path = tmp_path / "e0.tape"
    async with Far() as far, gateway() as made:
        first = journal(path, quota=5)
        way = made.admit("e0-a1", lambda: first)
        said = [await ask(way, f"{far.base}/a"), await ask(way, f"{far.base}/b", "POST", data=b"order")]
        assert [(status, body) for status, body, _ in said] == [(200, b"1: /a"), (200, b"2: /b")]
        assert far.asked == ["GET /a", "POST /b order"] and (way.gate.made, way.gate.quota_left) == (2, 3)
        first.close()
        second = journal(path, quota=5, is_replay=True)
        again = made.admit("e0-a2", lambda: second)
        repeated = [await ask(again, f"{far.base}/a"), await ask(again, f"{far.base}/b", "POST", data=b"order")]
        assert [(s, b) for s, b, _ in repeated] == [(s, b) for s, b, _ in said]
        assert len(far.asked) == 2 and again.gate.made == 0
        assert (await ask(again, f"{far.base}/c"))[1] == b"3: /c"
        assert (again.gate.made, again.gate.quota_left) == (1, 2)
        second.close()


async def test_a_call_that_departs_is_refused_with_the_difference_and_so_is_every_later_one(tmp_path):
    """502 replay_departed: what was recorded, what was asked; the far end hears of neither."""
    path = tmp_path / "e0.tape"
    async with Far() as far, gateway() as made:
        first = journal(path)
        await ask(made.admit("e0-a1", lambda: first), f"{far.base}/a?q=1")
        first.close()
        second = journal(path, is_replay=True)
        way = made.admit("e0-a2", lambda: second)
        status, body, headers = await ask(way, f"{far.base}/a?q=2")
        assert (status, headers["x-gyre-error"]) == (502, "replay_departed")
        assert b"q=1" in body and b"q=2" in body and b"differ from character" in body
        assert (await ask(way, f"{far.base}/a?q=1"))[0] == 502 and "q=2" in way.gate.departed
        assert far.asked == ["GET /a?q=1"]
        second.close()


async def test_a_used_up_quota_is_an_ordinary_error():
    """C6: 429 in words, the far end is not asked; other executions have theirs."""
    async with Far() as far, gateway() as made:
        mine, other = journal(quota=1), journal(quota=1)
        way, another = made.admit("e0-a1", lambda: mine), made.admit("e1-a1", lambda: other)
        assert (await ask(way, f"{far.base}/a"))[0] == 200
        status, body, headers = await ask(way, f"{far.base}/a")
        assert (status, headers["x-gyre-error"]) == (429, "quota_used_up") and b"quota" in body
        assert (await ask(another, f"{far.base}/a"))[0] == 200
        assert len(far.asked) == 2 and way.gate.quota_left == 0


async def test_secrets_are_not_on_record_and_the_program_still_gets_them(tmp_path):
    """Authorization goes to the far end and not on the tape; a token in a reply reaches the program now, and is redacted in a replay."""
    path = tmp_path / "e0.tape"
    async with Far() as far, gateway() as made:
        first = journal(path)
        way = made.admit("e0-a1", lambda: first)
        secret = {"authorization": "Bearer abcdefgh12345678", "x-other": "1"}
        _, body, headers = await ask(way, f"{far.base}/login?api_key=abcdef123", headers=secret)
        assert json.loads(body)["access_token"] == "sesame-0123456789" and headers["set-cookie"] == "sid=1"
        assert (
            far.headers[0]["authorization"] == "Bearer abcdefgh12345678" and "proxy-authorization" not in far.headers[0]
        )
        first.close()
        written = path.read_text()
        assert not any(text in written for text in ("sesame", "abcdef123", "abcdefgh12345678", "sid=1", way.token))
        second = journal(path, is_replay=True)
        _, body, _ = await ask(made.admit("e0-a2", lambda: second), f"{far.base}/login?api_key=abcdef123")
        assert json.loads(body) == {"access_token": "[redacted]", "user": "ann"} and len(far.asked) == 1
        second.close()


async def test_replies_of_any_kind_come_through_as_they_are(tmp_path):
    """Bytes, a redirect that is the client's to follow, a HEAD without a body: live and repeated alike."""
    path = tmp_path / "e0.tape"
    asked = [("GET", "/bytes"), ("GET", "/away"), ("HEAD", "/x")]
    async with Far() as far, gateway() as made:
        first = journal(path)
        way = made.admit("e0-a1", lambda: first)
        live = [await ask(way, far.base + target, method) for method, target in asked]
        assert live[0][1] == bytes(range(256)) and live[0][2]["x-kind"] == "bytes"
        assert (live[1][0], live[1][2]["location"]) == (302, "/elsewhere") and live[2][:2] == (200, b"")
        first.close()
        second = journal(path, is_replay=True)
        again = made.admit("e0-a2", lambda: second)
        repeated = [await ask(again, far.base + target, method) for method, target in asked]
        assert [r[:2] for r in repeated] == [r[:2] for r in live] and len(far.asked) == 3
        second.close()


async def test_what_cannot_be_reached_or_is_too_much_is_an_answer_of_the_gateways_own():
    """502 for a dead host and a reply over the bound; 413 for a request over it; 403 for a host that is not allowed."""
    rules = Rules(bytes_max=100_000, hosts=("127.0.0.1",))
    async with Far() as far, gateway(Outside(rules=rules)) as made:
        mine = journal()
        way = made.admit("e0-a1", lambda: mine)
        for url, words in [("http://127.0.0.1:9/", b"cannot be reached"), (f"{far.base}/big", b"more than 100000")]:
            status, body, headers = await ask(way, url)
            assert (status, headers["x-gyre-error"]) == (502, "unavailable") and words in body
        assert (await ask(way, f"{far.base}/a", "POST", data=b"x" * 200_000))[0] == 413
        status, body, _ = await ask(way, "http://example.com/")
        assert status == 403 and b"not among the hosts" in body
        assert way.gate.made == 2


async def test_an_answer_that_never_comes_is_an_error_on_record_like_any_other(tmp_path):
    """502 after the bound; the replay says the same without waiting, and the far end is not asked again."""
    path = tmp_path / "e0.tape"
    async with Far() as far, gateway(Outside(rules=Rules(call_s=0.2, hosts=("*", "127.0.0.1")))) as made:
        first = journal(path)
        live = await ask(made.admit("e0-a1", lambda: first), f"{far.base}/never")
        first.close()
        second = journal(path, is_replay=True)
        repeated = await ask(made.admit("e0-a2", lambda: second), f"{far.base}/never")
        assert (
            live[0] == repeated[0] == 502 and live[1] == repeated[1] and made.admit("x", lambda: second).gate.made == 0
        )
        second.close()


async def test_nobody_gets_out_without_an_executions_token():
    """407 with a challenge; another execution's token is worth nothing under this one's name."""
    async with Far() as far, gateway() as made:
        mine = journal()
        way, other = made.admit("e0-a1", lambda: mine), made.admit("e1-a1", lambda: mine)
        for url in (f"http://{made._outside.listen}:{made.port}", f"http://e0-a1:{other.token}@127.0.0.1:{made.port}"):
            async with aiohttp.ClientSession() as http, http.get(f"{far.base}/a", proxy=url) as reply:
                assert reply.status == 407 and "Basic" in reply.headers["proxy-authenticate"]
        await made.dismiss("e0-a1")
        assert (await ask(way, f"{far.base}/a"))[0] == 407 and far.asked == []


async def test_rubbish_on_the_line_is_answered_or_dropped_and_the_gateway_goes_on():
    rubbish = [
        b"\x16\x03\x01\x00\xa5\x01",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000,
        b"CONNECT nowhere HTTP/1.1\r\n\r\n",
    ]
    async with Far() as far, gateway() as made:
        mine = journal()
        way = made.admit("e0-a1", lambda: mine)
        for data in rubbish:
            reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
            writer.write(data)
            writer.write_eof()
            assert (await reader.read()).startswith(b"HTTP/1.1 4")
            writer.close()
        assert (await ask(way, f"{far.base}/a"))[0] == 200


async def test_what_is_called_before_the_world_is_up_is_counted_and_made_again_by_each_attempt():
    """`reset` builds the world anew each time; nothing of it is on record."""
    async with Far() as far, gateway() as made:
        blank = Journal()
        way = made.admit("e0-a1", lambda: blank)
        for _ in range(2):
            assert (await ask(way, f"{far.base}/a"))[0] == 200
        assert way.gate.made == 2 and blank.calls == 0 and len(far.asked) == 2


@pytest.fixture
def https(tmp_path):
    """A far end's certificate, from an authority of its own, and whom to trust for it."""
    authority = Certificates(tmp_path / "far")
    return authority.context("127.0.0.1"), ssl.create_default_context(cafile=str(authority.ca_file))


async def test_https_is_read_along_with_an_authority_of_our_own(tmp_path, https):
    """The client trusts only ours, we trust the far end's; request and reply are on record and repeated without the far end."""
    path, (context, far_trust) = tmp_path / "e0.tape", https
    async with Far(context) as far, gateway(Outside(rules=HERE, intercept=tmp_path / "ca"), far_trust) as made:
        first = journal(path)
        way = made.admit("e0-a1", lambda: first)
        trust = ssl.create_default_context(cafile=str(way.ca_file))
        assert (await ask(way, f"{far.base}/a", "POST", trust, data=b"in"))[:2] == (200, b"1: /a")
        first.close()
        second = journal(path, is_replay=True)
        again = made.admit("e0-a2", lambda: second)
        assert (await ask(again, f"{far.base}/a", "POST", trust, data=b"in"))[:2] == (200, b"1: /a")
        assert far.asked == ["POST /a in"]
        calls = [entry for entry in second._tape.entries if isinstance(entry, Called)]
        assert calls[0].name == "http 127.0.0.1" and f"{far.base}/a" in calls[0].arguments
        second.close()


async def test_the_authority_is_made_once_and_its_key_is_its_owners_alone(tmp_path):
    before = Certificates(tmp_path).ca_file.read_bytes()
    assert Certificates(tmp_path).ca_file.read_bytes() == before
    assert (tmp_path / "ca.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("broken", ["ca.pem", "ca.key"])
def test_an_authority_that_is_not_whole_is_refused_with_what_to_do(tmp_path, broken):
    Certificates(tmp_path / "one")
    (tmp_path / "one" / broken).write_bytes(b"")
    with pytest.raises(ConfigError, match=broken):
        Certificates(tmp_path / "one")
    Certificates(tmp_path / "other")
    (tmp_path / "one" / broken).write_bytes((tmp_path / "other" / broken).read_bytes())
    with pytest.raises(ConfigError, match="remove both"):
        Certificates(tmp_path / "one")


async def test_a_tunnel_is_on_record_as_opened_and_cannot_be_repeated(tmp_path, https):
    """Without an authority https passes unread, end to end with the far end's own certificate; a replay says why it has no answer."""
    path, (context, far_trust) = tmp_path / "e0.tape", https
    async with Far(context) as far, gateway() as made:
        first = journal(path, quota=3)
        way = made.admit("e0-a1", lambda: first)
        assert (await ask(way, f"{far.base}/a", context=far_trust))[:2] == (200, b"1: /a")
        assert (way.gate.made, way.gate.quota_left) == (1, 2)
        first.close()
        assert "opaque" in path.read_text() and "/a" not in path.read_text()
        second = journal(path, quota=3, is_replay=True)
        with pytest.raises(aiohttp.ClientHttpProxyError) as refused:
            await ask(made.admit("e0-a2", lambda: second), f"{far.base}/a", context=far_trust)
        assert refused.value.status == 502 and len(far.asked) == 1
        second.close()


async def test_a_process_that_knows_only_the_usual_variables_goes_through_it(tmp_path, https):
    """Python's urllib in a process of its own, http and https, with nothing but `variables()`."""
    context, far_trust = https
    code = "import sys, urllib.request as r; print([r.urlopen(url).read().decode() for url in sys.argv[1:]])"
    async with (
        Far() as far,
        Far(context) as safe,
        gateway(Outside(rules=HERE, intercept=tmp_path / "ca"), far_trust) as made,
    ):
        mine = journal()
        way = made.admit("e0-a1", lambda: mine)
        variables = {
            name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
        } | way.variables(direct="")
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, f"{far.base}/plain", f"{safe.base}/safe", env=variables, stdout=asyncio.subprocess.PIPE
        )  # fmt: skip
        out, _ = await asyncio.wait_for(child.communicate(), LINGER_S)
        assert out.decode().strip() == "['1: /plain', '1: /safe']" and way.gate.made == 2
