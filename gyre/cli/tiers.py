"""`gyre tiers`: waits and promotions of duration tiers as curves (C1)."""

from pathlib import Path

import click

from gyre.cli.asking import ask_ledger
from gyre.cli.options import find_run, json_option, print_json, run_option
from gyre.cli.screen import clean, clock

BAR = 40


@click.command()
@click.option("--points", type=click.IntRange(1, 2_000), default=40, show_default=True, help="Points of each curve.")
@run_option
@json_option
def tiers(points: int, run_folder: Path | None, as_json: bool) -> None:
    """How long groups waited in each duration tier, as quantiles over time, and how aging promoted them; `gyre queues` has what waits now."""
    answer = ask_ledger(find_run(run_folder), "tiers", limit=points)
    if as_json:
        print_json(answer)
        return
    answer = clean(answer)
    for name, total in answer["tiers"].items():
        wait_s, starved = total["wait_s"], answer["starved"][name]
        click.echo(
            f"{name}: {total['groups']} groups ({total['executions']} executions), waited p50 {wait_s['p50']:.1f} s, p90 {wait_s['p90']:.1f} s, "
            f"p99 {wait_s['p99']:.1f} s, max {wait_s['max']:.1f} s; {total['promoted_share']:.0%} promoted"
            + (f"; {starved} waited longer than {answer['starvation_s']:g} s" if starved else "")
        )
        _curve(answer["curves"][name])
    for name, to in answer["arrived"].items():
        if set(to) != {name}:
            click.echo(f"{name} → " + ", ".join(f"{other} {count}" for other, count in to.items()))


def _curve(points: list[dict]) -> None:
    longest_s = max(point["wait_s"]["p99"] for point in points)
    for point in points:
        wait_s = point["wait_s"]
        middle, high = (round(BAR * wait_s[name] / longest_s) if longest_s else 0 for name in ("p50", "p99"))
        click.echo(
            f"  {clock(point['from_s'])}  p50 {wait_s['p50']:8.1f} s  p99 {wait_s['p99']:8.1f} s  promoted {point['promoted_share']:4.0%}  "
            f"{'█' * middle}{'░' * (high - middle)}"
        )
