"""What a ledger process does once, says as JSON on standard output, and ends: a question, an export, an import. A running ledger does not mind."""

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gyre.errors import ConfigError, GyreError, InvalidInput
from gyre.service import Context
from services.ledger import judging, rpc
from services.ledger.intake import raise_alarm
from services.ledger.queries.asked import QUESTIONS, Asked, ask
from services.ledger.queries.doctor import Room
from services.ledger.storage import Database
from services.ledger.storage.compacting import compact
from services.ledger.storage.room import sizes

BUS_WAIT_S = 5.0
"""A run that is over has no bus; an alarm about its books has nobody to reach then."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print", nargs="+", metavar=("QUESTION", "NAME"), default=[],
        help="answer one question: " + ", ".join(f"{name} {one.names}".strip() for name, one in QUESTIONS.items()),
    )  # fmt: skip
    parser.add_argument("--after", default="", metavar="CURSOR", help="with --print: the page after this one")
    parser.add_argument("--limit", type=int, default=0, help="with --print: rows of a page, points of a curve")
    parser.add_argument("--export", type=Path, metavar="DIR", help="write Parquet files and say what is in them")
    parser.add_argument(
        "--what", nargs="+", default=[], help="with --export: executions, samples, turns, drops; all by default"
    )
    parser.add_argument(
        "--since", type=float, metavar="UNIX_SECONDS", help="with --export: what happened then or later"
    )
    parser.add_argument(
        "--compact",
        type=float,
        metavar="UNIX_SECONDS",
        help="delete call rows and spans that ended before; books stay as they are",
    )
    parser.add_argument(
        "--import-judgements", type=Path, metavar="FILE", help="take in what people and models said of samples"
    )


def job(context: Context) -> Callable[[Database, Context], Any] | None:
    """What was asked for, if anything: database and context → an answer, or a coroutine of one."""
    given = context.arguments
    asked_for = {"export": exported, "print": printed, "import_judgements": judged, "compact": compacted}
    return next((do for name, do in asked_for.items() if getattr(given, name, None)), None)


async def carry_out(do: Callable[[Database, Context], Any], database: Database, context: Context) -> None:
    answer = do(database, context)
    print(rpc.to_text(await answer if asyncio.iscoroutine(answer) else answer))


def printed(database: Database, context: Context) -> dict[str, Any]:
    """Raises InvalidInput for a question there is not, NotFound as the questions do."""
    given = context.arguments
    question, *names = given.print
    room = room_of(database, context)
    asked = Asked(
        context.run, context.config, tuple(names), getattr(given, "after", ""), getattr(given, "limit", 0), room
    )
    with database.read() as connection:
        return ask(connection, question, asked)


def room_of(database: Database, context: Context) -> Callable[[], Room]:
    return lambda: Room(*sizes(database), now_s=context.clock.now_s())


def exported(database: Database, context: Context) -> dict[str, Any]:
    """What was written: {name: {path, rows, bytes}}. Raises ConfigError without pyarrow, InvalidInput for data that there is not."""
    try:
        from services.ledger import parquet  # an extra: only who exports needs it
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"exporting needs {error.name}, which is not installed: pip install 'gyre-rl[export]'"
        ) from error
    given = context.arguments
    if strange := sorted(set(given.what) - set(parquet.DATA_SETS)):
        raise InvalidInput(f"no data {', '.join(strange)}: any of {', '.join(parquet.DATA_SETS)}")
    with database.read() as connection:
        return parquet.export(
            connection, context.run, given.export, tuple(given.what or parquet.DATA_SETS), given.since
        )


def compacted(database: Database, context: Context) -> dict[str, int]:
    """{calls, samples, spans} deleted."""
    return compact(database, context.run, context.arguments.compact, context.clock.now_s())


async def judged(database: Database, context: Context) -> dict[str, Any]:
    """Take judgements in; where they show that a model has drifted, say so to whoever watches the run's alarms (D8)."""
    told = judging.import_judgements(database, context.run, context.arguments.import_judgements, context.clock.now_s())
    with database.read() as connection:
        found = ask(connection, "agreement", Asked(context.run, context.config))
    alarms = [words for model in found["models"] if (words := drifted(model, found["full"]))] if told["stored"] else []
    return {**told, "agreement": found, "alarms": alarms, "raised": bool(alarms) and await _raised(context, alarms)}


def drifted(model: dict[str, Any], full: float) -> str:
    """What there is to say of a model that people do not agree with, else empty."""
    if model["agreement"] is None:
        return ""
    words = f"{model['model']} agrees with people in {model['agreement']:.0%} of {model['pairs']} pairs"
    words += f"; that leaves it {model['weight']:.2f} of its weight"
    if model["fell"] and model["fell"]["by_at_least"] > 0:
        return f"{words}; on {model['fell']['day']} it fell from {model['fell']['before']:.0%} to {model['fell']['now']:.0%}"
    return words if model["high"] < full else ""


async def _raised(context: Context, alarms: list[str]) -> bool:
    try:
        async with asyncio.timeout(BUS_WAIT_S):
            bus = await context.bus("ledger")
            try:
                for words in alarms:
                    await raise_alarm(bus, context.clock, "reward_drift", words)
            finally:
                await bus.close()
    except (GyreError, TimeoutError):
        return False
    return True
