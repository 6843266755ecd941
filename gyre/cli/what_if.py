"""`gyre what-if --set scheduler.extra_depth_steps=1`: simulate a running run with other scheduler settings."""

from pathlib import Path
from typing import Any

import click

from gyre.cli.live import as_dict, asked, in_one_loop, request_of
from gyre.cli.options import find_run, json_option, print_json, run_option
from gyre.errors import InvalidInput

GRACE_S = 10.0
ROWS = (
    ("step_s", "time of a step, s", "{:.3g}"), ("staleness_mean", "mean staleness, steps", "{:.2f}"),
    ("staleness_max", "largest staleness, steps", "{}"), ("token_staleness_mean", "mean staleness of tokens", "{:.2f}"),
    ("timed_out_share", "executions cut by the wall limit", "{:.1%}"), ("idle_share", "idle share of the cells", "{:.1%}"),
    ("role_changes_per_step", "role changes a step", "{:.2f}"),
)  # fmt: skip


@click.command("what-if")
@click.option(
    "--set",
    "settings",
    multiple=True,
    required=True,
    metavar="scheduler.FIELD=VALUE",
    help="A changed setting; may be repeated.",
)
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(0, 600, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds of simulation; what is done by then is the answer.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=8,
    show_default=True,
    help="Draws of the workload, the same for both variants.",
)
@run_option
@json_option
def what_if(settings: tuple[str, ...], limit_s: float, seeds: int, run_folder: Path | None, as_json: bool) -> None:
    """What other scheduler settings would do to time and staleness, by simulation from what the run has measured.

    Compares the knobs in force with the changed ones, in steady state. Nothing of the run is changed.
    """
    from gyre.api.scheduler.v1 import scheduler_pb2 as pb

    request = request_of(pb.WhatIfRequest, knobs=dict(map(_knob, settings)), limit_s=limit_s, seeds=seeds)
    answer = as_dict(in_one_loop(asked(find_run(run_folder), "WhatIf", request, limit_s + GRACE_S)))
    if as_json:
        print_json(answer)
    else:
        _tell(answer)


def _knob(setting: str) -> tuple[str, str]:
    name, separator, value = setting.partition("=")
    section, dot, field = name.strip().partition(".")
    if not separator or not dot or section != "scheduler":
        raise InvalidInput(f"--set {setting}: write scheduler.field=value; for anything else there is `gyre simulate`")
    return field, value.strip()


def _tell(answer: dict[str, Any]) -> None:
    click.echo(f"{'':36}{'unchanged':>12}{'changed':>12}")
    for name, text, form in ROWS:
        values = [form.format(answer[variant].get(name, 0)) for variant in ("unchanged", "changed")]
        click.echo(f"{text:36}{values[0]:>12}{values[1]:>12}")
    click.echo(
        f"\ntime {answer['time_ratio']:.3f} ± {answer['time_ratio_error']:.3f} of unchanged, over {answer['seeds']} seeds"
    )
    if answer["measured_step_s"]:
        click.echo(f"this run has really taken {answer['measured_step_s']:.3g} s a step so far")
    for line in answer["basis"]:
        click.echo(f"  {line}")
