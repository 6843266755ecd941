"""`gyre executions suspend | resume | truncate | void | release`: commands to executions of a running run (C2)."""

import getpass
from collections.abc import Callable
from pathlib import Path

import click

from gyre.cli.live import as_dict, asked, in_one_loop, request_of
from gyre.cli.options import Group, find_run, json_option, print_json, run_option
from gyre.cli.screen import clean
from gyre.errors import InvalidInput


@click.group(cls=Group)
def executions() -> None:
    """Suspend, resume, truncate, void or release executions.

    IDS are executions (g000012-e3) or, with --group, groups (g000012) whose unfinished executions are all meant. The command is on record when
    this returns; the gateway carries it out within a second, and `gyre status` and `gyre explain` show what came of it.
    """


def _command(name: str, text: str) -> Callable[..., None]:
    """One subcommand; the words are gyre.api.scheduler.v1.Command's."""

    @executions.command(name, help=text)
    @click.argument("ids", nargs=-1, required=True)
    @click.option("--group", "is_group", is_flag=True, help="IDS name groups.")
    @click.option("--reason", default="", help="Why, for the books.")
    @run_option
    @json_option
    def command(ids: tuple[str, ...], is_group: bool, reason: str, run_folder: Path | None, as_json: bool) -> None:
        _send(name, ids, is_group, reason, run_folder, as_json)

    return command


suspend = _command("suspend", "Model calls wait and the wall clock stands still; what is queued is not given out.")
resume = _command("resume", "What was suspended goes on where it was.")
truncate = _command("truncate", "It ends where it stands and is scored on what it left behind, as when its time is up.")
void = _command("void", "It ends now, as `voided`, and is never trained.")
release = _command(
    "release", "It is given out again as the next attempt; what the present attempt still says counts no longer."
)


def _send(word: str, ids: tuple[str, ...], is_group: bool, reason: str, run_folder: Path | None, as_json: bool) -> None:
    from gyre.api.scheduler.v1 import scheduler_pb2 as pb

    for name in ids:
        if is_group == ("-" in name):
            hint = (
                "groups are named like g000012" if is_group else "executions like g000012-e3; for a group add --group"
            )
            raise InvalidInput(f"`{name}` is no {'group' if is_group else 'execution'}: {hint}")
    request = request_of(
        pb.CommandExecutionsRequest,
        command=pb.Command.Value(f"COMMAND_{word.upper()}"),
        ids=ids,
        by=getpass.getuser(),
        reason=reason,
    )
    answer = as_dict(in_one_loop(asked(find_run(run_folder), "CommandExecutions", request)))
    if as_json:
        print_json(answer)
    else:
        answer = clean(answer)
        for one in answer["commanded"]:
            click.echo(f"{one['execution_id']}: {word} (was {one['state']}, command {one['ordinal']})")
        for one in answer["refused"]:
            click.echo(click.style("refused", fg="red") + f"  {one['message']}", err=True)
    if answer["refused"]:
        raise SystemExit(2)
