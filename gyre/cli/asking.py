"""Asking a run's ledger: by gRPC while the run is up, else by a child process that opens the database once more."""

import json
import os
import subprocess
import sys
from typing import Any

import grpc

from gyre.cli.live import address, connected, in_one_loop, request_of
from gyre.errors import EXIT_USER_ERROR, InvalidInput, NotFound, Unavailable
from gyre.rpc.auth import read_key
from gyre.run_folder import RunFolder

ANSWER_S = 120.0
"""A question to a ledger of ten million facts, on a busy machine."""


def ask_ledger(folder: RunFolder, question: str, *names: str, after: str = "", limit: int = 0) -> dict[str, Any]:
    """One question to the ledger, by services/ledger/queries/asked.py's names. Raises NotFound, InvalidInput, Unavailable."""
    try:
        return in_one_loop(_ask_live(folder, question, names, after, limit))
    except Unavailable:
        page = [f"--after={after}"] * bool(after) + [f"--limit={limit}"] * bool(limit)
        return run_ledger(
            folder, *page, f"--print={question}", *(f"--name={name}" for name in names), timeout_s=ANSWER_S
        )


async def _ask_live(folder: RunFolder, question: str, names: tuple[str, ...], after: str, limit: int) -> dict[str, Any]:
    from gyre.api.ledger.v1 import ledger_pb2 as pb
    from gyre.api.ledger.v1 import ledger_pb2_grpc
    from gyre.rpc import open_channel

    request = request_of(pb.AskRequest, question=question, names=names, after=after, limit=limit)
    async with open_channel(address(folder, "ledger"), read_key(folder.keys, "service")) as channel:
        await connected(channel)
        try:
            return json.loads((await ledger_pb2_grpc.LedgerServiceStub(channel).Ask(request, timeout=ANSWER_S)).json)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                raise NotFound(error.details()) from error
            if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                raise InvalidInput(error.details()) from error
            # Also a stranger on a port of a run that is over: it does not know our key.
            raise Unavailable(f"the ledger does not answer: {error.details()}") from error


def run_ledger(folder: RunFolder, *arguments: str, timeout_s: float | None = None) -> dict[str, Any]:
    """What a ledger process of its own says of the run's database, which a running ledger may be using. Raises as `run_service`."""
    return run_service("ledger", folder, *arguments, timeout_s=timeout_s)


def run_service(service: str, folder: RunFolder, *arguments: str, timeout_s: float | None = None) -> dict[str, Any]:
    """What a process of `services.<service>` says as JSON about the run's folder, and ends. Raises NotFound, Unavailable; UnicodeEncodeError
    for words that are not UTF-8, before anything is done.

    What somebody typed is an argument's value, `--name=VALUE`, and never an argument: it may look like an option.
    """
    command = [
        sys.executable,
        "-m",
        f"services.{service}",
        "--run",
        str(folder.root),
        "--log-level",
        "CRITICAL",
        *arguments,
    ]
    for word in command:
        word.encode()
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=os.environ)
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"{folder.root} gave no answer within {timeout_s:g} s: is the machine busy, or the disk?"
        ) from None
    if child.returncode != 0:
        words = (child.stderr.strip().splitlines() or ["it said nothing"])[-1].removeprefix(f"{service}: ")
        raise (NotFound if child.returncode == EXIT_USER_ERROR else Unavailable)(words)
    return json.loads(child.stdout)
