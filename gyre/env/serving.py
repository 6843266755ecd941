"""The entry point of an environment process.

    from gyre.env import serve
    serve(MyEnvironment, name="mine")

`gyre train` starts such a process with GYRE_ROLLOUT_ADDRESS, GYRE_ENVIRONMENT_KEY, GYRE_ENVIRONMENT_SLOTS and GYRE_RUN set;
by hand, the same as options: `python mine.py --address 127.0.0.1:8001 --key …`.
"""

import argparse
import asyncio
import logging
import os
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
from gyre.env.keeping import Shelf
from gyre.env.outside import Outside, ToolGateway
from gyre.env.recording import Redactor
from gyre.errors import GyreError
from gyre.run_folder import RunFolder

log = logging.getLogger(__name__)

SLOTS = 8
"""Executions at once where nobody says otherwise."""
EXIT_USER_ERROR = 2

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

    `outside`: executions get a tool gateway, through which their sandboxes' HTTP and MCP calls go; `Environment.way_out` says where.

    Command-line options win over the environment's variables, these over the arguments. Exits with 2 when the gateway refuses the
    key or the environment.
    """
    options = _options(name, slots, address, key, state, record_tools)
    logging.basicConfig(
        level=options.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if not options.address:
        print(f"{name}: no address: set GYRE_ROLLOUT_ADDRESS or give --address", file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR)
    _set_up_traces(name)
    try:
        recording = (redactor or Redactor()) if options.record_tools else None
        shelf = Shelf(Path(options.state) if options.state else None, recording)
        asyncio.run(
            _until_signal(serve_async(factory, name, options.slots, options.address, options.key, shelf, outside))
        )
    except GyreError as error:
        print(f"{name}: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR) from error
    finally:
        telemetry.shutdown()


async def serve_async(
    factory: Factory, name: str, slots: int, address: str, key: str = "", shelf: Shelf | None = None, outside: Outside | None = None
) -> None:  # fmt: skip
    """As `serve`, inside a running loop, until cancelled. Raises Unavailable (wrong key), InvalidInput (refused)."""
    if is_function(factory):
        factory = partial(FunctionEnvironment, factory)
    await Attachment(factory, name, slots, address, key, shelf, ToolGateway(outside) if outside else None).serve()


def _options(
    name: str, slots: int, address: str | None, key: str | None, state: Path | str | None, record_tools: bool
) -> argparse.Namespace:
    variables = os.environ
    parser = argparse.ArgumentParser(description=f"Serves the environment `{name}` to a Gyre run.")
    parser.add_argument(
        "--address",
        default=variables.get("GYRE_ROLLOUT_ADDRESS", address or ""),
        help="host:port of the rollout service",
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
