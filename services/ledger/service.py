"""Shell of the ledger: bus, writer, OTLP receiver and queries in one process; or queries alone, when the run is over."""

import argparse
import asyncio
import contextlib
import logging
from collections.abc import Callable

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

from gyre.api.ledger.v1 import ledger_pb2_grpc
from gyre.records import Fact
from gyre.service import Context, until_stopped
from services.ledger import once, otlp, rpc
from services.ledger.explorer.attach import explore, explorer
from services.ledger.intake import Alarms, Intake, progress
from services.ledger.memory import look_less
from services.ledger.otlp_http import otlp_http
from services.ledger.retention import Retention
from services.ledger.sinks import open_sinks
from services.ledger.storage import Database, Writer, database_url

log = logging.getLogger(__name__)


def options(parser: argparse.ArgumentParser) -> None:
    """What the ledger takes beyond `--run`."""
    parser.add_argument(
        "--offline", action="store_true", help="answer queries only: no bus, no OTLP; for a run that is over"
    )
    parser.add_argument(
        "--explore",
        metavar="HOST:PORT",
        default="",
        help="serve the trace explorer only, for a run that is over; port 0 for a free one",
    )
    once.options(parser)


async def serve(context: Context) -> None:
    """Keep the books of one run and answer questions about them."""
    look_less()
    database = Database(database_url(context.config, context.folder))
    database.migrate()
    try:
        with database.usable():
            await _serve(context, database)
    finally:
        database.close()


async def _serve(context: Context, database: Database) -> None:
    if do := once.job(context):
        await once.carry_out(do, database, context)
    elif getattr(context.arguments, "explore", ""):
        await explore(context, database, context.arguments.explore)
    elif getattr(context.arguments, "offline", False):
        await _serve_offline(context, database)
    else:
        await _serve_online(context, database)


async def _serve_offline(context: Context, database: Database) -> None:
    server = context.rpc_server("ledger")
    servicer = rpc.LedgerServicer(database, context.run, context.config, room=once.room_of(database, context))
    server.add(ledger_pb2_grpc.add_LedgerServiceServicer_to_server, servicer, rpc.FULL_NAME)
    await server.start()
    try:
        await until_stopped(context)
    finally:
        await server.stop()


async def _serve_online(context: Context, database: Database) -> None:
    async with contextlib.AsyncExitStack() as stack:
        watchers = await _watchers(context, stack)
        await _keep_books(context, database, watchers)


async def _watchers(context: Context, stack: contextlib.AsyncExitStack) -> list[Callable[[Fact], None]]:
    """Whoever is told each fact beside the books: metrics and sinks, where they are configured; `stack` ends them."""
    asked, watchers = context.config.ledger, []
    if asked.metrics or asked.otlp_endpoint:
        from services.ledger.metrics import Metrics, MetricsServer

        metrics = Metrics(context.run, asked.otlp_endpoint)
        stack.callback(metrics.close)
        watchers.append(metrics.see)
        if asked.metrics:
            server = MetricsServer(metrics)
            log.info("metrics at http://%s/metrics", await server.start(asked.metrics))
            stack.push_async_callback(server.stop)
    if sinks := open_sinks(asked.sinks, context.run, context.folder.root):
        stack.push_async_callback(asyncio.to_thread, sinks.close)
        watchers.append(sinks.see)
    return watchers


async def _keep_books(context: Context, database: Database, watchers: list[Callable[[Fact], None]]) -> None:
    bus = await context.bus("ledger")
    alarms = Alarms(bus, context.clock)
    bus.on_dead_letter = alarms.poison
    writer = Writer(database, context.run, alarms.database)
    writer.start()
    server = context.rpc_server("ledger")
    room = once.room_of(database, context)
    servicer = rpc.LedgerServicer(database, context.run, context.config, lambda: progress(bus), room)
    server.add(ledger_pb2_grpc.add_LedgerServiceServicer_to_server, servicer, rpc.FULL_NAME)
    server.add(trace_service_pb2_grpc.add_TraceServiceServicer_to_server, otlp.TraceReceiver(writer), otlp.FULL_NAME)
    await server.start()
    try:
        days = context.config.ledger.retention_days
        async with (
            otlp_http(context, writer),
            explorer(context, database, bus),
            Retention(database, context.run, days, context.clock),
        ):
            await until_stopped(context, Intake(bus, writer, watchers).run())
    finally:
        await server.stop()
        await asyncio.to_thread(writer.close)
        alarms.close()
        await bus.close()
