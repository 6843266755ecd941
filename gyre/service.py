"""What every service's `__main__` does: arguments, logging, signals, one asyncio run, an error that reads well.

python -m services.scheduler --run runs/repair
"""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from gyre.bus import Bus
from gyre.bus.access import seed_path
from gyre.clock import Clock, clock_of_run
from gyre.config import Config
from gyre.errors import EXIT_GAVE_UP, EXIT_USER_ERROR, GaveUp, GyreError, InvariantBroken
from gyre.rpc.auth import ROLES, read_key
from gyre.rpc.server import REQUEST_BYTES_MAX, RpcServer
from gyre.run_folder import RunFolder
from gyre.tasks import end

log = logging.getLogger(__name__)


class Context:
    """What a service is given: its run, configuration, clock, and ways to speak."""

    def __init__(
        self, name: str, run: RunFolder, cell: int | None, arguments: argparse.Namespace | None = None
    ) -> None:
        self.name = name
        """Name of the process: `scheduler`, `cell-0`, `trainer-1` …"""
        self.arguments = arguments or argparse.Namespace()
        """The whole command line, for a service with options of its own."""
        self.cell = cell
        self.folder = run
        self.config: Config
        self.config, self.fingerprint = run.config()
        self.run: str = self.config.run.name
        self.clock: Clock = clock_of_run(run.root)
        self.stopping = asyncio.Event()
        """Set by SIGTERM and SIGINT: finish what is in hand and return."""

    async def bus(self, identity: str) -> Bus:
        """Connect under one of gyre.bus.access.SPEAKS' identities."""
        return await Bus.connect(
            f"nats://{self.folder.endpoint('bus')}", self.run, identity, seed_path(self.folder.keys, identity)
        )

    def rpc_server(self, endpoint: str, request_bytes_max: int = REQUEST_BYTES_MAX) -> RpcServer:
        """A server on the named endpoint, with the run's keys."""
        return RpcServer(self.folder.endpoint(endpoint), self.rpc_keys(), request_bytes_max=request_bytes_max)

    def rpc_keys(self) -> dict[str, str]:
        """Role → key, of all roles: a service never listens openly. Raises NotFound, ConfigError."""
        return {role: read_key(self.folder.keys, role) for role in ROLES}

    @property
    def service_key(self) -> str:
        return read_key(self.folder.keys, "service")


def main(
    name: str,
    run: Callable[[Context], Awaitable[None]],
    with_cell: bool = False,
    options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> None:
    """Parse, set up, run until done or told to stop. Exit code 0 on a clean stop, 2 for user errors, 3 where a new start would not help, 1 for
    defects."""
    parser = argparse.ArgumentParser(prog=f"python -m services.{name}", description=run.__doc__)
    parser.add_argument("--run", type=Path, required=True, help="folder of the run, made by `gyre up` or `gyre train`")
    parser.add_argument("--log-level", default="INFO", help="DEBUG, INFO, WARNING or ERROR")
    if with_cell:
        parser.add_argument("--cell", type=int, required=True, help="index of the cell; 0 is the core")
    if options is not None:
        options(parser)
    arguments = parser.parse_args()
    logging.basicConfig(
        level=arguments.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    cell = getattr(arguments, "cell", None)
    process = name if cell is None else f"{name}-{cell}"
    try:
        asyncio.run(_run(process, run, arguments, cell))
    except (GyreError, ExceptionGroup) as error:
        told = gyre_error(error)
        if told is None:
            raise
        log.error("%s", told, exc_info=isinstance(told, InvariantBroken))
        print(f"{process}: {told}", file=sys.stderr)
        raise SystemExit(EXIT_GAVE_UP if isinstance(told, GaveUp) else EXIT_USER_ERROR) from error


def gyre_error(error: BaseException) -> GyreError | None:
    """What Gyre raised on purpose, alone or among the errors of a task group; None where nothing was."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := gyre_error(one)) is not None), None)
    return error if isinstance(error, GyreError) else None


async def _run(
    process: str, run: Callable[[Context], Awaitable[None]], arguments: argparse.Namespace, cell: int | None
) -> None:
    from gyre.telemetry import setup, shutdown

    context = Context(process, RunFolder(arguments.run), cell, arguments)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, context.stopping.set)
    setup(process, context.folder, context.config)
    try:
        await run(context)
    finally:
        shutdown()


CLEAN_UP_S = 10.0
"""Longer than any task of a service takes to end; one that goes on has missed its cancellation and is told again."""


async def until_stopped(context: Context, *tasks: Awaitable[None]) -> None:
    """Run `tasks` until the process is told to stop or one of them ends; an error in one is the error of all."""
    running = [asyncio.ensure_future(task) for task in tasks]
    stopping = asyncio.ensure_future(context.stopping.wait())
    done, pending = await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
    await end(*pending, again_s=CLEAN_UP_S)
    for task in done:
        task.result()
