"""What integration tests share: a run folder with keys and configuration, a real nats-server, and one way to wait.

A test waits for what it asserts (`found = await run.until(lambda: run.of(BatchClosed))`), and says that something has not happened only where what it
waited for implies it. WAIT_S is no measure of speed: it ends a test that would wait for ever.
"""

import asyncio
import contextlib
import inspect
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gyre.bus import Bus, NatsServer, declare_streams
from gyre.bus.access import authorization, make_keys, seed_path
from gyre.bus.server import BLOCK_PORTS, FREE_PORTS, free_port, wait_for_port
from gyre.bus.subjects import natural_key
from gyre.config import Config, store
from gyre.config.load import parse
from gyre.records import Fact
from gyre.rpc.auth import make_rpc_keys, read_key
from gyre.run_folder import RunFolder
from gyre.tasks import end
from tests import lived

ROOT = Path(__file__).resolve().parent.parent
WAIT_S = 180.0
"""For what takes seconds on two quiet cores and a minute or two on busy ones."""
POLL_S = 0.02
STOPPED = (None, 0, -9, -15)
"""How a process of a test may stand: it runs, ended in order, or was killed or told to stop by the test."""


async def until(what: Callable[[], Any], wait_s: float = WAIT_S, told: Callable[[], str] = str) -> Any:
    """The first true value of `what`, a function that may be async; fails with `told()` when `wait_s` pass without one."""
    deadline_s = time.monotonic() + wait_s
    while True:
        found = what()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {wait_s:g} s: {_source(what)}; now {found!r:.500}\n{told()}")
        await asyncio.sleep(POLL_S)


def _source(what: Callable[[], Any]) -> str:
    with contextlib.suppress(OSError, TypeError):
        return " ".join(inspect.getsource(what).split())[:500]
    return repr(what)


def until_gone(running: Callable[[], Any], wait_s: float = WAIT_S) -> None:
    """Returns once `running` is empty: what was killed is listed until the kernel has got round to it. Not for a running event loop."""
    deadline_s = time.monotonic() + wait_s
    while left := running():
        assert time.monotonic() < deadline_s, f"still running: {left}"
        time.sleep(POLL_S)


@contextlib.contextmanager
def taken_port(before: int) -> Iterator[int]:
    """A port that something listens on, while the `before` ports in front of it are free, and are given to nobody meanwhile."""
    while True:
        port = free_port()
        if (port - FREE_PORTS.start) % BLOCK_PORTS < before:
            continue  # those in front of it may be another process's
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for offset in range(1, before + 1):
                with socket.socket() as listener:
                    listener.bind(("127.0.0.1", port - offset))
            taken = held.enter_context(socket.socket())
            taken.bind(("127.0.0.1", port))
            taken.listen()
            yield port
            return


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
        names = ["bus", "scheduler", "rollout", "gateway", "trajproc", "ledger", "otlp"]
        names += [f"{kind}-{index}" for index in range(self.config.scheduler.cells) for kind in ("cell", "trainer")]
        self.folder.write_endpoints({name: f"127.0.0.1:{free_port()}" for name in names})
        self.nats = NatsServer(
            self.port("bus"), self.folder.nats, self.folder.logs / "nats.log", authorization(self.folder.keys)
        )
        self.facts: list[Fact] = []
        """What `listen` has heard, in stream order."""
        self._buses: list[Bus] = []
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._listening: list[asyncio.Task] = []
        self._kinds: tuple[type, ...] = ()
        self._sequence = 0

    def port(self, endpoint: str) -> int:
        return int(self.folder.endpoint(endpoint).rsplit(":", 1)[1])

    @property
    def service_key(self) -> str:
        return read_key(self.folder.keys, "service")

    @property
    def environment_key(self) -> str:
        return read_key(self.folder.keys, "environment")

    async def __aenter__(self) -> "TestRun":
        lived.add(self)
        await self.nats.start()
        try:
            self.operator = await self.bus("operator")
            await declare_streams(self.operator.js)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await end(*self._listening)
        for child in self._children.values():
            if child.returncode is None:
                child.kill()
                await child.wait()
        for bus in self._buses:
            await bus.close()
        await self.nats.stop()
        lived.remove(self)

    async def bus(self, identity: str) -> Bus:
        """A connection under one of gyre.bus.access.SPEAKS' identities."""
        bus = await Bus.connect(self.nats.url, self.config.run.name, identity, seed_path(self.folder.keys, identity))
        self._buses.append(bus)
        return bus

    async def start(
        self, module: str, *arguments: str, endpoint: str = "", wait_s: float = 300.0
    ) -> asyncio.subprocess.Process:
        """`python -m module --run … arguments` as a real process; waits until `endpoint` listens."""
        name = f"{module}{''.join(arguments)}"
        log = (self.folder.logs / f"{name}.log").open("ab")
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, "--run", str(self.folder.root), *arguments,
            cwd=ROOT, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        log.close()
        self._children[f"{name} {child.pid}"] = child
        if endpoint:
            await wait_for_port(self.port(endpoint), wait_s, lambda: child.returncode is None)
        return child

    def listen(self, kinds: Sequence[type]) -> None:
        """Once: from now on every fact of these kinds comes to `facts`, from the run's first, in stream order."""
        self._kinds = tuple(kinds)

        async def follow() -> None:
            async for fact, delivery in self.operator.follow(self._kinds):
                self.facts.append(fact)
                self._sequence = delivery.sequence

        self._listening.append(asyncio.create_task(follow()))

    def of(self, kind: type, **fields: Any) -> list[Any]:
        """Facts of one kind so far whose fields have these values."""
        return [
            fact for fact in self.facts
            if isinstance(fact, kind) and all(getattr(fact, name) == value for name, value in fields.items())
        ]  # fmt: skip

    async def heard_all(self) -> None:
        """Returns once everything that was stored by now is among `facts`: what is not there then has not been said."""
        newest = await self.operator.last_sequence(self._kinds)
        await self.until(lambda: self._sequence >= newest)

    async def until(self, what: Callable[[], Any], wait_s: float = WAIT_S) -> Any:
        """As `until`; fails at once when a process of the run ended by itself with an error, or nobody listens any more."""

        def looked() -> Any:
            for task in self._listening:
                if task.done():
                    task.result()
            for name, child in self._children.items():
                assert child.returncode in STOPPED, f"{name} ended with {child.returncode}"
            return what()

        looked.__wrapped__ = what
        return await until(looked, wait_s, self.heard)

    def heard(self) -> str:
        """Names of the newest facts."""
        return f"{len(self.facts)} facts, the newest: {[natural_key(fact) for fact in self.facts[-30:]]}"

    def told(self) -> Iterator[tuple[str, str]]:
        """(title, text) about the run, for whoever looks why a test failed."""
        yield f"facts of {self.folder.root}", self.heard()
        ended = {name: child.returncode for name, child in self._children.items() if child.returncode is not None}
        yield f"ended processes of {self.folder.root}", str(ended)
        yield from lived.logs(self.folder.logs)
