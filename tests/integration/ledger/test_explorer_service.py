"""The trace explorer in the ledger's process: found and opened as a user does, following facts as they come (E)."""

import asyncio
import json
import sys

import aiohttp

from gyre.bus.server import free_port
from gyre.cli.explorer import live_address
from tests.integration.ledger.test_ledger_service import SETTINGS, Asking, speak
from tests.support import ROOT, WAIT_S, TestRun
from tests.unit.ledger.ledger_history import history


async def link_of(run: TestRun) -> dict:
    """What `gyre explorer --json` says of a run that is up: it ends by itself then."""
    command = [sys.executable, "-m", "gyre.cli.main", "explorer", "--run", str(run.folder.root), "--json"]
    child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(child.communicate(), WAIT_S)
    assert child.returncode == 0
    return json.loads(out)


async def test_the_running_ledger_serves_the_explorer_and_tells_it_of_news(tmp_path):
    async with TestRun(tmp_path, SETTINGS) as run:
        endpoints = json.loads((run.folder.root / "endpoints.json").read_text())
        run.folder.write_endpoints(endpoints | {"explorer": f"127.0.0.1:{free_port()}"})
        await run.start("services.ledger", endpoint="explorer")
        async with Asking(run) as asking:
            await asking.intake(await speak(run, history()[:1]))
            found = await link_of(run)
            assert found["is_live"] and found["address"] == await asyncio.to_thread(live_address, run.folder)
            async with aiohttp.ClientSession(
                f"http://{found['address']}", cookie_jar=aiohttp.CookieJar(unsafe=True)
            ) as browser:
                async with browser.post("/api/session", json={"key": found["link"].partition("#key=")[2]}) as response:
                    assert (await response.json())["is_live"] is True
                async with browser.get("/api/rows") as response:
                    assert (await response.json())["rows"] == []
                async with browser.get("/api/live") as news:
                    before = await news.content.readline()
                    await asking.intake(await speak(run, history()[1:]))
                    async with asyncio.timeout(WAIT_S):
                        while not (line := await news.content.readline()).startswith(b"data:") or line == before:
                            pass
                async with browser.get("/api/rows") as response:
                    assert len((await response.json())["rows"]) == 10
                async with browser.get("/api/backlogs") as response:
                    streams = {one["stream"] for one in (await response.json())["streams"]}
                    assert {"GYRE_TASKS", "GYRE_MICRO"} <= streams
