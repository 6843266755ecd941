"""Starts, watches and stops all processes of one run.

async with Supervisor(folder, config) as run:
    await run.failed()      # returns never; raises when a process cannot be kept running
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from typing import NoReturn, TextIO

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gyre.bus import Bus, NatsServer, declare_streams
from gyre.bus.access import authorization, make_keys, seed_path
from gyre.clock import fix_clock
from gyre.config import Config, fingerprint, store
from gyre.errors import EXIT_GAVE_UP, EXIT_USER_ERROR, ConfigError, GyreError, Unavailable
from gyre.rpc import open_channel
from gyre.rpc.auth import make_rpc_keys, read_key
from gyre.run_folder import RunFolder, lock_folder
from gyre.supervisor import ports
from gyre.supervisor.child import Child, ProcessFailed, die_with_parent
from gyre.supervisor.logs import keep_small
from gyre.supervisor.plan import endpoint_names, stages
from gyre.supervisor.restarts import RestartPolicy, restarts_max
from gyre.tasks import end, surely, whole

log = logging.getLogger(__name__)

HEALTHY_S = 180.0
"""Longest start of one service: on a busy machine importing torch four times takes half a minute."""
HEALTH_EVERY_S = 0.2
SLOW_STOP_S = 1.0
"""A stop that takes longer is said, so that nobody wonders what is being waited for."""


class Supervisor:
    """All processes of the run in `folder`."""

    def __init__(
        self, folder: RunFolder, config: Config, say: Callable[[str], None] = log.info, plan: Callable = stages,
    ) -> None:  # fmt: skip
        """`say` is told what is going on, a line at a time; `plan` says which processes there are, as `plan.stages` does."""
        self._plan = plan
        self.folder = folder
        self.config = config
        self._say = say
        self.bus: NatsServer | None = None
        self._stages: list[list[Child]] = []
        self._watches: list[asyncio.Task] = []
        self._healthy: set[str] = set()
        self._failure: asyncio.Future[NoReturn] | None = None
        self._lock: TextIO | None = None

    async def __aenter__(self) -> "Supervisor":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Everything is up when it returns; nothing is left running when it raises (Unavailable, ProcessFailed), or is cancelled at any moment."""
        await surely(self._start())

    async def _start(self) -> None:
        self._failure = asyncio.get_running_loop().create_future()
        folder, config = self.folder, self.config
        folder.make()
        self._lock = lock_folder(folder.root)
        self._refuse_other_run()
        fix_clock(folder.root)
        endpoints = ports.assign(endpoint_names(config), config.network.host, config.network.base_port)
        make_keys(folder.keys)
        make_rpc_keys(folder.keys)
        store(config, folder.config_file)
        folder.write_endpoints(endpoints)
        try:
            await self._start_bus(int(endpoints["bus"].rpartition(":")[2]))
            await self._start_children(endpoints)
        except BaseException:
            await self.stop()
            raise

    def _refuse_other_run(self) -> None:
        """A folder's checkpoints, books and bus belong to one configuration; with the same one the run goes on where it was."""
        if self.folder.config_file.exists():
            stored, mark = self.folder.config()
            if mark != fingerprint(self.config):
                raise ConfigError(
                    f"{self.folder.root} holds run `{stored.run.name}` of another configuration ({mark}, not "
                    f"{fingerprint(self.config)}); choose another --run-dir"
                )

    async def failed(self) -> NoReturn:
        """Waits until a process cannot be kept running. Raises ProcessFailed."""
        assert self._failure is not None
        return await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """The reverse order of the start; returns when nothing is left, also where it is cancelled."""
        await whole(self._stop())

    async def _stop(self) -> None:
        await end(*self._watches)
        self._watches.clear()
        while self._stages:
            await asyncio.gather(*(self._stop_child(child) for child in self._stages.pop()))
        if self.bus is not None:
            await self.bus.stop()
            self.bus = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._failure is not None and self._failure.done() and not self._failure.cancelled():
            self._failure.exception()

    async def _stop_child(self, child: Child) -> None:
        begun_s = asyncio.get_running_loop().time()
        await child.stop()
        if (took_s := asyncio.get_running_loop().time() - begun_s) > SLOW_STOP_S:
            self._say(f"{child.spec.name} took {took_s:.1f} s to stop")

    def children(self) -> dict[str, int]:
        """Name → process id of what runs, the bus included."""
        found = {
            child.spec.name: child.process.pid for stage in self._stages for child in stage if child.process is not None
        }
        if self.bus is not None and self.bus.process is not None:
            found["bus"] = self.bus.process.pid
        return found

    async def _start_bus(self, port: int) -> None:
        self._say("bus")
        rules = authorization(self.folder.keys, self.config.run.name)
        self.bus = NatsServer(port, self.folder.nats, self.folder.logs / "bus.log", rules, preexec_fn=die_with_parent)
        await self.bus.start()
        operator = await Bus.connect(
            self.bus.url, self.config.run.name, "operator", seed_path(self.folder.keys, "operator")
        )
        try:
            await declare_streams(operator.js)
        finally:
            await operator.close()
        self._watch(self._keep_bus(self.bus), "bus")
        self._watch(keep_small(self.folder.logs), "logs")

    async def _start_children(self, endpoints: dict[str, str]) -> None:
        environment_key = read_key(self.folder.keys, "environment")
        gateways = [address for name, address in endpoints.items() if name.partition("-")[0] == "rollout"]
        plan = self._plan(self.config, str(self.folder.root), sys.executable, ",".join(gateways), environment_key)
        for stage in plan:
            children = [Child(process, self.folder.logs / f"{process.name}.log") for process in stage]
            self._stages.append(children)
            for child in children:
                self._say(child.spec.name)
                await child.start()
                self._watch(self._keep(child), child.spec.name)
        health = asyncio.gather(
            *(
                self._until_healthy(process.name, endpoints[process.endpoint])
                for stage in plan
                for process in stage
                if process.endpoint
            )
        )
        try:
            await asyncio.wait([health, self._failure], return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
            await health
        finally:
            await end(health)

    async def _until_healthy(self, name: str, address: str) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + HEALTHY_S
        async with open_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            while loop.time() < deadline_s:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=2)
                    if reply.status == health_pb2.HealthCheckResponse.SERVING:
                        self._healthy.add(name)
                        self._say(f"{name} is up")
                        return
                await asyncio.sleep(HEALTH_EVERY_S)
        raise Unavailable(
            f"{name} at {address} does not answer after {HEALTHY_S:g} s; see {self.folder.logs / name}.log"
        )

    def _watch(self, keep, name: str) -> None:
        self._watches.append(asyncio.create_task(keep, name=f"watch-{name}"))

    async def _keep(self, child: Child) -> None:
        """Start it again whenever it ends; the whole run fails when that happens too often, or at once for a user error at its start and for what
        gave up."""
        policy = RestartPolicy()
        while True:
            code = await child.wait()
            is_first_start = child.spec.endpoint != "" and child.spec.name not in self._healthy
            if (code == EXIT_GAVE_UP and not child.spec.attached_file) or (is_first_start and code == EXIT_USER_ERROR):
                return self._fail(child.failed(code))
            most = restarts_max(is_first_start, child.was_attached)
            delay_s = policy.after_death(asyncio.get_running_loop().time(), most)
            if delay_s is None:
                return self._fail(child.failed(code, f" for the {most + 1}. time in a minute"))
            self._say(f"{child.failed(code)}; starting it again in {delay_s:g} s")
            await asyncio.sleep(delay_s)
            try:
                await child.start()
            except (GyreError, OSError) as error:
                return self._fail(ProcessFailed(f"{child.spec.name} cannot be started again: {error}"))

    async def _keep_bus(self, bus: NatsServer) -> None:
        policy = RestartPolicy()
        while True:
            code = await bus.process.wait()
            delay_s = policy.after_death(asyncio.get_running_loop().time())
            if delay_s is None:
                return self._fail(ProcessFailed(f"the bus ended again and again, last with {code}"))
            self._say(f"the bus ended with {code}; starting it again")
            await asyncio.sleep(delay_s)
            try:
                await bus.start()
            except Unavailable as error:
                self._say(f"the bus did not come back: {error}")

    def _fail(self, error: ProcessFailed) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
