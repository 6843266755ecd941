"""The explorer's HTTP side: who gets in, and what every answer carries."""

import socket
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest
from aiohttp import web

from gyre.config import store
from gyre.config.load import parse
from gyre.errors import ConfigError, InvalidInput
from gyre.rpc.signin import SESSION_S, SIGN_IN_S, Door, secret_of, sign, verify
from gyre.run_folder import RunFolder
from services.ledger.explorer import server as module
from services.ledger.explorer.hosts import Hosts
from services.ledger.explorer.server import ExplorerServer
from services.ledger.listening import Listener
from tests.unit.ledger.ledger_history import RUN, config

SECRET = b"s" * 32


class Hands:
    """A clock that stands where it is put."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def now_s(self) -> float:
        return self.at_s


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.make()
    store(config(), made.config_file)
    return made


@pytest.fixture
def clock() -> Hands:
    return Hands(1000.0)


@pytest.fixture
def serving(whole, folder, clock):
    @asynccontextmanager
    async def serve():
        explorer = ExplorerServer(whole, folder, config(), clock)
        address = await explorer.start("127.0.0.1:0")
        async with aiohttp.ClientSession(f"http://{address}", cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            try:
                yield browser, lambda tenant="": sign("sign-in", RUN, tenant, clock.now_s(), secret_of(folder.keys))
            finally:
                await explorer.stop()

    return serve


def test_a_sign_in_key_opens_one_session():
    door = Door(RUN, SECRET, 100.0)
    key = sign("sign-in", RUN, "acme", 101.0, SECRET)
    session, claims = door.session(key, 102.0)
    assert claims.tenant == "acme" and door.claims(session, 103.0).tenant == "acme"
    with pytest.raises(InvalidInput, match="used already"):
        door.session(key, 104.0)
    assert door.claims(session, 102.0 + SESSION_S) is None, "a working day, no more"


def test_a_server_that_starts_anew_takes_no_older_key_and_knows_its_sessions():
    key = sign("sign-in", RUN, "", 101.0, SECRET)
    session, _ = Door(RUN, SECRET, 100.0).session(key, 101.0)
    anew = Door(RUN, SECRET, 102.0)
    with pytest.raises(InvalidInput, match="used already"):
        anew.session(key, 103.0)
    assert anew.claims(session, 103.0) is not None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda k: k[:-2],
        lambda k: "x" + k,
        lambda k: k.replace(".", "!"),
        lambda k: "",
        lambda k: "a.b",
        lambda k: k + "ä",
    ],
)
def test_what_the_secret_did_not_sign_is_nothing(spoil):
    assert verify(spoil(sign("session", RUN, "", 100.0, SECRET)), "session", RUN, 101.0, SECRET) is None


def test_a_key_is_of_one_kind_one_run_one_secret_and_not_for_ever():
    key = sign("sign-in", RUN, "", 100.0, SECRET)
    assert verify(key, "sign-in", RUN, 101.0, SECRET) is not None
    assert verify(key, "session", RUN, 101.0, SECRET) is None
    assert verify(key, "sign-in", "other", 101.0, SECRET) is None
    assert verify(key, "sign-in", RUN, 101.0, b"t" * 32) is None
    assert verify(key, "sign-in", RUN, 100.0 + SIGN_IN_S, SECRET) is None
    assert verify(key, "sign-in", RUN, 90.0, SECRET) is None, "signed in the future"


def test_the_secret_is_its_owners_only_and_stays(folder):
    secret = secret_of(folder.keys)
    assert secret_of(folder.keys) == secret and len(secret) > 32
    assert (folder.keys / "explorer.key").stat().st_mode & 0o077 == 0


async def test_nothing_is_answered_without_a_session(serving):
    async with serving() as (browser, _):
        for path in (
            "lanes",
            "age",
            "sample?sample=x",
            "tokens?sample=x",
            "export/rows.jsonl",
            "live",
            "backlogs",
            "choices",
            "nonsense",
        ):
            async with browser.get(f"/api/{path}") as response:
                assert response.status == 401, path
        async with browser.get("/api/session") as response:
            assert await response.json() is None
        async with browser.get("/age") as response:
            assert response.status == 200, "the page itself says how to sign in"


async def test_a_session_sees_its_tenants_rows_only(serving):
    async with serving() as (browser, key):
        async with browser.post("/api/session", json={"key": key("nobody")}) as response:
            assert response.status == 200 and (await response.json())["is_operator"] is False
            cookie = response.headers["Set-Cookie"]
            assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        async with browser.get("/api/rows", params={"tenant": "default"}) as response:
            assert (await response.json())["rows"] == []
        for path in ("/api/sample", "/api/tokens"):
            async with browser.get(path, params={"sample": "g000000-e0-a1"}) as response:
                assert response.status == 404
        await (await browser.delete("/api/session")).read()
        async with browser.get("/api/rows") as response:
            assert response.status == 401
        async with browser.post("/api/session", json={"key": key()}):
            pass
        async with browser.get("/api/rows") as response:
            assert len((await response.json())["rows"]) == 10
        async with browser.get("/api/export/rows.jsonl") as response:
            assert (
                len((await response.text()).splitlines()) == 10
                and "attachment" in response.headers["Content-Disposition"]
            )


async def test_every_answer_forbids_foreign_and_inline_scripts(serving):
    async with serving() as (browser, key):
        async with browser.post("/api/session", json={"key": key()}):
            pass
        for path in (
            "/",
            "/lanes",
            "/static/main.js",
            "/static/../server.py",
            "/api/age",
            "/api/nonsense",
            "/static/nonsense",
        ):
            async with browser.get(path) as response:
                policy = response.headers["Content-Security-Policy"]
                assert "default-src 'self'" in policy and "unsafe" not in policy, path
                assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_page_of_elsewhere_that_asks_under_its_own_name_is_refused(serving):
    """DNS rebinding: the browser believes the name, the address is ours."""
    async with serving() as (browser, _), browser.get("/api/about", headers={"Host": "evil.example:80"}) as response:
        assert response.status == 403


@pytest.mark.parametrize(
    ("bound", "further", "allowed", "refused"),
    [
        ("127.0.0.1", [], ["127.0.0.1:80", "localhost", "LOCALHOST:1", "[::1]:80", "[::1]"],
         ["", ":80", "10.0.0.5:80", "evil.example", "0.0.0.0:80"]),
        ("gpu-box", [], ["gpu-box:80", "GPU-Box", "gpu-box.:80", "127.0.0.1"], ["gpu-box.evil.example:80", "10.0.0.5"]),
        ("10.0.0.5", ["runs.example.org"], ["10.0.0.5:80", "runs.example.org", "Runs.Example.Org:443"], ["10.0.0.6", "org", "evil.runs.example.org"]),
        ("0.0.0.0", [], ["10.0.0.5:80", "[fd00::5]:80", socket.gethostname(), "127.0.0.1"],
         ["evil.example:80", "10.0.0.5.evil.example", "10.0.0", "1"]),
        ("::", ["runs.example.org"], ["[fd00::5]", "10.0.0.5", "runs.example.org:80"], ["evil.example", "0x7f.1:80"]),
    ],
)  # fmt: skip
def test_names_that_are_ours_are_answered_and_no_others(bound, further, allowed, refused):
    """DNS rebinding needs a name of somebody else's; an address in figures, or a name that is listed, is none."""
    hosts = Hosts(bound, further)
    assert [name for name in allowed if not hosts.allow(name)] == [] == [name for name in refused if hosts.allow(name)]


