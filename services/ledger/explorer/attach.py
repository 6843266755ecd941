"""The explorer beside the books: in the ledger's process while a run goes on, alone when it is over."""

import contextlib
import json
import logging
from collections.abc import AsyncIterator

from gyre.bus import Bus, streams
from gyre.errors import GyreError
from gyre.service import Context, until_stopped
from services.ledger.explorer.server import ExplorerServer
from services.ledger.intake import progress
from services.ledger.storage import Database

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def explorer(context: Context, database: Database, bus: Bus) -> AsyncIterator[None]:
    """Serves the run's explorer where it is configured. The books are kept without it too: what keeps it from listening is logged."""
    server = None
    if context.config.ledger.explorer:
        try:
            server = ExplorerServer(database, context.folder, context.config, context.clock, lambda: backlogs(bus))
            log.info("trace explorer at http://%s", await server.start(context.folder.endpoint("explorer")))
        except (GyreError, OSError) as error:
            log.warning("no trace explorer: %s", error)
            server = None
    try:
        yield
    finally:
        if server is not None:
            await server.stop()


async def explore(context: Context, database: Database, address: str) -> None:
    """Serves a run that is over, until told to stop; says where as a line of JSON on standard output."""
    server = ExplorerServer(database, context.folder, context.config, context.clock)
    print(json.dumps({"address": await server.start(address)}), flush=True)
    try:
        await until_stopped(context)
    finally:
        await server.stop()


async def backlogs(bus: Bus) -> list[dict]:
    """[{stream, messages, bytes}]: what waits in each stream now. Work queues hold what is not done yet; facts stay on theirs, so of those it is what
    the ledger has still to take in. What the bus does not say is left out."""
    found = []
    for stream in (streams.TASKS, streams.MICRO, streams.DEAD):
        with contextlib.suppress(Exception):
            state = (await bus.js.stream_info(stream)).state
            found.append({"stream": stream, "messages": state.messages, "bytes": state.bytes})
    with contextlib.suppress(Exception):
        waiting = (await progress(bus)).waiting
        found.append({"stream": f"{streams.FACTS} (to the books)", "messages": waiting, "bytes": None})
    return found
