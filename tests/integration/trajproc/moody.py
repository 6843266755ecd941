"""An evaluator process with moods, for tests: python -m tests.integration.trajproc.moody MOOD says its port in a line.

A mood is what it does to each question: `fine`, `hang`, `large` (100 MB), `rubbish`, `nan`, `raise`. It speaks gRPC.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from gyre.api.evaluation.v1 import evaluation_pb2 as pb
from gyre.api.evaluation.v1 import evaluation_pb2_grpc
from gyre.evaluation.serving import FULL_NAME
from gyre.rpc.server import RpcServer
from tests.support import ROOT, WAIT_S


class Moody(evaluation_pb2_grpc.EvaluatorServiceServicer):
    def __init__(self, mood: str) -> None:
        self._mood = mood

    async def Evaluate(self, request: pb.EvaluateRequest, context) -> pb.EvaluateResponse:
        match self._mood:
            case "hang":
                await asyncio.sleep(600)
            case "large":
                return pb.EvaluateResponse(score=1.0, valid=True, detail="x" * 100_000_000)
            case "rubbish":
                return pb.EvaluateResponse(score=1.0, valid=True, evidence_json="[not json")
            case "nan":
                return pb.EvaluateResponse(score=float("nan"), valid=True)
            case "raise":
                print("raise", flush=True)
                raise RuntimeError("out of memory")
        return pb.EvaluateResponse(score=0.5, valid=True, evidence_json='{"turns": 2}', looked_at=["turns"])


@contextlib.asynccontextmanager
async def moody(mood: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """The process and its port; it is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.trajproc.moody", mood, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process, int(await asyncio.wait_for(process.stdout.readline(), WAIT_S))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def main(mood: str) -> None:
    server = RpcServer("127.0.0.1:0")
    server.add(evaluation_pb2_grpc.add_EvaluatorServiceServicer_to_server, Moody(mood), FULL_NAME)
    await server.start()
    print(server.port, flush=True)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
