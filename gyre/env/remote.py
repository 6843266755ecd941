"""A sandbox somewhere else, in the form that E2B and its kin have: created from a template, commands run in it, files read and written, paused and
resumed, killed. An interface, and its client over HTTP; a provider's own SDK is put behind the same interface in a few lines.

    async with SandboxHost(url, key) as host:
        sandbox = await host.create("python-3.12", lifetime_s=3600)
        done = await sandbox.run(["python", "-m", "pytest"], timeout_s=60)
        await sandbox.write("src/a.py", b"…")
        ordinal = await sandbox.snapshot()          # and later: await host.create(ordinal)
        await sandbox.kill()

    POST   /sandboxes                  {"template", "lifetime_s", "variables", "metadata"}  → 201 {"sandbox_id"}
    POST   /sandboxes/ID/commands      {"command", "cwd", "variables", "timeout_s"}         → 200 {"exit_code", "stdout", "stderr", "timed_out"}
    GET    /sandboxes/ID/files?path=   → 200 bytes
    PUT    /sandboxes/ID/files?path=   bytes → 204
    POST   /sandboxes/ID/snapshots     → 201 {"template"}, from which others are created
    POST   /sandboxes/ID/pause, /resume → 204
    DELETE /sandboxes/ID               → 204
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from gyre.errors import Conflict, GyreError, InvalidInput, NotFound, Overloaded, Unavailable

OUTPUT_BYTES_MAX = 1 << 20
"""Of each of a command's two outputs; the rest is cut, and said so by the host."""
FILE_BYTES_MAX = 64 << 20
GRACE_S = 10.0
"""What the host may take for a command beyond the command's own time."""
CREATE_S = 120.0
TRIES_MAX, TRY_WAIT_S = 4, 0.5
"""Of what changes nothing when it is done twice; a command is never sent twice."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False


class SandboxLost(Unavailable):
    """The sandbox is gone: killed, over its lifetime, its host lost. What was in it is lost, so `step` may raise Rollback."""

    code = "sandbox_lost"


class Sandbox(ABC):
    """One machine of an execution's own. Every method raises SandboxLost when it is gone, Unavailable when its host cannot be reached."""

    sandbox_id: str

    @abstractmethod
    async def run(
        self, command: Sequence[str], cwd: str = "", variables: dict[str, str] | None = None, timeout_s: float = 60.0
    ) -> Done:  # fmt: skip
        """Run it and wait. One that takes too long is ended there, and is `timed_out`."""

    @abstractmethod
    async def read(self, path: str) -> bytes:
        """Raises NotFound."""

    @abstractmethod
    async def write(self, path: str, data: bytes) -> None:
        """Folders on the way are made."""

    @abstractmethod
    async def snapshot(self) -> str:
        """Name of a template that is as it is now; it outlives the sandbox."""

    @abstractmethod
    async def pause(self) -> None:
        """Costs nothing from here on, keeps everything. Repeats change nothing."""

    @abstractmethod
    async def resume(self) -> None:
        """Repeats change nothing."""

    @abstractmethod
    async def kill(self) -> None:
        """It and what is in it is gone. Repeats change nothing."""


class SandboxHost:
    """A host of sandboxes over HTTP."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url.rstrip("/"), key
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "SandboxHost":
        self._http = aiohttp.ClientSession(
            headers={"authorization": f"Bearer {self._key}"}, connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),  # each request has its own: a command may run for an hour
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def create(
        self, template: str, lifetime_s: float, variables: dict[str, str] | None = None, metadata: dict[str, str] | None = None
    ) -> Sandbox:  # fmt: skip
        """From a template or a snapshot; it ends by itself after `lifetime_s`. `metadata` (execution, attempt) finds what was left behind.
        Raises NotFound (no such template), Overloaded, Unavailable."""
        said = {
            "template": template,
            "lifetime_s": lifetime_s,
            "variables": variables or {},
            "metadata": metadata or {},
        }
        made = await self.ask("POST", "/sandboxes", CREATE_S, json=said)
        return _Remote(self, made["sandbox_id"])

    async def ask(
        self, method: str, path: str, timeout_s: float, tries: int = 1, is_file: bool = False, **fields: Any
    ) -> Any:
        """The reply: JSON, bytes (of a file whatever it holds), or None where it is empty."""
        for left in reversed(range(tries)):
            try:
                async with asyncio.timeout(timeout_s), self._http.request(method, self._url + path, **fields) as reply:
                    if reply.status >= 400:
                        raise _refusal(reply.status, (await reply.text())[:500], path)
                    if reply.content_type == "application/json" and not is_file:
                        return await reply.json()
                    return await reply.read() or None
            except GyreError as error:  # first: some of ours are OSErrors, too
                if not left or isinstance(error, SandboxLost) or not isinstance(error, Unavailable):
                    raise
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                if not left:
                    raise Unavailable(
                        f"{self._url}{path} cannot be reached: {error or type(error).__name__}"
                    ) from error
            await asyncio.sleep(TRY_WAIT_S)


class _Remote(Sandbox):
    def __init__(self, host: SandboxHost, sandbox_id: str) -> None:
        self._host, self.sandbox_id = host, sandbox_id
        self._path = f"/sandboxes/{sandbox_id}"

    async def run(
        self, command: Sequence[str], cwd: str = "", variables: dict[str, str] | None = None, timeout_s: float = 60.0
    ) -> Done:  # fmt: skip
        said = {"command": list(command), "cwd": cwd, "variables": variables or {}, "timeout_s": timeout_s}
        reply = await self._host.ask("POST", f"{self._path}/commands", timeout_s + GRACE_S, json=said)
        try:
            return msgspec.convert(reply, Done)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"the host's word on a command is none: {error}") from error

    async def read(self, path: str) -> bytes:
        asked = self._host.ask("GET", f"{self._path}/files", CREATE_S, TRIES_MAX, is_file=True, params={"path": path})
        return await asked or b""

    async def write(self, path: str, data: bytes) -> None:
        if len(data) > FILE_BYTES_MAX:
            raise InvalidInput(f"{path} has {len(data)} bytes; at most {FILE_BYTES_MAX} are written")
        await self._host.ask("PUT", f"{self._path}/files", CREATE_S, TRIES_MAX, params={"path": path}, data=data)

    async def snapshot(self) -> str:
        return (await self._host.ask("POST", f"{self._path}/snapshots", CREATE_S))["template"]

    async def pause(self) -> None:
        await self._host.ask("POST", f"{self._path}/pause", CREATE_S, TRIES_MAX)

    async def resume(self) -> None:
        await self._host.ask("POST", f"{self._path}/resume", CREATE_S, TRIES_MAX)

    async def kill(self) -> None:
        with contextlib.suppress(SandboxLost):
            await self._host.ask("DELETE", self._path, CREATE_S, TRIES_MAX)


def _refusal(status: int, text: str, path: str) -> GyreError:
    """404 and 410 of a sandbox itself mean that it is gone; of a file or a template, that there is none."""
    if status == 410 or (status == 404 and path.count("/") >= 2 and not path.endswith("/files")):
        return SandboxLost(text or "the sandbox is gone")
    kinds = {404: NotFound, 409: Conflict, 429: Overloaded}
    return kinds.get(status, Unavailable if status >= 500 else InvalidInput)(text or f"the host answered {status}")
