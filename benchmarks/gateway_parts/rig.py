"""A run for a benchmark: a real bus, a real gateway, cells, no other service; executions are leased by a fact of their own."""

import asyncio
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from examples.repair.model import make_model
from gyre import key_files
from gyre.bus import Bus, NatsServer, declare_streams
from gyre.bus.access import authorization, make_keys, seed_path
from gyre.bus.server import free_port, wait_for_port
from gyre.config import Config, store
from gyre.config.load import parse
from gyre.ids import execution_id, group_id
from gyre.records import ExecutionLeased, RoleChanged
from gyre.rpc.auth import make_rpc_keys, read_key
from gyre.run_folder import RunFolder
from services.rollout.core.keys import Claims, sign
from services.rollout.gateway.app import SECRET_NAME

ROOT = Path(__file__).resolve().parents[2]
START_S = 120.0
CONTEXT_MAX = 131_072
WORDS = [
    f"{a}{b}"
    for a in ("stone", "river", "cloud", "light", "paper", "green")
    for b in ("s", "ed", "ing", "er", "ly", "ness", "work")
]


def words(count: int, seed: int) -> str:
    """Text of that many words, each a token of the rig's tokenizer, give or take."""
    return " ".join(random.Random(seed).choices(WORDS, k=count))


class Rig:
    """`async with Rig(folder)`: the bus is up; start what the measurement needs."""

    def __init__(self, root: Path, rollout: dict[str, Any] | None = None, layers: int = 1, hidden: int = 64) -> None:
        root.mkdir(parents=True, exist_ok=True)
        texts = (words(400, seed) for seed in range(200))
        make_model(str(root / "model"), 1, texts, layers=layers, hidden=hidden)
        settings = {"context_max": CONTEXT_MAX, "role_default": "main", "slots": 64, **(rollout or {})}
        self.config: Config = parse(
            {"run": {"name": "bench"}, "model": {"path": str(root / "model")}, "ledger": {"traces": False},
             "scheduler": {"cells": 1}, "rollout": settings}, "bench",
        )  # fmt: skip
        self.folder = RunFolder(root)
        self.folder.make()
        store(self.config, self.folder.config_file)
        make_keys(self.folder.keys)
        make_rpc_keys(self.folder.keys)
        names = ("bus", "rollout", "gateway", "cell-0")
        self.folder.write_endpoints({name: f"127.0.0.1:{free_port()}" for name in names})
        self._nats = NatsServer(
            self._port("bus"), self.folder.nats, self.folder.logs / "nats.log", authorization(self.folder.keys)
        )
        self._secret = key_files.keep(self.folder.keys / SECRET_NAME)
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._buses: list[Bus] = []

    async def __aenter__(self) -> "Rig":
        await self._nats.start()
        await declare_streams((await self.bus("operator")).js)
        return self

    async def __aexit__(self, *_: object) -> None:
        for child in self._children.values():
            if child.returncode is None:
                child.kill()
                await child.wait()
        for bus in self._buses:
            await bus.close()
        await self._nats.stop()

    async def bus(self, identity: str) -> Bus:
        seed = seed_path(self.folder.keys, identity)
        self._buses.append(made := await Bus.connect(self._nats.url, self.config.run.name, identity, seed))
        return made

    @property
    def service_key(self) -> str:
        return read_key(self.folder.keys, "service")

    def url(self, endpoint: str = "gateway") -> str:
        return f"http://{self.folder.endpoint(endpoint)}"

    async def start(self, module: str, *arguments: str, endpoint: str, **variables: str) -> None:
        """`python -m module --run …`; returns when `endpoint` answers."""
        with (self.folder.logs / f"{endpoint}.log").open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, "--run", str(self.folder.root), *arguments, cwd=ROOT, stdout=log, stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables},
            )  # fmt: skip
        self._children[endpoint] = child
        await wait_for_port(self._port(endpoint), START_S, lambda: child.returncode is None)

    async def start_serving(self, cell_module: str, **variables: str) -> None:
        """A cell that serves, and the gateway that knows it. Lease executions first: the gateway reads the facts when it starts."""
        await self.start(cell_module, "--cell", "0", endpoint="cell-0", **variables)
        await self.start("services.rollout", endpoint="rollout")
        for speaker, phase in (("scheduler", "requested"), ("trainer", "released")):
            change = RoleChanged(cell="cell-0", change=0, target="rollout", phase=phase, at_s=time.time())
            await (await self.bus(speaker)).publish(change)
        reader = await self.bus("operator")
        async with asyncio.timeout(START_S):
            async for fact, _ in reader.follow([RoleChanged]):
                if fact.phase == "serving":
                    return

    async def lease(self, count: int, first: int = 0) -> list[str]:
        """Keys of that many executions, on record as leased."""
        bus = await self.bus("gateway")
        names = [execution_id(group_id(index), 0) for index in range(first, first + count)]
        for name in names:
            leased = ExecutionLeased(
                execution_id=name, group_id=name.split("-")[0], attempt=1, holder="bench", at_s=time.time()
            )
            await bus.publish(leased)
        return [sign(self.claims(name), self._secret) for name in names]

    def claims(self, execution: str) -> Claims:
        return Claims(
            execution_id=execution, attempt=1, group_id=execution.split("-")[0], purpose="train", seed=1, temperature=1.0, top_p=1.0,
            turns_max=1_000_000, context_tokens_max=CONTEXT_MAX, output_tokens_max=100_000, task_type="bench",
        )  # fmt: skip

    def memory_bytes(self, endpoint: str) -> int:
        """Resident memory of the process that serves `endpoint`."""
        status = Path(f"/proc/{self._children[endpoint].pid}/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    def processor_s(self, endpoint: str) -> float:
        """Processor seconds the threads of the process have used, to the microsecond (the scheduler's own count)."""
        threads = Path(f"/proc/{self._children[endpoint].pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def _port(self, endpoint: str) -> int:
        return int(self.folder.endpoint(endpoint).rpartition(":")[2])
