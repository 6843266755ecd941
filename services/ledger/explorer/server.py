"""HTTP side of the explorer: sign-in, answers as JSON, static pages. Loopback unless `network.host` says otherwise, as everything else.

| answer | when |
|---|---|
| 400, 404 | a filter that is none, a sample that is not there (or another tenant's); `error` says what to do |
| 401 | no session: sign in with a key of `gyre explorer` |
| 403 | the Host header names another machine (hosts.py): a page of somewhere else would be asking (DNS rebinding) |
| 405 | a method that is not for this address; `Allow` names those that are |
| 500 | a defect, or a tree that cannot be read; the log says more |
| 503 | the books cannot be read now |

No answer carries anything to be executed: JSON, and pages whose content security policy allows scripts and styles of this server only, none inline.
"""

import asyncio
import contextlib
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from aiohttp import web

from gyre.clock import Clock
from gyre.config import Config
from gyre.errors import GyreError, InvalidInput, NotFound, Unavailable
from gyre.rpc.signin import EVERYBODY, SESSION_S, Claims, Door, secret_of
from gyre.run_folder import RunFolder
from services.ledger.core.tables import INTAKE
from services.ledger.explorer.answers import ANSWERS, export
from services.ledger.explorer.answers.sample import owned
from services.ledger.explorer.answers.tokens import Trees
from services.ledger.explorer.hosts import Hosts
from services.ledger.explorer.scope import Scope, scope_of
from services.ledger.listening import Listener
from services.ledger.storage import Database

log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
PAGES = ("", "age", "lanes", "origin", "sample", "lineage", "drops", "pressure", "rows")
LIVE_S = 1.0
"""How often a page that watches is told whether there is news."""
ANSWERS_AT_ONCE = 2
"""Threads that read for pages: the books go first."""
KEPT = 48
"""Answers that are kept until the books say something new."""
KEY_BYTES_MAX = 4096
SECURITY = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
_OPEN = ("/api/about", "/api/session")
CLAIMS: web.RequestKey[Claims] = web.RequestKey("claims", Claims)


