"""`gyre tree SAMPLE`: the contexts of one sample's model calls, what they share, and what of them is trained."""

from pathlib import Path
from typing import Any

import click

from gyre.cli.asking import run_service
from gyre.cli.options import find_run, json_option, print_json, run_option
from gyre.cli.screen import clean

ANSWER_S = 60.0


@click.command()
@click.argument("sample")
@run_option
@json_option
def tree(sample: str, run_folder: Path | None, as_json: bool) -> None:
    """The tree of SAMPLE, e.g. g000012-e3-a1: who sampled what in which context, which tokens are shared, which paths were chosen."""
    found = run_service("trajproc", find_run(run_folder), "--print=tree", f"--name={sample}", timeout_s=ANSWER_S)
    if as_json:
        print_json(found)
        return
    found = clean(found)
    click.echo(
        f"{found['sample_id']}: {len(found['calls'])} calls, {found['tokens_unique']} tokens ({found['tokens_sampled']} sampled), "
        f"{found['tokens_flat']} in flattened paths; {len(found['leaves'])} paths chosen (●)"
    )
    for line in lines(found):
        click.echo(line)
    for name, problem in found["set_aside"].items():
        click.echo(f"{name} set aside: {problem['reason']}, {problem['detail']}")


def lines(found: dict[str, Any]) -> list[str]:
    """One line a node; a node is indented below another where contexts part, and stands under it where they go on."""
    nodes = {node["node"]: node for node in found["nodes"]}
    children: dict[int, int] = {}
    for node in nodes.values():
        children[node["parent"]] = children.get(node["parent"], 0) + 1
    depth = {0: -1}
    ends: dict[int, list[str]] = {}
    for call in found["calls"]:
        mark = "" if call["delivered"] else ", never delivered"
        ends.setdefault(call["end"], []).append(f"{call['call_index']} {call['role']}{mark}")
    shown = []
    for number, node in nodes.items():
        parts = children[node["parent"]] > 1 or node["parent"] == 0
        depth[number] = depth[node["parent"]] + parts
        what = f"call {node['call']}, {node['role']}{_versions(node['versions'])}" if node["call"] >= 0 else "prompt"
        end = f"  ◂ end of call {'; '.join(ends[number])}" if number in ends else ""
        sign = "●" if node["chosen"] else "○"
        shown.append(f"{'  ' * depth[number]}{sign} {node['tokens']:>6} tokens at {node['start']}: {what}{end}")
    return shown


def _versions(bounds: list[int]) -> str:
    if not bounds:
        return ""
    return f", version {bounds[0]}" + (f"–{bounds[1]}" if bounds[1] != bounds[0] else "")
