"""`gyre simulate`: hands over to the simulator, which lives with the scheduler whose policy it runs."""

import os
import sys

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", metavar="SPEC.toml | --ablation", nargs=-1, type=click.UNPROCESSED)
def simulate(arguments: tuple[str, ...]) -> None:
    """What a configuration would do, in virtual time, before any compute is spent.

    \b
    SPEC.toml            cluster, workload, training and scheduler settings
    --set FIELD=VALUE    override one field of SPEC
    --seed N             the first seed of SPEC
    --limit SECONDS      how long one seed's run may take, an hour by default
    --plot FILE.svg      picture of cell roles, waterlevel and staleness
    
    --ablation           the published ablation instead, every row and the best of each mode
    --calibration NAME   the cluster it is computed on
    --quick              without the search for each mode's best
    
    --seeds N            of both: how many seeds
    --json               of both: JSON for programs, with --ablation one object a line
    """
    os.execv(sys.executable, [sys.executable, "-m", "services.scheduler.simulator", *arguments])
