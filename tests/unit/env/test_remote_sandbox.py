"""The remote sandbox's interface against a fake server: folders and processes of this machine stand for sandboxes. No provider is tested."""

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gyre.env.remote import SandboxHost, SandboxLost
from gyre.errors import InvalidInput, NotFound, Overloaded


class FakeServer:
    """A fake of such a host; `fails` answers of 503 come first, `asked` is what was asked for."""

    def __init__(self, root: Path) -> None:
        self.root, self.fails, self.full = root, 0, False
        self.asked: list[str] = []
        self.paused: set[str] = set()
        (root / "empty").mkdir()

    @contextlib.asynccontextmanager
    async def served(self):
        app = web.Application(client_max_size=2**26, middlewares=[self._before])
        app.router.add_post("/sandboxes", self._create)
        app.router.add_post("/sandboxes/{id}/commands", self._run)
        app.router.add_get("/sandboxes/{id}/files", self._read)
        app.router.add_put("/sandboxes/{id}/files", self._write)
        app.router.add_post("/sandboxes/{id}/{word:snapshots|pause|resume}", self._word)
        app.router.add_delete("/sandboxes/{id}", self._kill)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with SandboxHost(f"http://127.0.0.1:{runner.addresses[0][1]}", "key") as host:
                yield host
        finally:
            await runner.cleanup()

    @web.middleware
    async def _before(self, request, handler):
        self.asked.append(f"{request.method} {request.path}")
        if request.headers.get("authorization") != "Bearer key":
            return web.Response(status=401)
        if self.fails:
            self.fails -= 1
            return web.Response(status=503, text="busy")
        name = request.match_info.get("id", "")
        if name and not (self.root / name).is_dir():
            return web.Response(status=410, text=f"{name} is gone")
        return await handler(request)

    async def _create(self, request):
        template = (await request.json())["template"]
        if self.full:
            return web.Response(status=429, text="no room")
        if not (self.root / template).is_dir():
            return web.Response(status=404, text=f"there is no template {template}")
        name = f"s{len(list(self.root.iterdir()))}"
        shutil.copytree(self.root / template, self.root / name)
        return web.json_response({"sandbox_id": name}, status=201)

    async def _run(self, request):
        said = await request.json()
        pipe = asyncio.subprocess.PIPE
        folder = self.root / request.match_info["id"] / said["cwd"]
        child = await asyncio.create_subprocess_exec(
            *said["command"], cwd=folder, env=said["variables"], stdout=pipe, stderr=pipe
        )
        try:
            out, errors = await asyncio.wait_for(child.communicate(), said["timeout_s"])
        except TimeoutError:
            child.kill()
            await child.wait()
            return web.json_response({"exit_code": -9, "timed_out": True})
        return web.json_response({"exit_code": child.returncode, "stdout": out.decode(), "stderr": errors.decode()})

    def _file(self, request) -> Path:
        return self.root / request.match_info["id"] / request.query["path"]

    async def _read(self, request):
        file = self._file(request)
        kind = "application/json" if file.suffix == ".json" else "application/octet-stream"
        return (
            web.Response(body=file.read_bytes(), content_type=kind)
            if file.is_file()
            else web.Response(status=404, text="no such file")
        )

    async def _write(self, request):
        self._file(request).parent.mkdir(parents=True, exist_ok=True)
        self._file(request).write_bytes(await request.read())
        return web.Response(status=204)

    async def _word(self, request):
        name, word = request.match_info["id"], request.match_info["word"]
        if word == "snapshots":
            template = f"snapshot-{len(self.asked)}"
            shutil.copytree(self.root / name, self.root / template)
            return web.json_response({"template": template}, status=201)
        (self.paused.add if word == "pause" else self.paused.discard)(name)
        return web.Response(status=204)

    async def _kill(self, request):
        shutil.rmtree(self.root / request.match_info["id"])
        return web.Response(status=204)


