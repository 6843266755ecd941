"""What a ledger process does once, says as JSON on standard output, and ends: a question, an export, an import. A running ledger does not mind."""

import argparse
import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gyre.config import Config
from gyre.errors import ConfigError, GyreError, InvalidInput, NotFound, Unavailable
from gyre.records import RewardWeighed
from gyre.service import Context
from services.ledger import judging, rpc
from services.ledger.core.moments import moment_s
from services.ledger.intake import raise_alarm
from services.ledger.queries.asked import QUESTIONS, Asked, ask
from services.ledger.queries.doctor import Room
from services.ledger.storage import Database
from services.ledger.storage.compacting import compact
from services.ledger.storage.room import sizes

WEIGHT_STEP = 1e-3
"""Of a weight: a smaller change is not worth a fact."""
BUS_WAIT_S = 5.0
"""A run that is over has no bus; an alarm about its books has nobody to reach then."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print", metavar="QUESTION", default="",
        help="answer one question: " + ", ".join(f"{name} {one.names}".strip() for name, one in QUESTIONS.items()),
    )  # fmt: skip
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME",
        help="with --print: what it is asked about; may be repeated",
    )
    parser.add_argument("--after", default="", metavar="CURSOR", help="with --print: the page after this one")
    parser.add_argument("--limit", type=int, default=0, help="with --print: rows of a page, points of a curve")
    parser.add_argument("--export", type=Path, metavar="DIR", help="write Parquet files and say what is in them")
    parser.add_argument(
        "--what",
        action="append",
        default=[],
        help="with --export: executions, samples, turns or drops; may be repeated; all by default",
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
        "--apply-agreement",
        action="store_true",
        help="say on the bus what each learned evaluator weighs by people's agreement",
    )
    parser.add_argument(
        "--import-files", type=Path, metavar="DIR", help="take in Parquet files of an export; for empty books"
    )
    parser.add_argument(
        "--import-judgements", type=Path, metavar="FILE", help="take in what people and models said of samples"
    )


def job(context: Context) -> Callable[[Database, Context], Any] | None:
    """What was asked for, if anything: database and context → an answer, or a coroutine of one."""
    given = context.arguments
    asked_for = {
        "export": exported, "print": printed, "import_files": imported, "import_judgements": judged, "apply_agreement": weighed,
        "compact": compacted,
    }  # fmt: skip
    return next((do for name, do in asked_for.items() if getattr(given, name, None)), None)


async def carry_out(do: Callable[[Database, Context], Any], database: Database, context: Context) -> None:
    answer = do(database, context)
    print(rpc.to_text(await answer if asyncio.iscoroutine(answer) else answer))


def printed(database: Database, context: Context) -> dict[str, Any]:
    """Raises InvalidInput for a question there is not, NotFound as the questions do."""
    given = context.arguments
    room = room_of(database, context)
    asked = Asked(context.run, context.config, tuple(given.name), given.after, given.limit, room)
    with database.read() as connection:
        return ask(connection, given.print, asked)


def room_of(database: Database, context: Context) -> Callable[[], Room]:
    return lambda: Room(*sizes(database), now_s=context.clock.now_s())


def exported(database: Database, context: Context) -> dict[str, Any]:
    """What was written: {name: {path, rows, bytes}}. Raises ConfigError without pyarrow, InvalidInput for data, or a moment, that there is not."""
    with _extra("exporting"):
        from services.ledger import parquet
    given = context.arguments
    if given.since is not None:
        moment_s("--since", given.since)
    if strange := sorted(set(given.what) - set(parquet.DATA_SETS)):
        raise InvalidInput(f"no data {', '.join(strange)}: any of {', '.join(parquet.DATA_SETS)}")
    with database.read() as connection:
        return parquet.export(
            connection, context.run, given.export, tuple(given.what or parquet.DATA_SETS), given.since
        )


def imported(database: Database, context: Context) -> dict[str, Any]:
    """What was taken in: {name: {path, rows}}. Raises ConfigError without pyarrow, and as import_files."""
    with _extra("importing"):
        from services.ledger import offline
    return offline.import_files(database, context.run, context.arguments.import_files)


@contextlib.contextmanager
def _extra(doing: str) -> Iterator[None]:
    """An extra of the package: only who uses it needs it. Raises ConfigError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{doing} needs {error.name}, which is not installed: pip install 'gyre-rl[export]'"
        ) from error


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


async def weighed(database: Database, context: Context) -> dict[str, Any]:
    """Say the weight that people's agreement leaves each learned evaluator, where it is not in force yet.

    Answers {agreement, applied: [{evaluator, weight, was}]}.
    Raises Unavailable where no run is up to hear it.
    """
    with database.read() as connection:
        found = ask(connection, "agreement", Asked(context.run, context.config))
    facts = list(weighings(found, context.config, context.clock.now_s()))
    if facts:
        try:
            async with asyncio.timeout(BUS_WAIT_S):
                bus = await context.bus("ledger")
                try:
                    for fact, _ in facts:
                        await bus.publish(fact)
                finally:
                    await bus.close()
        except (NotFound, Unavailable, TimeoutError) as error:
            raise Unavailable(
                "no weight was changed: the run is not up. Put it into [[evaluators]] weight of the next one"
            ) from error
    applied = [{"evaluator": fact.evaluator, "weight": fact.weight, "was": was} for fact, was in facts]
    return {"agreement": found, "applied": applied}


def weighings(found: dict[str, Any], config: Config, at_s: float) -> Iterator[tuple[RewardWeighed, float]]:
    """(what is to be said of a model, the weight that it has), of learned evaluators that people were compared with, where the two differ."""
    learned = {one.name: one.weight for one in config.evaluators if one.kind == "learned"}
    for model in found["models"]:
        if model["model"] not in learned or model["weight"] is None:
            continue
        configured = learned[model["model"]]
        was = model["in_force"]["weight"] if model["in_force"] else configured
        fact = RewardWeighed(
            evaluator=model["model"], weight=configured * model["weight"], share=model["weight"], agreement=model["agreement"], low=model["low"],
            pairs=model["pairs"], at_s=at_s,
        )  # fmt: skip
        if abs(fact.weight - was) > WEIGHT_STEP:
            yield fact, was


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
