"""The entry point of an environment process.

    from gyre.env import serve
    serve(MyEnvironment, name="mine")

`gyre train` starts such a process with GYRE_ROLLOUT_ADDRESS (of several gateways GYRE_ROLLOUT_ADDRESSES, too), GYRE_ENVIRONMENT_KEY,
GYRE_ENVIRONMENT_SLOTS and GYRE_RUN set; by hand, the same as options: `python mine.py --address 127.0.0.1:8001,127.0.0.1:8002 --key …`.
"""

import argparse
import asyncio
import faulthandler
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gyre import telemetry
from gyre.env.attachment import Attachment
from gyre.env.driven import Agent, FunctionEnvironment, is_function
from gyre.env.environment import Environment, Task
from gyre.env.outside import Outside, ToolGateway
from gyre.env.recording import Redactor
from gyre.env.shelf import Shelf
from gyre.errors import EXIT_USER_ERROR, GyreError
from gyre.run_folder import RunFolder
from gyre.tasks import end

log = logging.getLogger(__name__)

SLOTS = 8
"""Executions at once where nobody says otherwise."""
WATCH_S = 1.0
STANDSTILL_S = 60.0
STANDSTILL_LEASES = 3
"""A process whose event loop does not turn for so long, the longer of the two, is ended, all its threads' stacks on stderr: something holds the
interpreter and will not let go (a regular expression, a C library), and its executions were given to others long ago."""
ATTACHED_FILE = "GYRE_ATTACHED_FILE"
"""Variable: a file that is made when a gateway has said Welcome (gyre.supervisor)."""
FILES_MAX = 65_536
"""Descriptors, where the system allows as many: an `async` environment's loop takes three of each execution, and soft limits are often 1024."""

Factory = Callable[[Task], Environment] | Callable[[Task, Agent], Any]
"""An Environment class, what makes one from a Task, or a function that holds the conversation itself (gyre.env.driven)."""


def serve(
    factory: Factory, name: str, slots: int = SLOTS, address: str | None = None, key: str | None = None,
    state: Path | str | None = None, record_tools: bool = False, redactor: Redactor | None = None,
    outside: Outside | None = None,
) -> None:  # fmt: skip
    """Attach `factory` (an Environment class, what makes one from a Task, or `function(task, agent)`) and serve until SIGTERM or Ctrl-C.

    `state` is a folder for snapshots, and with `record_tools` for what was said and done, secrets redacted by `redactor`'s rules; an attempt that
    follows a lost one then goes on where that was (C3, C4). Every process that serves this environment must see the same folder.

    `address` may name several gateways of the run, with commas between them: where one is lost the next is attached to.

    `outside`: executions get a tool gateway, through which their sandboxes' HTTP and MCP calls go; `Environment.way_out` says where.

    Command-line options win over the environment's variables, these over the arguments. Exits with 2 when the gateway refuses the
    key or the environment.
    """
    options = _options(name, slots, address, key, state, record_tools)
    # What an environment starts (a sandbox, a server of tools) must not find it.
    os.environ.pop("GYRE_ENVIRONMENT_KEY", None)
    logging.basicConfig(
        level=options.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if not options.address:
        print(f"{name}: no address: set GYRE_ROLLOUT_ADDRESS or give --address", file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR)
    _set_up_traces(name)
    _allow_files()
    try:
        recording = (redactor or Redactor()) if options.record_tools else None
        shelf = Shelf(Path(options.state) if options.state else None, recording)
        attachment = _attachment(factory, name, options.slots, options.address, options.key, shelf, outside)
        asyncio.run(_until_signal(_alone(attachment)))
    except GyreError as error:
        print(f"{name}: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR) from error
    finally:
        telemetry.shutdown()


async def serve_async(
    factory: Factory, name: str, slots: int, address: str, key: str = "", shelf: Shelf | None = None, outside: Outside | None = None
) -> None:  # fmt: skip
    """As `serve`, inside a running loop, until cancelled. Raises Unavailable (wrong key), InvalidInput (refused)."""
    await _attachment(factory, name, slots, address, key, shelf, outside).serve()


def _attachment(
    factory: Factory, name: str, slots: int, address: str, key: str, shelf: Shelf | None, outside: Outside | None
) -> Attachment:
    if is_function(factory):
        factory = partial(FunctionEnvironment, factory)
    return Attachment(factory, name, slots, address, key, shelf, ToolGateway(outside) if outside else None)


async def _alone(attachment: Attachment) -> None:
    """Serve in a process of its own, which says that it is attached, and is ended where it stands still."""
    beside = [asyncio.create_task(_say_attached(attachment)), asyncio.create_task(_watch(attachment))]
    try:
        await attachment.serve()
    finally:
        faulthandler.cancel_dump_traceback_later()
        await end(*beside)


async def _say_attached(attachment: Attachment) -> None:
    """To whoever started us: from now on, our death is an execution's doing and not a command that does not work."""
    await attachment.attached.wait()
    if path := os.environ.get(ATTACHED_FILE):
        try:
            await asyncio.to_thread(Path(path).touch)
        except OSError as error:
            log.warning("%s cannot be made: %s", path, error)


async def _watch(attachment: Attachment) -> None:
    """The alarm is faulthandler's, whose thread needs no interpreter."""
    while True:
        faulthandler.dump_traceback_later(max(STANDSTILL_S, STANDSTILL_LEASES * attachment.lease_s), exit=True)
        await asyncio.sleep(WATCH_S)


def _allow_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _options(
    name: str, slots: int, address: str | None, key: str | None, state: Path | str | None, record_tools: bool
) -> argparse.Namespace:
    variables = os.environ
    parser = argparse.ArgumentParser(description=f"Serves the environment `{name}` to a Gyre run.")
    parser.add_argument(
        "--address",
        default=variables.get("GYRE_ROLLOUT_ADDRESSES") or variables.get("GYRE_ROLLOUT_ADDRESS", address or ""),
        help="host:port of the rollout service, or of several gateways with commas between them",
    )
    parser.add_argument("--key", default=variables.get("GYRE_ENVIRONMENT_KEY", key or ""), help="the environments' key")
    parser.add_argument(
        "--slots", type=int, default=variables.get("GYRE_ENVIRONMENT_SLOTS", slots), help="executions at once"
    )
    parser.add_argument(
        "--state", default=variables.get("GYRE_ENVIRONMENT_STATE", state or ""), help="folder of snapshots and records"
    )
    parser.add_argument(
        "--record-tools", action="store_true", default=record_tools, help="record tool calls, and go on from them"
    )
    parser.add_argument("--log-level", default="INFO")
    return parser.parse_known_args()[0]


def _set_up_traces(name: str) -> None:
    """Only inside a run whose folder we may read: elsewhere an environment sends no traces."""
    folder = os.environ.get("GYRE_RUN", "")
    if not folder:
        return
    try:
        run = RunFolder(Path(folder))
        telemetry.setup(f"environment-{name}", run, run.config()[0])
    except (GyreError, OSError) as error:
        log.info("no traces: %s", error)


async def _until_signal(work) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
