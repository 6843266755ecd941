"""A gRPC server around one evaluator, in a process of its own.

`python mine.py --address 127.0.0.1:9100`; a token in GYRE_EVALUATOR_TOKEN is then asked of whoever calls.
"""

import argparse
import asyncio
import inspect
import ipaddress
import logging
import os
import signal
import sys

from gyre.api.evaluation.v1 import evaluation_pb2 as pb
from gyre.api.evaluation.v1 import evaluation_pb2_grpc
from gyre.errors import EXIT_USER_ERROR, GyreError, InvalidInput
from gyre.evaluation import wire
from gyre.evaluation.evaluator import Evaluator, Finding, checked, plain
from gyre.rpc.server import RpcServer

log = logging.getLogger(__name__)

TOKEN_VARIABLE = "GYRE_EVALUATOR_TOKEN"
FULL_NAME = pb.DESCRIPTOR.services_by_name["EvaluatorService"].full_name


class _Servicer(evaluation_pb2_grpc.EvaluatorServiceServicer):
    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    async def Evaluate(self, request: pb.EvaluateRequest, context) -> pb.EvaluateResponse:
        try:
            return wire.finding_proto(checked(await self._judge(request)))
        except Exception as error:
            log.warning("%s could not be judged", request.sample_id, exc_info=True)
            return pb.EvaluateResponse(valid=False, detail=plain(f"{type(error).__name__}: {error}"))

    async def _judge(self, request: pb.EvaluateRequest) -> Finding:
        execution = wire.execution_of_proto(request)
        evaluator = self._evaluator
        if inspect.iscoroutinefunction(evaluator) or inspect.iscoroutinefunction(type(evaluator).__call__):
            found = await evaluator(execution)
        else:
            found = await asyncio.to_thread(evaluator, execution)
            found = await found if inspect.isawaitable(found) else found  # a decorated one's
        return found if isinstance(found, Finding) else Finding(score=float(found))


def serve(evaluator: Evaluator, address: str = "127.0.0.1:9100") -> None:
    """Answer until SIGTERM or Ctrl-C. A plain function runs in a thread, several at once; an `async` one must not block.

    `--address` on the command line wins. Exits with 2 where it cannot listen, or would listen beyond this machine without a token.
    """
    parser = argparse.ArgumentParser(description="Serves an evaluator to a Gyre run.")
    parser.add_argument("--address", default=address, help="host:port to listen on")
    parser.add_argument("--log-level", default="INFO")
    options = parser.parse_known_args()[0]
    logging.basicConfig(level=options.log_level.upper(), stream=sys.stderr)
    try:
        asyncio.run(_until_signal(evaluator, options.address))
    except GyreError as error:
        print(f"evaluator: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR) from error


async def serve_async(evaluator: Evaluator, address: str, token: str = "") -> RpcServer:
    """A started server; `port` is the one it listens on, `await stop()` ends it. Raises InvalidInput, Unavailable."""
    if not token and not _is_loopback(address):
        raise InvalidInput(f"{address} can be reached from other machines: set a token in {TOKEN_VARIABLE}")
    keys = {"service": token, "environment": token} if token else None
    server = RpcServer(address, keys)
    server.add(evaluation_pb2_grpc.add_EvaluatorServiceServicer_to_server, _Servicer(evaluator), FULL_NAME)
    await server.start()
    return server


async def _until_signal(evaluator: Evaluator, address: str) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    server = await serve_async(evaluator, address, os.environ.get(TOKEN_VARIABLE, ""))
    log.info("answering on %s", address)
    await stopping.wait()
    await server.stop()


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return address.startswith("unix:")
