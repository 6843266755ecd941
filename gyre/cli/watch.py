"""`gyre status --watch`: the waterlevel and role changes as they happen."""

import asyncio
import json
from typing import Any

import click

from gyre.cli.live import as_dict, scheduler
from gyre.cli.screen import clock, say
from gyre.errors import Unavailable
from gyre.run_folder import RunFolder
from gyre.tasks import end


async def watch(folder: RunFolder, as_json: bool) -> None:
    """Until the run ends or the caller stops. Raises Unavailable when the run is not up."""
    from gyre.api.scheduler.v1 import scheduler_pb2 as pb

    async with scheduler(folder) as stub:
        points = _say_all(stub.WatchWaterlevel(pb.WatchWaterlevelRequest()), "waterlevel", as_json)
        roles = _say_all(stub.WatchRoles(pb.WatchRolesRequest()), "role", as_json)
        tasks = [asyncio.ensure_future(points), asyncio.ensure_future(roles)]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end(*tasks)
    raise Unavailable("the scheduler ended the stream")


async def _say_all(stream: Any, kind: str, as_json: bool) -> None:
    async for message in stream:
        values = as_dict(message)
        if as_json:
            click.echo(json.dumps({"kind": kind, **values}))
        else:
            say(_role(values) if kind == "role" else _waterlevel(values))


def _waterlevel(point: dict[str, Any]) -> str:
    return (
        f"{clock(point['at_s'])}  burst {point['burst']}  version {point['policy_version']}  waterlevel {point['waterlevel']} "
        f"of {point['capacity']}  outstanding groups {point['outstanding_groups']}{_lost(point)}"
    )


def _role(fact: dict[str, Any]) -> str:
    took = f"  {fact['duration_s']:.2f} s" if fact["duration_s"] else ""
    moved = f"  {fact['moved_calls']} calls moved" if fact["moved_calls"] else ""
    return f"{clock(fact['at_s'])}  {fact['cell']} → {fact['target']}: {fact['phase']}{took}{moved}{_lost(fact)}"


def _lost(values: dict[str, Any]) -> str:
    return f"  ({values['lost']} not shown)" if values["lost"] else ""
