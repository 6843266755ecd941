"""`gyre trace [SAMPLE_OR_TRACE]`: where the time of one sample went, or whether every trained sample's trace accounts for it (E)."""

from pathlib import Path
from typing import Any

import click

from gyre.cli.asking import ask_ledger
from gyre.cli.options import find_run, json_option, print_json, run_option
from gyre.cli.screen import clean

SPANS_MAX = 500


@click.command()
@click.argument("name", required=False, metavar="[SAMPLE_OR_TRACE]")
@run_option
@json_option
def trace(name: str | None, run_folder: Path | None, as_json: bool) -> None:
    """The spans of one sample's trace from dispatch to gradient; without a name, whether all trained samples' traces are whole (exit code 1: no)."""
    folder = find_run(run_folder)
    answer = ask_ledger(folder, "trace", name) if name else ask_ledger(folder, "coverage")
    if as_json:
        print_json(answer)
    elif name:
        _trace(clean(answer))
    else:
        _coverage(clean(answer))
    if not name and not answer["passed"]:
        raise SystemExit(1)


def _coverage(answer: dict[str, Any]) -> None:
    shares = answer["unaccounted_share"]
    mark = click.style("pass", fg="green") if answer["passed"] else click.style("FAIL", fg="red")
    click.echo(
        f"{mark}  {answer['traces']} traces, {answer['over']} over the line of {answer['line']:.0%}; {answer['untraced']} trained samples without"
    )
    if answer["deleted"]:
        click.echo(f"left out: {answer['deleted']} trained samples whose spans were deleted as old")
    click.echo(f"unaccounted: mean {shares['mean']:.2%}, p95 {shares['p95']:.2%}, max {shares['max']:.2%}")
    for gap in answer["gaps"]:
        click.echo(f"  between {gap['after']} and {gap['before']}: {gap['total_s']:.3f} s in {gap['traces']} traces")
    for one in answer["worst"]:
        click.echo(
            f"  {one['sample_id']}: {one['unaccounted_share']:.2%}, {one['unaccounted_s']:.3f} of {one['total_s']:.3f} s ({one['trace_id']})"
        )


def _trace(answer: dict[str, Any]) -> None:
    click.echo(f"trace {answer['trace_id']}  {answer['sample_id']}")
    click.echo(f"{answer['total_s']:.3f} s, of which {answer['unaccounted_s']:.3f} s in no span")
    for stage in answer["stages"]:
        click.echo(
            f"  {stage['stage']:<28} {stage['count']:>6}  {stage['total_s']:>10.3f} s  from {stage['start_s']:>9.3f}  to {stage['end_s']:>9.3f}"
        )
    begin_ns = min(span["start_ns"] for span in answer["spans"])
    for depth, span in tree(answer["spans"])[:SPANS_MAX]:
        took_s, at_s = (span["end_ns"] - span["start_ns"]) / 1e9, (span["start_ns"] - begin_ns) / 1e9
        click.echo(f"  {at_s:>10.3f} {took_s:>10.3f} s  {'  ' * min(depth, 20)}{span['name']}  ({span['service']})")
    if len(answer["spans"]) > SPANS_MAX:
        click.echo(f"  {len(answer['spans']) - SPANS_MAX} more spans: --json")


def tree(spans: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """(depth, span), each below its parent; a parent that is not there, or a cycle of parents, makes a span a root."""
    children: dict[str, list[dict[str, Any]]] = {}
    names = {span["span_id"] for span in spans}
    for span in spans:
        children.setdefault(span["parent_id"] if span["parent_id"] in names else "", []).append(span)
    shown: list[tuple[int, dict[str, Any]]] = []
    seen: set[str] = set()

    def below(roots: list[dict[str, Any]], depth: int) -> None:
        waiting = [(depth, span) for span in reversed(roots)]
        while waiting:
            level, span = waiting.pop()
            if span["span_id"] not in seen:
                seen.add(span["span_id"])
                shown.append((level, span))
                waiting += [(level + 1, child) for child in reversed(children.get(span["span_id"], []))]

    below(children.get("", []), 0)
    for span in spans:  # what only a cycle leads to
        below([span], 0)
    return shown