async def test_a_sandbox_is_made_worked_in_snapshotted_paused_and_killed_at_a_fake_server(tmp_path):
    """Its files are what commands see; a snapshot is a template that outlives it; killing twice changes nothing."""
    fake = FakeServer(tmp_path)
    async with fake.served() as host:
        one = await host.create("empty", lifetime_s=60, metadata={"execution": "g000001-e0"})
        await one.write("src/a.txt", b"hello \xff")
        assert await one.read("src/a.txt") == b"hello \xff" and await one.read("src/a.txt") == b"hello \xff"
        done = await one.run(["/bin/sh", "-c", "ls; echo $WORD >&2; exit 3"], cwd="src", variables={"WORD": "said"})
        assert (done.exit_code, done.stdout, done.stderr, done.timed_out) == (3, "a.txt\n", "said\n", False)
        assert (await one.run(["/bin/sleep", "60"], timeout_s=0.2)).timed_out
        template = await one.snapshot()
        await one.pause()
        assert fake.paused == {one.sandbox_id}
        await one.resume()
        await one.kill()
        await one.kill()
        two = await host.create(template, lifetime_s=60)
        assert await two.read("src/a.txt") == b"hello \xff" and two.sandbox_id != one.sandbox_id


async def test_what_is_gone_is_told_from_what_was_never_there_at_a_fake_server(tmp_path):
    fake = FakeServer(tmp_path)
    async with fake.served() as host:
        one = await host.create("empty", lifetime_s=60)
        with pytest.raises(NotFound, match="no such file"):
            await one.read("b.txt")
        with pytest.raises(NotFound, match="no template"):
            await host.create("none", lifetime_s=60)
        await one.kill()
        for lost in (
            lambda: one.run(["true"]),
            lambda: one.read("a"),
            lambda: one.write("a", b""),
            one.snapshot,
            one.resume,
        ):
            with pytest.raises(SandboxLost, match="is gone"):
                await lost()
        fake.full = True
        with pytest.raises(Overloaded, match="no room"):
            await host.create("empty", lifetime_s=60)
        with pytest.raises(InvalidInput, match="at most"):
            await one.write("a", bytes(2**26 + 1))


async def test_what_can_be_done_twice_is_tried_again_and_a_command_is_not_at_a_fake_server(tmp_path, monkeypatch):
    """Two answers of 503: a file is read at the third try; a command is sent once, since it may have run."""
    monkeypatch.setattr("gyre.env.remote.TRY_WAIT_S", 0.0)
    fake = FakeServer(tmp_path)
    async with fake.served() as host:
        one = await host.create("empty", lifetime_s=60)
        await one.write("a", b"x")
        fake.fails = 2
        assert await one.read("a") == b"x" and fake.asked[-3:] == [f"GET /sandboxes/{one.sandbox_id}/files"] * 3
        fake.fails = 1
        with pytest.raises(OSError, match="busy"):
            await one.run(["true"])
        assert fake.asked[-1] == f"POST /sandboxes/{one.sandbox_id}/commands" and fake.asked.count(fake.asked[-1]) == 1


async def test_a_file_is_its_bytes_whatever_the_host_takes_it_for(tmp_path):
    async with FakeServer(tmp_path).served() as host:
        one = await host.create("empty", lifetime_s=60)
        await one.write("a.json", b'{ "a": 1}')
        assert await one.read("a.json") == b'{ "a": 1}'


async def test_a_command_may_take_as_long_as_it_was_given(tmp_path, monkeypatch):
    """The client library's own bound is five minutes for everything."""
    monkeypatch.setattr(aiohttp.client, "DEFAULT_TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    async with FakeServer(tmp_path).served() as host:
        one = await host.create("empty", lifetime_s=60)
        done = await one.run(["python3", "-c", "import time; time.sleep(0.6)"], variables={"PATH": os.environ["PATH"]})
        assert done.exit_code == 0
