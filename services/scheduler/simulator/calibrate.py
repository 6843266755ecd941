"""Fit the simulator to the paper's table, and say honestly how well: python -m services.scheduler.simulator.calibrate

    --minutes 10 --out FILE.toml          search, and write the calibration
    --check NAME                          no search: errors of a calibration on fresh seeds, and the 2.4T run it predicts
    --hold-out A2,C2                      leave rows out of the fit and show how they are predicted
    --fix rebalance=false,group_share=0.3  fewer free parameters
    --start f1,f2                         calibrations to go on from
    --json                                the answer as one object

The free parameters, their ranges and their number: parameters.py. The observations: observations.py.
"""

import json
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from gyre.errors import GyreError
from services.scheduler.simulator import large_run, parameters
from services.scheduler.simulator.observations import NUM_OBSERVATIONS, Observation, loss, observe, rms, worst_row
from services.scheduler.simulator.rows import Calibration, calibration
from services.scheduler.simulator.search import search

FIT_SEEDS = range(1, 3)
"""What a search meets. More would be less noisy and slower."""
CHECK_SEEDS = range(2_001, 2_009)
"""Fresh ones, of which the errors are reported."""
LARGE_SEEDS = 3


@click.command()
@click.option("--minutes", type=float, default=10.0, show_default=True, help="How long to search.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the search.")
@click.option("--start", "starts", default="f1,f2", show_default=True, help="Calibrations to go on from.")
@click.option("--hold-out", "held_out", default="", help="Rows that the fit does not see.")
@click.option("--fix", "fixes", default="", help="Parameters that are not free, NAME=VALUE,…")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the calibration here.")
@click.option("--check", "checked", help="Only look at this calibration: a name or a file.")
@click.option("--json", "is_json", is_flag=True, help="One object on stdout.")
def calibrate(
    minutes: float,
    seed: int,
    starts: str,
    held_out: str,
    fixes: str,
    out: Path | None,
    checked: str | None,
    is_json: bool,
) -> None:
    """Search the free parameters against the paper's observations."""
    fixed = parameters.fixed(fixes)
    unseen = frozenset(name for name in held_out.split(",") if name)
    if checked:
        chosen = calibration(checked)
    else:
        points = [parameters.point_of(calibration(name)) for name in starts.split(",") if name]
        point, fitted, tried = search(minutes, seed, FIT_SEEDS, unseen, points, fixed)
        chosen = parameters.calibration_of(
            point, out.stem if out else "fitted", {"loss": fitted, "points_tried": tried}
        )
    found = list(observe(chosen, CHECK_SEEDS))
    fit = fit_of(found, unseen, fixed)
    chosen = msgspec.structs.replace(chosen, fit=chosen.fit | fit)
    if out:
        out.write_bytes(msgspec.toml.encode(chosen))
    large = large_run.predict(chosen, CHECK_SEEDS[:LARGE_SEEDS])
    if is_json:
        rows = {o.name: {"paper": o.paper, "ours": o.ours, "error": o.error} for o in found}
        click.echo(
            json.dumps(
                {"calibration": chosen.name, "seeds": len(CHECK_SEEDS), **fit, "found": rows, "large_run": large}
            )
        )
    else:
        click.echo(text_of(chosen, found, unseen, fixed) + "\n" + large_run.text_of(large))


def fit_of(found: list[Observation], unseen: frozenset[str], fixed: parameters.Point) -> dict[str, Any]:
    """For the calibration's file."""
    return {
        "free_parameters": parameters.NUM_FREE - len(fixed), "observations": NUM_OBSERVATIONS - len(unseen), "held_out": sorted(unseen),
        "rows_rms_error": round(rms(found), 4), "rows_worst_error": round(worst_row(found), 4), "fresh_loss": round(loss(found), 4),
        "errors": {observation.name: round(observation.error, 4) for observation in found},
    }  # fmt: skip


def text_of(chosen: Calibration, found: list[Observation], unseen: frozenset[str], fixed: parameters.Point) -> str:
    lines = [
        f"{chosen.name}: {parameters.NUM_FREE - len(fixed)} free parameters against {NUM_OBSERVATIONS - len(unseen)} observations; fresh seeds"
    ]
    for observation in sorted(found, key=lambda observation: observation.name):
        note = "  held out" if observation.name in unseen else ""
        lines.append(
            f"  {observation.name:<10} paper {observation.paper:6.3f}  ours {observation.ours:6.3f}  error {100 * observation.error:+6.1f} %{note}"
        )
    lines.append(f"  root mean square over the rows {100 * rms(found):.1f} %, worst {100 * worst_row(found):.1f} %")
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        calibrate()
    except GyreError as error:
        print(f"calibrate: {error}", file=sys.stderr)
        raise SystemExit(2) from None
