"""`gyre agreement`: do reward models say what people say, and what weight does that leave them (D8)?"""

from pathlib import Path

import click

from gyre.cli.asking import ask_ledger, run_ledger
from gyre.cli.options import find_run, json_option, print_json, run_option
from gyre.cli.screen import clean


@click.command()
@click.option(
    "--import", "file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="First take in judgements: .csv, .jsonl or .parquet with sample_id, judge, score, and kind (person, model) and at_s where they differ "
         "from person and now.",
)  # fmt: skip
@click.option(
    "--apply", "is_applied", is_flag=True,
    help="Give each learned evaluator of the running run the weight that people's agreement leaves it, for groups judged from now on.",
)  # fmt: skip
@run_option
@json_option
def agreement(file: Path | None, is_applied: bool, run_folder: Path | None, as_json: bool) -> None:
    """Pairwise agreement of reward models with people, its 95 % interval, and the weight that it leaves each model.

    Of all pairs of samples that people order, the share that the model orders the same way. A model's score of a sample is the imported one, else
    what it said while the run went on. An import that shows drift raises the alarm `reward_drift` where the run is up.
    """
    folder = find_run(run_folder)
    taken = run_ledger(folder, "--import-judgements", str(file.resolve())) if file else None
    applied = run_ledger(folder, "--apply-agreement") if is_applied else None
    told = {**(taken or {}), **(applied or {})}
    answer = told["agreement"] if told else ask_ledger(folder, "agreement")
    if as_json:
        print_json(told or answer)
        return
    if taken:
        _taken(clean(taken))
    answer = clean(answer)
    click.echo(
        ", ".join(f"{name} judged {count}" for name, count in answer["people"].items()) or "nobody has judged a sample"
    )
    for model in answer["models"]:
        _model(model)
    for one in clean(applied["applied"]) if applied else ():
        click.echo(f"{one['evaluator']}: weight {one['was']:.3f} -> {one['weight']:.3f} for groups judged from now on")
    if applied and not applied["applied"]:
        click.echo("every weight is in force already")


def _taken(taken: dict) -> None:
    click.echo(f"{taken['stored']} judgements taken in, {taken['refused']} refused")
    for one in taken["examples"]:
        click.echo(f"  row {one['row']}: {one['why']}", err=True)
    for words in taken["alarms"]:
        said = "alarm raised" if taken["raised"] else "no alarm raised, as the run is over"
        click.echo(click.style("drift", fg="red") + f"  {words} ({said})")


def _model(model: dict) -> None:
    if model["agreement"] is None:
        click.echo(f"{model['model']}: {model['samples']} samples judged by both, no pair that people order")
        return
    kept = f"; weight {model['weight']:.2f}"
    if model["configured_weight"] is not None:
        kept += f" of its {model['configured_weight']:g}: {model['weight'] * model['configured_weight']:.3f}"
    if model["in_force"]:
        kept += f", in force: {model['in_force']['weight']:.3f}"
    click.echo(f"{model['model']}: {_share(model)} of {model['pairs']} pairs of {model['samples']} samples{kept}")
    for day, part in model["by_day"].items():
        if part["agreement"] is not None:
            click.echo(f"  {day}  {_share(part)} of {part['pairs']} pairs")
    for task_type, part in model["by_type"].items():
        if part["agreement"] is not None and len(model["by_type"]) > 1:
            click.echo(f"  {task_type}  {_share(part)} of {part['pairs']} pairs")


def _share(part: dict) -> str:
    return f"{part['agreement']:.1%} ({part['low']:.1%} to {part['high']:.1%})"
