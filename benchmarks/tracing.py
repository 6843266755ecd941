"""What tracing costs: `gyre bench tracing --json [--spans 40000] [--run RUN]`.

    span_us          processor time of one span where it happens: made, queued, written as OTLP, sent
    store_us         processor time of one span at the ledger: received, read, stored on SQLite
    run_share        with --run (a finished run's folder, SQLite): its spans at these prices, over the processor time that its cores had
    spans_per_sample with --run: spans over trained samples

Processor time, not wall: a busy machine changes it little, and it is what tracing takes from the work. The line is 3 % of a run.
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
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.sdk.resources import Resource

from gyre.rpc import RpcServer
from gyre.telemetry import emit_span
from gyre.telemetry.setup import QUEUE_SPANS_MAX, provider_of
from services.ledger import otlp
from services.ledger.storage import Database, Writer

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
AT_ONCE = QUEUE_SPANS_MAX // 2
"""Spans between two looks at whether the collector keeps up: none may be dropped, or they would cost too little."""


def keep(folder: Path, told: Connection) -> None:
    """The receiving half of a ledger, in a process of its own; tells its address, and at SIGTERM its processor seconds."""

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
        before_s = cpu_s()
        told.send(f"127.0.0.1:{server.port}")
        await stop.wait()
        await server.stop()
        await asyncio.to_thread(writer.close)
        told.send(cpu_s() - before_s)
        database.close()

    asyncio.run(serve())


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(folder: Path, spans: int) -> dict[str, float]:
    """Prices of one span, microseconds of a processor."""
    here, there = multiprocessing.Pipe()
    ledger = multiprocessing.get_context("spawn").Process(target=keep, args=(folder, there))
    ledger.start()
    endpoint = here.recv()
    exporter = OTLPSpanExporter(endpoint=f"http://{endpoint}", insecure=True, timeout=30)
    provider, counts = provider_of(exporter, Resource.create({"service.name": "gyre.bench", "gyre.run": "bench"}))
    from opentelemetry import trace

    trace.set_tracer_provider(provider)
    before_s = cpu_s()
    for first in range(0, spans, AT_ONCE):
        for number in range(first, min(first + AT_ONCE, spans)):
            emit_span(
                "chat policy", 100.0 + number, 101.0 + number, PARENT, gyre_execution="g000000-e0", gyre_attempt=1,
                gyre_call="g000000-e0-a1-c000001", gen_ai_usage_input_tokens=1024, gen_ai_usage_output_tokens=64,
            )  # fmt: skip
        provider.force_flush(60_000)
    provider.shutdown()
    used_s = cpu_s() - before_s
    assert ledger.pid is not None
    os.kill(ledger.pid, signal.SIGTERM)
    stored_s = here.recv()
    ledger.join()
    assert counts.dropped == 0, f"{counts.dropped} spans were dropped: their price is not known"
    return {"span_us": 1e6 * used_s / spans, "store_us": 1e6 * stored_s / spans}


SEEN = """
SELECT (SELECT count(*) FROM spans) AS spans, (SELECT count(*) FROM step_samples) AS samples,
       (SELECT max(end_ns) - min(start_ns) FROM spans WHERE name IN ('execution', 'train.update')) / 1e9 AS wall_s
"""


def share_of(run: Path, prices: dict[str, float], cores: int) -> dict[str, float]:
    """What a finished run's spans cost it."""
    engine = sa.create_engine(f"sqlite:///file:{run / 'ledger.db'}?mode=ro&uri=true")
    with engine.connect() as connection:
        spans, samples, wall_s = connection.execute(sa.text(SEEN)).one()
    engine.dispose()
    cost_s = spans * (prices["span_us"] + prices["store_us"]) / 1e6
    return {
        "spans": spans, "spans_per_sample": spans / max(1, samples), "wall_s": wall_s, "cost_s": cost_s,
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
