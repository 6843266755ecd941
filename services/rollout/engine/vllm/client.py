"""HTTP over vLLM's unix socket. Every request has a time-out; whoever does not answer in it is `Silent`."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from gyre.errors import GyreError, Unavailable
from services.rollout.engine.vllm.wire import DONE, EXTERNAL, Delta, parse

LINE_BYTES_MAX = 16 * 1024 * 1024


class Silent(Unavailable):
    """vLLM is gone, or did not answer in time."""

    code = "vllm_silent"


class Refused(GyreError):
    """vLLM answered that it cannot."""

    code = "vllm_refused"

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.status = status


class VllmClient:
    """Used on one event loop."""

    def __init__(self, socket: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        # A kept connection is closed by vLLM after five idle seconds, and what is just being sent on it looks as if vLLM were gone.
        connector = aiohttp.UnixConnector(path=socket, limit=0, force_close=True)
        self._http = aiohttp.ClientSession("http://vllm", connector=connector, read_bufsize=LINE_BYTES_MAX)

    async def close(self) -> None:
        await self._http.close()

    async def generate(self, body: dict[str, Any]) -> AsyncIterator[Delta]:
        """Messages as they come, however long that takes: a call may stand still over a whole update. Raises Silent, Refused."""
        try:
            async with self._http.post(
                "/inference/v1/generate", json=body, timeout=aiohttp.ClientTimeout(total=None)
            ) as reply:
                if reply.status != 200:
                    raise Refused((await reply.text())[:2000], reply.status)
                async for line in reply.content:
                    data = line.decode().strip().removeprefix("data: ")
                    if data == DONE:
                        return
                    if data:
                        yield parse(data)
        except (aiohttp.ClientError, OSError) as error:
            raise Silent(f"{type(error).__name__}: {error}") from error
        raise Silent("the stream ended in the middle")

    async def abort(self, names: list[str]) -> None:
        """Their streams end with `abort` and the spans of what they have."""
        await self._ask("POST", "/inference/v1/abort_requests", {"request_ids": [EXTERNAL + name for name in names]})

    async def healthy(self) -> bool:
        try:
            await self._ask("GET", "/health", timeout_s=5.0)
        except (Silent, Refused):
            return False
        return True

    async def pause(self) -> None:
        await self._ask("POST", "/pause?mode=keep")

    async def open_update(self) -> None:
        await self._ask("POST", "/start_weight_update")

    async def send_update(self, info: dict[str, Any]) -> None:
        await self._ask("POST", "/update_weights", {"update_info": info})

    async def close_update(self, version: int) -> None:
        await self._ask("POST", "/finish_weight_update", {"weight_version": str(version)})

    async def digest(self) -> str:
        """Of the weights that would serve; all workers must agree."""
        reply = await self._ask("POST", "/collective_rpc", {"method": "gyre_digest"})
        found = {worker["digest"] for worker in reply["results"]}
        if len(found) != 1:
            raise Refused(f"workers differ: {sorted(found)}")
        return found.pop()

    async def clear_cache(self) -> None:
        reply = await self._ask("POST", "/reset_prefix_cache?reset_running_requests=true")
        if not reply.get("success"):
            raise Refused("the prefix cache was not reset")

    async def resume(self) -> None:
        await self._ask("POST", "/resume")

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> Any:
        limit = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s)
        try:
            async with self._http.request(method, path, json=body, timeout=limit) as reply:
                text = await reply.text()
                if reply.status != 200:
                    raise Refused(f"{path}: {reply.status} {text[:2000]}", reply.status)
                return await reply.json() if "json" in reply.content_type and text else None
        except TimeoutError as error:
            raise Silent(f"{path}: no answer in {limit.total:g} s") from error
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise Silent(f"{path}: {type(error).__name__}: {error}") from error
