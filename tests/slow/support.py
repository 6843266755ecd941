"""A real `gyre train` on the repair example, small: started as a user starts it, watched over the bus, its processes killed by their ids."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args

import psutil

from gyre import records as r
from gyre.bus import Bus, NatsServer
from gyre.bus.access import authorization, seed_path
from gyre.bus.server import free_port
from gyre.bus.subjects import natural_key
from gyre.errors import GyreError
from gyre.ids import sample_id
from gyre.records import Fact
from gyre.rpc import open_channel
from gyre.rpc.auth import read_key
from gyre.run_folder import RunFolder
from gyre.tasks import end
from tests import lived
from tests.support import ROOT

CONFIG = ROOT / "examples" / "repair" / "train.toml"
SMALL = {
    "scheduler.groups_per_step": 4, "scheduler.group_size": 4, "scheduler.cell_capacity": 20, "rollout.slots": 20,
    # 4 groups of 4 executions of about 5 model calls
    "trajproc.turns_per_step": 80, "evaluation.tasks": 8,
}  # fmt: skip
"""Overrides that make a step take about two seconds on two cores."""
POLL_S = 0.01
_T = TypeVar("_T")


class Train:
    """One run: `async with Train(folder, model, {"run.steps": 8}) as run: …; summary = await run.finish(300)`."""

    def __init__(
        self, root: Path, model: Path, settings: dict[str, Any], config: Path = CONFIG, small: dict[str, Any] = SMALL
    ) -> None:
        self.folder = RunFolder(root)
        self.facts: list[Fact] = []
        """Every fact in stream order, from the first."""
        self._settings = {**small, "model.path": str(model), **settings}
        self._config = config
        self._log = root.with_suffix(".log")
        self._process: asyncio.subprocess.Process | None = None
        self._following: asyncio.Task | None = None

    async def __aenter__(self) -> "Train":
        words = [word for name, value in self._settings.items() for word in ("--set", f"{name}={_toml(value)}")]
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gyre.cli.main", "train", str(self._config), "--run-dir", str(self.folder.root), *words,
                cwd=ROOT, stdout=log, stderr=log,
            )  # fmt: skip
        lived.add(self)
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        lived.remove(self)
        await end(self._following)
        if self._process.returncode is None:
            # The supervisor stops everything in order, or its death takes everything along.
            self._process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 60)
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def of(self, kind: type[_T]) -> list[_T]:
        """Facts of one kind so far."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    async def until(self, holds: Callable[[], Any], wait_s: float, what: str) -> Any:
        """The first true value of `holds`; fails with the run's last words when it ended or `wait_s` passed."""
        deadline_s = time.monotonic() + wait_s
        while not (value := holds()):
            assert self._process.returncode is None, f"the run ended before {what}:\n{self.said()}"
            assert time.monotonic() < deadline_s, f"not within {wait_s:g} s: {what}\n{self.said()}"
            await asyncio.sleep(POLL_S)
        return value

    async def finish(self, wait_s: float) -> dict[str, Any]:
        """The summary of the run that has gone through (exit code 0); `facts` are all of its facts then."""
        code = await asyncio.wait_for(self._process.wait(), wait_s)
        assert code == 0, f"exit code {code}\n{self.said()}"
        await end(self._following)
        self.facts = await self._stored()
        return json.loads((self.folder.root / "summary.json").read_text())

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def pid(self, *words: str) -> int:
        """The process of this run in whose command line all `words` stand; 0 while there is none."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children():
                with contextlib.suppress(psutil.Error):
                    if set(words) <= {Path(word).name for word in child.cmdline()}:
                        return child.pid
        return 0

    def kill(self, *words: str) -> int:
        """kill -9; the id of what was killed."""
        pid = self.pid(*words)
        assert pid, f"no process {words}"
        os.kill(pid, signal.SIGKILL)
        return pid

    def channel(self, endpoint: str):
        """gRPC to one of the run's services, with the service key."""
        return open_channel(self.folder.endpoint(endpoint), read_key(self.folder.keys, "service"))

    def told(self) -> Iterator[tuple[str, str]]:
        """(title, text) about the run, for whoever looks why a test failed."""
        yield f"facts of {self.folder.root}", f"{len(self.facts)}: {[natural_key(fact) for fact in self.facts[-30:]]}"
        yield f"end of {self._log}", self.said()
        yield from lived.logs(self.folder.logs)

    @property
    def _name(self) -> str:
        return self._settings.get("run.name", self._config.parent.name)

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(GyreError, OSError):  # not up yet
                bus = await self._operator(f"nats://{self.folder.endpoint('bus')}")
                break
            await asyncio.sleep(0.2)
        try:
            async for fact, _ in bus.follow(get_args(Fact)):
                self.facts.append(fact)
        finally:
            await bus.close()

    async def _stored(self) -> list[Fact]:
        """Every fact, from the files of the bus, which is gone: whoever followed it may have missed its last words."""
        keys, log = self.folder.keys, self.folder.logs / "afterwards.log"
        server = NatsServer(free_port(), self.folder.nats, log, authorization(keys, self._name))
        await server.start()
        bus, facts = await self._operator(server.url), []
        newest = await bus.last_sequence(get_args(Fact))
        async for fact, delivery in bus.follow(get_args(Fact)):
            facts.append(fact)
            if delivery.sequence >= newest:
                break
        await bus.close()
        await server.stop()
        return facts

    async def _operator(self, url: str) -> Bus:
        return await Bus.connect(url, self._name, "operator", seed_path(self.folder.keys, "operator"))


def check_books(run: Train, summary: dict, steps: int) -> None:
    """Nothing lost, nothing twice: the summary, the ledger's audit, and the facts themselves."""
    assert all(summary["audit"].values()), summary["audit"]
    assert summary["steps"] == steps
    assert summary["dispatched"] == summary["trained"] + sum(summary["dropped"].values()) + summary["in_flight"]

    updates = run.of(r.StepUpdated)
    assert [fact.step for fact in updates] == list(range(steps))
    trained = Counter(name for fact in updates for name in fact.sample_ids)
    assert max(trained.values()) == 1
    assert len({name.rpartition("-a")[0] for name in trained}) == len(trained) == summary["trained"]
    batches = {fact.step: fact for fact in run.of(r.BatchClosed)}
    for fact in updates:
        assert sorted(fact.sample_ids) == sorted(batches[fact.step].sample_ids)
        assert sorted(fact.micro_cells) == sorted(batches[fact.step].micro_ids)

    groups = {fact.group_id for fact in run.of(r.GroupDispatched)}
    dispatched = [name for fact in run.of(r.GroupDispatched) for name in fact.execution_ids]
    assert len(groups) == len(run.of(r.GroupDispatched)) and len(set(dispatched)) == len(dispatched)
    ended = {sample_id(fact.execution_id, fact.attempt): fact for fact in run.of(r.ExecutionEnded)}
    calls = {fact.call_id: sample_id(fact.execution_id, fact.attempt) for fact in run.of(r.CallRecorded)}
    assert sum(fact.turns for fact in ended.values()) == sum(sample in ended for sample in calls.values())
    assert summary["turns"] == sum(fact.turns for fact in ended.values())


def _toml(value: Any) -> str:
    """As `--set` takes it: TOML, or text as it stands."""
    return str(value).lower() if isinstance(value, bool) else str(value)
