"""What integration tests share: a run folder with keys and configuration, and a real nats-server on a free port."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from gyre.bus import Bus, NatsServer, declare_streams
from gyre.bus.access import authorization, make_keys, seed_path
from gyre.bus.server import free_port, wait_for_port
from gyre.config import Config, store
from gyre.config.load import parse
from gyre.rpc.auth import make_rpc_keys, read_key
from gyre.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent


class TestRun:
    """A run without its services: tests start those they are about, and speak for the others under their own identities."""

    __test__ = False

    def __init__(self, root: Path, settings: dict[str, Any] | None = None) -> None:
        """`settings`: nested dictionary as in TOML; model.path defaults to the run's model folder, traces are off."""
        data: dict[str, Any] = {
            "run": {"name": "t"},
            "model": {"path": str(root / "model")},
            "ledger": {"traces": False},
        }
        for section, values in (settings or {}).items():
            data[section] = {**data.get(section, {}), **values} if isinstance(values, dict) else values
        self.config: Config = parse(data, "test")
        self.folder = RunFolder(root)
        self.folder.make()
        store(self.config, self.folder.config_file)
        make_keys(self.folder.keys)
        make_rpc_keys(self.folder.keys)
        names = ["bus", "scheduler", "rollout", "gateway", "trajproc", "ledger"]
        names += [f"{kind}-{index}" for index in range(self.config.scheduler.cells) for kind in ("cell", "trainer")]
        self.folder.write_endpoints({name: f"127.0.0.1:{free_port()}" for name in names})
        self.nats = NatsServer(
            self.port("bus"), self.folder.nats, self.folder.logs / "nats.log", authorization(self.folder.keys)
        )
        self._buses: list[Bus] = []
        self._children: list[asyncio.subprocess.Process] = []

    def port(self, endpoint: str) -> int:
        return int(self.folder.endpoint(endpoint).rsplit(":", 1)[1])

    @property
    def service_key(self) -> str:
        return read_key(self.folder.keys, "service")

    @property
    def environment_key(self) -> str:
        return read_key(self.folder.keys, "environment")

    async def __aenter__(self) -> "TestRun":
        await self.nats.start()
        operator = await self.bus("operator")
        await declare_streams(operator.js)
        return self

    async def __aexit__(self, *_: object) -> None:
        for child in self._children:
            if child.returncode is None:
                child.kill()
                await child.wait()
        for bus in self._buses:
            await bus.close()
        await self.nats.stop()

    async def bus(self, identity: str) -> Bus:
        """A connection under one of gyre.bus.access.SPEAKS' identities."""
        bus = await Bus.connect(self.nats.url, self.config.run.name, identity, seed_path(self.folder.keys, identity))
        self._buses.append(bus)
        return bus

    async def start(
        self, module: str, *arguments: str, endpoint: str = "", wait_s: float = 60.0
    ) -> asyncio.subprocess.Process:
        """`python -m module --run … arguments` as a real process; waits until `endpoint` listens."""
        log = (self.folder.logs / f"{module}{''.join(arguments)}.log").open("ab")
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, "--run", str(self.folder.root), *arguments,
            cwd=ROOT, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        log.close()
        self._children.append(child)
        if endpoint:
            await wait_for_port(self.port(endpoint), wait_s, lambda: child.returncode is None)
        return child