async def test_behind_an_ingress_the_explorer_answers_to_its_name(whole, folder, clock):
    settings = config()
    settings = msgspec.structs.replace(
        settings, ledger=msgspec.structs.replace(settings.ledger, explorer_hosts=["runs.example.org"])
    )
    explorer = ExplorerServer(whole, folder, settings, clock)
    address = await explorer.start("127.0.0.1:0")
    try:
        async with aiohttp.ClientSession(f"http://{address}") as browser:
            for name, status in (("runs.example.org", 200), ("evil.example", 403)):
                async with browser.get("/api/about", headers={"Host": name}) as response:
                    assert response.status == status
    finally:
        await explorer.stop()


@pytest.mark.parametrize("name", ["http://runs.example.org", "runs.example.org:443", "[::1]", "", "a b", "*"])
def test_a_host_that_is_no_name_is_refused_when_the_configuration_is_read(name):
    with pytest.raises(ConfigError, match="explorer_hosts"):
        parse({"ledger": {"explorer_hosts": [name]}}, "test")


@pytest.mark.parametrize(
    "path",
    [
        "%2e%2e/server.py",
        "..%2f..%2f__init__.py",
        "/etc/passwd",
        "vendor/VENDORED.md",
        "",
        "%00.js",
        "a" * 300,
        "%ff.js",
        "main.js/x.js",
    ],
)
async def test_only_pages_are_served(serving, path):
    async with serving() as (browser, _), browser.get(f"/static/{path}") as response:
        assert response.status == 404


