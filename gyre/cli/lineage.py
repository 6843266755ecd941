"""`gyre lineage NAME`: step ↔ samples ↔ groups ↔ weight versions, from any of them."""

from pathlib import Path

import click

from gyre.cli.asking import ask_ledger
from gyre.cli.options import find_run, json_option, print_json, run_option
from gyre.cli.screen import clean, clock


@click.command()
@click.argument("name")
@click.option(
    "--after", default="", metavar="CURSOR", help="The page of samples after this one: `next` of the page before."
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Samples of a page.")
@run_option
@json_option
def lineage(name: str, after: str, limit: int, run_folder: Path | None, as_json: bool) -> None:
    """Which steps trained what, sampled by which weights. NAME: a step (12), a weight version (v12), a group (g000012), an execution or a sample.

    From a step: its samples, their groups, the versions that sampled them. From a version: what it sampled, and which steps were trained on it.
    """
    answer = ask_ledger(find_run(run_folder), "lineage", name, after=after, limit=limit)
    if as_json:
        print_json(answer)
        return
    answer = clean(answer)
    counts = answer["counts"]
    click.echo(f"{answer['kind']} {answer['name']}: {counts['samples']} samples of {counts['groups']} groups")
    for step in answer["steps"]:
        replays = f" and {step['replays']} replays" if step["replays"] else ""
        click.echo(
            f"  step {step['step']} → version {_or_none(step['version'])}: trained {step['samples']}{replays} of them"
        )
    for version in answer["versions"]:
        made = "the start" if version["made_by_step"] is None else f"step {version['made_by_step']}"
        at_s = version["published_at_s"]
        when = f", published {clock(at_s)}" if at_s else ""
        click.echo(
            f"  version {version['version']} of {made}{when}: sampled {version['tokens']:,} tokens of {version['samples']} of them"
        )
    for group in answer["groups"]:
        click.echo(
            f"  group {group['group_id']}, dispatched at version {_or_none(group['policy_version'])}: {group['samples']}"
        )
    for sample in answer["samples"]:
        fate = f"step {sample['step']}" if sample["step"] is not None else sample["dropped"] or "not trained"
        click.echo(
            f"    {sample['sample_id']}  {fate}  versions {_or_none(sample['version_min'])} to {_or_none(sample['version_max'])}"
        )
    if answer["next"]:
        click.echo(f"  more: --after {answer['next']}")


def _or_none(value: int | None) -> str:
    return "—" if value is None else str(value)