class ExplorerServer(Listener):
    """Serves one run's explorer. `start`, then `stop`."""

    what = "the trace explorer"

    def __init__(
        self,
        database: Database,
        folder: RunFolder,
        config: Config,
        clock: Clock,
        backlogs: Callable[[], Awaitable[Any]] | None = None,
    ):
        """`backlogs` tells what waits on the bus now; absent when the run is over."""
        self._database, self._folder, self._config, self._clock, self._backlogs = (
            database,
            folder,
            config,
            clock,
            backlogs,
        )
        self._run = config.run.name
        self._door = Door(self._run, secret_of(folder.keys), clock.now_s())
        self._trees = Trees(folder, config.model.path)
        self._reading = asyncio.Semaphore(ANSWERS_AT_ONCE)
        self._kept: OrderedDict[tuple, bytes] = OrderedDict()
        self._cookie = "gyre_explorer"
        self._hosts = Hosts(config.network.host, config.ledger.explorer_hosts)
        app = web.Application(client_max_size=KEY_BYTES_MAX, middlewares=[self._guard])
        app.router.add_post("/api/session", self._sign_in)
        app.router.add_delete("/api/session", self._sign_out)
        app.router.add_get("/api/session", self._session)
        app.router.add_get("/api/about", self._about)
        app.router.add_get("/api/live", self._live)
        app.router.add_get("/api/tokens", self._tokens)
        app.router.add_get("/api/backlogs", self._waiting)
        app.router.add_get("/api/export/{name}", self._export)
        app.router.add_get("/api/{name}", self._answer)
        app.router.add_get("/static/{path:.+}", self._static)
        for page in PAGES:
            app.router.add_get(f"/{page}", self._page)
        super().__init__(app)

    async def start(self, address: str) -> str:
        bound = await super().start(address)
        # cookies do not know ports: explorers of several runs on one machine must not sign each other out
        self._cookie = f"gyre_explorer_{bound.rpartition(':')[2]}"
        return bound

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Headers on everything, sessions before every answer, errors as JSON."""
        try:
            response = await self._checked(request, handler)
        except web.HTTPException as error:
            response = _said(error.status, error.reason)
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
        except (InvalidInput, NotFound) as error:
            response = _said(404 if isinstance(error, NotFound) else 400, str(error))
        except (Unavailable, sa.exc.DBAPIError) as error:
            response = _said(503, f"the books cannot be read now: {error}"[:500])
        except GyreError as error:
            response = _said(500, str(error)[:500])
        except Exception:
            log.exception("%s %s was not answered", request.method, request.rel_url.raw_path[:200])
            response = _said(500, "this was not answered; the ledger's log says why")
        if not response.prepared:
            response.headers.update(SECURITY)
        return response

    async def _checked(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not self._hosts.allow(request.headers.get("Host", "")):
            return _said(
                403, "the explorer answers to its own address only; `ledger.explorer_hosts` lists further names of it"
            )
        if request.path.startswith("/api/") and request.method != "POST" and request.path not in _OPEN:
            claims = self._door.claims(request.cookies.get(self._cookie, ""), self._clock.now_s())
            if claims is None:
                return _said(401, "sign in with a key of `gyre explorer`")
            request[CLAIMS] = claims
        return await handler(request)

    def _scope(self, request: web.Request) -> Scope:
        return scope_of(request.query, self._run, self._config, request[CLAIMS].tenant)

    async def _sign_in(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            raise InvalidInput('a sign-in is JSON: {"key": …}')
        try:
            key = str((await request.json())["key"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise InvalidInput('a sign-in is JSON: {"key": …}') from error
        session, claims = self._door.session(key, self._clock.now_s())
        response = web.json_response(self._who(claims))
        response.set_cookie(self._cookie, session, max_age=int(SESSION_S), httponly=True, samesite="Strict")
        return response

    async def _sign_out(self, _request: web.Request) -> web.Response:
        response = web.json_response({})
        response.del_cookie(self._cookie, httponly=True, samesite="Strict")
        return response

    async def _session(self, request: web.Request) -> web.Response:
        """Who is signed in; null where nobody is, which is no error."""
        claims = self._door.claims(request.cookies.get(self._cookie, ""), self._clock.now_s())
        return web.json_response(claims and self._who(claims))

    async def _about(self, _request: web.Request) -> web.Response:
        """Whose explorer this is, for `gyre explorer` on the same machine: no session needed."""
        return web.json_response({"explorer": self._run, "folder": str(self._folder.root)})

    def _who(self, claims: Claims) -> dict[str, Any]:
        return {
            "run": self._run, "tenant": claims.tenant, "is_operator": claims.tenant == EVERYBODY, "is_live": self._backlogs is not None,
            "age_cap": self._config.trajproc.age_steps_max,
        }  # fmt: skip

    async def _answer(self, request: web.Request) -> web.Response:
        question = ANSWERS.get(request.match_info["name"])
        if question is None:
            raise NotFound(f"no answer named {request.match_info['name'][:40]}; any of {', '.join(ANSWERS)}")
        return _json(
            await self._asked(question, self._scope(request), request.query_string, request.match_info["name"])
        )

    async def _asked(self, question: Callable, scope: Scope, address: str, name: str) -> bytes:
        """Encoded answer; the same question again is answered from memory for as long as the books hold nothing new."""
        async with self._reading:
            news = await asyncio.to_thread(self._told)
            key = (name, address, scope.tenant, scope.is_operator, news)
            if key not in self._kept:
                self._kept[key] = await asyncio.to_thread(self._read, question, scope)
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def _read(self, question: Callable, scope: Scope) -> bytes:
        with self._database.read() as connection:
            return msgspec.json.encode(question(connection, scope))

    def _told(self) -> tuple[int, int]:
        """Facts and spans in the books."""
        with self._database.read() as connection:
            found = connection.execute(
                sa.select(INTAKE.c.facts, INTAKE.c.spans).where(INTAKE.c.run == self._run)
            ).first()
        return (found[0], found[1]) if found else (0, 0)

    async def _tokens(self, request: web.Request) -> web.Response:
        scope = self._scope(request)
        await asyncio.to_thread(self._owned, scope)
        return _json(msgspec.json.encode(await self._trees.tokens(scope.sample)))

    def _owned(self, scope: Scope) -> None:
        with self._database.read() as connection:
            owned(connection, scope)

    async def _waiting(self, request: web.Request) -> web.Response:
        """What waits on the bus now: all tenants' together, so for operators only."""
        is_asked = self._backlogs is not None and request[CLAIMS].tenant == EVERYBODY
        return web.json_response({"streams": await self._backlogs() if is_asked else None})

    async def _export(self, request: web.Request) -> web.StreamResponse:
        scope, name = self._scope(request), request.match_info["name"]
        if name not in export.FORMATS:
            raise NotFound(f"no export named {name[:40]}; any of {', '.join(export.FORMATS)}")
        make, kind = export.FORMATS[name]
        body = await asyncio.to_thread(self._exported, make, scope)
        return web.Response(
            body=body, content_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )

    def _exported(self, make: Callable, scope: Scope) -> bytes:
        with self._database.read() as connection:
            return make(connection, scope)

    async def _live(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: a line whenever the books hold something new, a comment otherwise, for as long as the session lasts."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **SECURITY})
        await response.prepare(request)
        told: tuple[int, int] | None = None
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while self._door.claims(request.cookies.get(self._cookie, ""), self._clock.now_s()) is not None:
                try:
                    news = await asyncio.to_thread(self._told)
                except sa.exc.DBAPIError:
                    news = told or (0, 0)
                line = (
                    f"data: {json.dumps({'facts': news[0], 'spans': news[1]})}\n\n" if news != told else ": quiet\n\n"
                )
                await response.write(line.encode())
                told = news
                await asyncio.sleep(LIVE_S)
        return response

    async def _page(self, _request: web.Request) -> web.StreamResponse:
        return _file("index.html")

    async def _static(self, request: web.Request) -> web.StreamResponse:
        return _file(request.match_info["path"])


def _file(name: str) -> web.Response:
    """A file of static/, never one beside it."""
    try:
        path = (STATIC / name).resolve()
        is_there = path.is_relative_to(STATIC) and path.is_file() and path.suffix in TYPES
    except (ValueError, OSError):  # no name that a file could have: a NUL, too many letters
        is_there = False
    if not is_there:
        raise NotFound("no such file")
    return web.Response(body=path.read_bytes(), content_type=TYPES[path.suffix], charset="utf-8")


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _said(status: int, words: str) -> web.Response:
    return web.json_response({"error": words}, status=status)
