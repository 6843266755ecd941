"""`gyre status`, `audit`, `explain`, `drops`, `books`, `queues`: questions about a run, live or over.

A running run is asked by gRPC. When it is over its ledger is opened once more by a child process that answers one question from the database.
"""

import asyncio
from pathlib import Path
from typing import Any

import click
import grpc

from gyre.cli.asking import ask_ledger
from gyre.cli.live import address, as_dict, asked, connected, in_one_loop
from gyre.cli.options import find_run, json_option, print_json, run_option
from gyre.cli.screen import clean, clock
from gyre.cli.watch import watch
from gyre.errors import Unavailable
from gyre.rpc.auth import read_key
from gyre.run_folder import RunFolder


@click.command()
@run_option
@json_option
@click.option(
    "--watch", "is_watching", is_flag=True, help="Say what changes, line by line, until Ctrl-C or the run's end."
)
def status(run_folder: Path | None, as_json: bool, is_watching: bool) -> None:
    """What a running run is doing: cells, waterlevel, steps, queues, pools."""
    folder = find_run(run_folder)
    if is_watching:
        in_one_loop(watch(folder, as_json))
        return
    state = in_one_loop(_states(folder))
    if as_json:
        print_json({"run": str(folder.root), **state})
        return
    state = clean(state)
    click.echo(f"run {folder.root}")
    for name, values in state.items():
        click.echo(f"\n{name}" + ("" if values else ": does not answer"))
        _show(values or {}, "  ")
    if not any(state.values()):
        click.echo("\nThe run is over; `gyre audit`, `gyre books` and `gyre drops` still answer.")


@click.command()
@run_option
@json_option
def audit(run_folder: Path | None, as_json: bool) -> None:
    """The acceptance criteria and balances, each with its figure; exit code 1 when one fails.

    Of a run that is up also how many facts still wait on the bus, which the figures are without, and how many messages were set aside.
    """
    answer = ask_ledger(find_run(run_folder), "audit")
    if as_json:
        print_json(answer)
    else:
        for criterion in clean(answer["criteria"]):
            mark = click.style("pass", fg="green") if criterion["passed"] else click.style("FAIL", fg="red")
            click.echo(f"{mark}  {criterion['name']}: {criterion['figure']}")
            if not criterion["passed"]:
                click.echo(f"      {criterion['query']}")
        click.echo(_behind(answer))
    if not answer["passed"]:
        raise SystemExit(1)


def _behind(answer: dict[str, Any]) -> str:
    """How far the audited books are behind the bus, in words."""
    if "intake" not in answer:
        return "The run is over, or its ledger does not answer: these are the books as they stand."
    if (intake := answer["intake"]) is None:
        return "The bus does not say how many facts wait for the books."
    return f"Facts that wait on the bus for the books: {intake['waiting']}. Messages that cannot be stored, set aside: {intake['set_aside']}."


@click.command()
@click.argument("sample")
@run_option
@json_option
def explain(sample: str, run_folder: Path | None, as_json: bool) -> None:
    """Everything about SAMPLE, e.g. g000012-e3-a1: environment, weights, attempts, tree, score, step."""
    _print(ask_ledger(find_run(run_folder), "explain", sample), as_json)


@click.command()
@run_option
@json_option
def drops(run_folder: Path | None, as_json: bool) -> None:
    """What left training, by reason, with turns, tokens and seconds lost."""
    _print(ask_ledger(find_run(run_folder), "drops"), as_json)


@click.command()
@run_option
@json_option
def books(run_folder: Path | None, as_json: bool) -> None:
    """The three books: interaction turns, environment occupancy, external calls; and the run's counters."""
    _print(ask_ledger(find_run(run_folder), "books"), as_json)


@click.command()
@run_option
@json_option
def queues(run_folder: Path | None, as_json: bool) -> None:
    """What waits in each duration tier now, and how long groups have waited and were promoted since the run began."""
    folder = find_run(run_folder)
    answer = {"now": _waiting_now(folder), **ask_ledger(folder, "queues")}
    if as_json:
        print_json(answer)
        return
    answer = clean(answer)
    for tier in answer["now"] or ():
        click.echo(
            f"{tier['tier']}: {tier['waiting_groups']} of {tier['queue_max']} groups wait, the oldest {tier['wait_s_max']:.0f} s; "
            f"{tier['unfinished_executions']} of {tier['concurrency_max']} executions unfinished"
        )
    for name, total in answer["tiers"].items():
        click.echo(
            f"{name}: {total['groups']} groups sent, waited {total['wait_s_mean']:.1f} s on average, {total['wait_s_max']:.0f} s at most; "
            f"{total['promotions']} promotions of {total['promoted_groups']} groups"
        )
        longest_s = max(point["wait_s_max"] for point in answer["curves"][name])
        for point in answer["curves"][name]:
            bar = "█" * round(40 * point["wait_s_mean"] / longest_s) if longest_s else ""
            click.echo(f"  {clock(point['from_s'])}  {point['wait_s_mean']:8.1f} s  {bar}")


def _waiting_now(folder: RunFolder) -> list[dict[str, Any]] | None:
    """The scheduler's tiers; None when the run is over."""
    from gyre.api.scheduler.v1 import scheduler_pb2 as pb

    try:
        return as_dict(in_one_loop(asked(folder, "GetQueues", pb.GetQueuesRequest())))["tiers"]
    except Unavailable:
        return None


def _print(answer: Any, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        _show(clean(answer), "")


def _show(value: Any, indent: str) -> None:
    """Nested mappings and lists as indented text."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, dict | list) and inner:
                click.echo(f"{indent}{name}")
                _show(inner, indent + "  ")
            else:
                click.echo(f"{indent}{name}: {_plain(inner)}")
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict):
                click.echo(f"{indent}- " + ", ".join(f"{name} {_plain(one)}" for name, one in inner.items()))
            else:
                click.echo(f"{indent}- {_plain(inner)}")


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3f}"
    return "—" if value in (None, "", [], {}) else str(value)


async def _states(folder: RunFolder) -> dict[str, dict[str, Any] | None]:
    """Each service's GetState, None where it does not answer."""
    from gyre.api.rollout.v1 import rollout_pb2, rollout_pb2_grpc
    from gyre.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
    from gyre.api.trainer.v1 import core_pb2, core_pb2_grpc
    from gyre.api.trajproc.v1 import trajproc_pb2, trajproc_pb2_grpc

    asked = {
        "scheduler": (scheduler_pb2_grpc.SchedulerServiceStub, scheduler_pb2.GetStateRequest()),
        "rollout": (rollout_pb2_grpc.RolloutServiceStub, rollout_pb2.GetStateRequest()),
        "trajproc": (trajproc_pb2_grpc.TrajprocServiceStub, trajproc_pb2.GetStateRequest()),
        "trainer-0": (core_pb2_grpc.CoreServiceStub, core_pb2.GetStateRequest()),
    }
    answers = await asyncio.gather(*(_state(folder, name, *how) for name, how in asked.items()))
    return dict(zip(asked, answers, strict=True))


async def _state(folder: RunFolder, endpoint: str, stub: Any, request: Any) -> dict[str, Any] | None:
    from gyre.rpc import open_channel

    try:
        async with open_channel(address(folder, endpoint), read_key(folder.keys, "service")) as channel:
            await connected(channel)
            reply = await stub(channel).GetState(request, timeout=5)
    except (grpc.aio.AioRpcError, Unavailable):
        return None
    return as_dict(reply)