async def test_wrong_questions_are_answered_in_words(serving):
    async with serving() as (browser, key):
        for body, status in (({"key": "x"}, 400), ({"nokey": 1}, 400), ([], 400), ({"key": "x" * 9000}, 413)):
            async with browser.post("/api/session", json=body) as response:
                assert response.status == status and (await response.json())["error"]
        async with browser.post("/api/session", json={"key": key()}):
            pass
        for query in (
            "step=x",
            "step=1_0",
            "step=\u0663",
            "from=1_0.5",
            "from=\uff11",
            "limit=\u0663",
            "from=1e999",
            "from=nan",
            "after=1_0 g",
        ):
            async with browser.get("/api/rows", params=dict([query.split("=")])) as response:
                assert response.status == 400 and query in (await response.json())["error"], query
        async with browser.get("/api/sample?sample=g000000-e9-a1") as response:
            assert response.status == 404 and "g000000-e0-a1" in (await response.json())["error"], "what is near it"


@pytest.mark.parametrize(
    ("method", "path", "given", "status"),
    [
        ("GET", "/static/%00.js", {}, 404),
        ("POST", "/api/session", {"data": "[" * 4000, "headers": {"Content-Type": "application/json"}}, 400),
        ("POST", "/api/session", {"data": "{}", "headers": {"Content-Type": "application/json; charset=none"}}, 400),
        ("POST", "/api/session", {"data": b"\xff", "headers": {"Content-Type": "application/json"}}, 400),
        ("GET", "/api/rows?sample=%00", {}, 400),
        ("GET", "/api/rows?sample=%ff%ed%a0%80", {}, 200),
        ("DELETE", "/api/about", {}, 405),
    ],
)
async def test_what_makes_no_sense_is_answered_like_everything_else(serving, method, path, given, status):
    """E: JSON with words and the headers of every answer; never the framework's own page of an error."""
    async with serving() as (browser, key):
        async with browser.post("/api/session", json={"key": key()}):
            pass
        async with browser.request(method, path, **given) as response:
            assert response.status == status and isinstance(await response.json(), dict)
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers.get("Allow") == ("GET,HEAD" if status == 405 else None)


async def test_a_defect_is_logged_and_answered_like_everything_else(serving, monkeypatch, caplog):
    monkeypatch.setitem(module.ANSWERS, "age", lambda connection, scope: [][0])
    async with serving() as (browser, key):
        async with browser.post("/api/session", json={"key": key()}):
            pass
        async with browser.get("/api/age") as response:
            assert response.status == 500 and "log" in (await response.json())["error"]
            assert "default-src 'self'" in response.headers["Content-Security-Policy"]
    assert "IndexError" in caplog.text and "/api/age" in caplog.text


async def test_whoever_watches_is_told_of_news(serving, monkeypatch):
    monkeypatch.setattr(module, "LIVE_S", 0.01)
    async with serving() as (browser, key):
        async with browser.post("/api/session", json={"key": key()}):
            pass
        async with browser.get("/api/live") as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            assert (await response.content.readline()).startswith(b'data: {"facts"')
            await response.content.readline()
            assert await response.content.readline() == b": quiet\n"


@pytest.mark.parametrize(
    "address", ["", "9464", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:\u0669\u0669"]
)
async def test_an_address_that_is_none_is_said_with_what_one_is(address):
    listener = Listener(web.Application())
    with pytest.raises(ConfigError, match=r"an address is host:port"):
        await listener.start(address)
