"""What tracing costs: `gyre bench tracing --json [--spans 40000] [--run RUN]`.

    span_us          processor time of one span where it happens: made, queued, written as OTLP, sent
    store_us         processor time of one span at the ledger: received, read, stored on SQLite
    request_us       processor time of one request on both sides, besides its spans: a process that is seldom busy sends few spans at once
    run_share        with --run (a finished run's folder, SQLite): its spans and requests at these prices, over the processor time of its cores
    spans_per_sample with --run: spans over trained samples

Processor time, not wall: it is what tracing takes from the work. A span has five attributes, as the example's have on average. The line is
3 % of a run.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import sqlalchemy as sa
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.sdk.resources import Resource

from gyre.rpc import RpcServer
from gyre.telemetry import emit_span
from gyre.telemetry.outbox import EXPORT_EVERY_S, QUEUE_SPANS_MAX, Outbox
from gyre.telemetry.setup import send_to, shutdown
from services.ledger import otlp
from services.ledger.storage import Database, Writer

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
AT_ONCE = QUEUE_SPANS_MAX // 2
"""Spans between two looks at whether the collector keeps up: none may be dropped, or they would cost too little."""
REQUESTS, FEW = 500, 8
"""Requests of few spans, by which a request is priced."""


def keep(folder: Path, told: Connection) -> None:
    """The receiving half of a ledger, in a process of its own; tells its address, and whenever it is asked its processor seconds."""

    async def serve() -> None:
        database = Database(f"sqlite:///{folder / 'ledger.db'}")
        database.migrate()
        writer = Writer(database, "bench")
        writer.start()
        server = RpcServer("127.0.0.1:0")
        receiver = otlp.TraceReceiver(writer)
        server.add(trace_service_pb2_grpc.add_TraceServiceServicer_to_server, receiver, otlp.FULL_NAME)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await server.start()
        told.send(f"127.0.0.1:{server.port}")
        asyncio.get_running_loop().add_reader(told.fileno(), lambda: (told.recv(), told.send(cpu_s())))
        await stop.wait()
        asyncio.get_running_loop().remove_reader(told.fileno())
        await server.stop()
        await asyncio.to_thread(writer.close)
        database.close()

    asyncio.run(serve())


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(folder: Path, spans: int) -> dict[str, float]:
    """Prices of one span and of one request, microseconds of a processor."""
    here, there = multiprocessing.Pipe()
    ledger = multiprocessing.get_context("spawn").Process(target=keep, args=(folder, there))
    ledger.start()
    outbox = send_to(here.recv(), Resource.create({"service.name": "gyre.bench", "gyre.run": "bench"}))
    many = _sent(here, outbox, spans, AT_ONCE)
    few = _sent(here, outbox, REQUESTS * FEW, FEW)
    assert outbox.dropped == 0, f"{outbox.dropped} spans were dropped: their price is not known"
    shutdown()
    assert ledger.pid is not None
    os.kill(ledger.pid, signal.SIGTERM)
    ledger.join()
    span_us, store_us = (1e6 * used_s / spans for used_s in many)
    return {
        "span_us": span_us, "store_us": store_us,
        "request_us": max(0.0, 1e6 * sum(few) / REQUESTS - FEW * (span_us + store_us)),
    }  # fmt: skip


def _sent(ledger: Connection, outbox: Outbox, spans: int, at_once: int) -> tuple[float, float]:
    """Processor seconds here and at the ledger, of spans that are made and sent `at_once`."""
    ledger.send(None)
    before_s, stored_s = cpu_s(), ledger.recv()
    for first in range(0, spans, at_once):
        for number in range(first, min(first + at_once, spans)):
            emit_span(
                "chat policy", 100.0 + number, 101.0 + number, PARENT, gyre_execution="g000000-e0", gyre_attempt=1,
                gyre_call="g000000-e0-a1-c000001", gen_ai_usage_input_tokens=1024, gen_ai_usage_output_tokens=64,
            )  # fmt: skip
        assert outbox.flush(60)
    used_s = cpu_s() - before_s
    ledger.send(None)
    return used_s, ledger.recv() - stored_s


SEEN = """
SELECT (SELECT count(*) FROM spans) AS spans, (SELECT count(*) FROM step_samples) AS samples,
       (SELECT count(*) FROM (SELECT DISTINCT service, end_ns / :every_ns FROM spans)) AS requests,
       (SELECT max(end_ns) - min(start_ns) FROM spans WHERE name IN ('execution', 'train.update')) / 1e9 AS wall_s
"""


def share_of(run: Path, prices: dict[str, float], cores: int) -> dict[str, float]:
    """What a finished run's spans cost it."""
    engine = sa.create_engine(f"sqlite:///file:{run / 'ledger.db'}?mode=ro&uri=true")
    with engine.connect() as connection:
        spans, samples, requests, wall_s = connection.execute(
            sa.text(SEEN), {"every_ns": int(EXPORT_EVERY_S * 1e9)}
        ).one()
    engine.dispose()
    cost_s = (spans * (prices["span_us"] + prices["store_us"]) + requests * prices["request_us"]) / 1e6
    return {
        "spans": spans, "spans_per_sample": spans / max(1, samples), "requests": requests, "wall_s": wall_s, "cost_s": cost_s,
        "run_share": cost_s / (wall_s * cores),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="gyre bench tracing", description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--spans", type=int, default=40_000)
    parser.add_argument("--run", type=Path, help="a finished run's folder, whose spans are priced")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="cores that the run had")
    options = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.spans)
    if options.run:
        found |= share_of(options.run, found, options.cores)
    found["bench_s"] = time.monotonic() - began_s
    print(json.dumps(found) if options.json else "\n".join(f"{name:18} {value:g}" for name, value in found.items()))


if __name__ == "__main__":
    main()
