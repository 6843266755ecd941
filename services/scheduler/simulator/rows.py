"""The paper's ablation (arXiv 2609.33848, table 1): its rows as data over a calibration, all at the same mean staleness.

A calibration (data/calibrations/*.toml) says what the cluster, the workload and training are, and a few choices that the paper does not state
(how long a burst a mode uses, how many nodes train in async). A row (data/ablation.toml) says which mode it is and names the choices it takes;
φ follows from the staleness that all rows share. There is no other freedom: no row has a parameter that is not listed in the calibration.
"""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from gyre.config.staleness import burst_max, depth_steps, mean_steps
from gyre.errors import InvalidInput
from services.scheduler.simulator.spec import Spec, merged, parse

DATA = Path(__file__).parent / "data"
DEFAULT_CALIBRATION = "paper"


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the table. A text in place of a number names a choice of the calibration."""

    row: str
    what: str
    mode: str
    paper: float | None = None
    """Wall time of the first 12 steps relative to E0."""
    paper_other: float | None = None
    """The same where the paper can be read in two ways."""
    streaming: bool = True
    steps_per_publish: int | str = 1
    cell_nodes: list[int | str] = []
    """Cells in order; `rest` is what the others leave of the cluster."""
    cells: int = 0
    """Instead: so many equal cells."""
    standalone_cells: int = 0
    role_transfer: bool = True
    scheduler: dict[str, Any] = {}
    """Further knobs of the policy."""
    rebalance: bool | None = None


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all rows share."""

    name: str
    about: str = ""
    nodes: int = 32
    staleness_steps: float
    """s; every row has φ = s − (μ − 1)/2."""
    choices: dict[str, int]
    """What the paper leaves open, by name."""
    base: dict[str, Any]
    """Cluster, workload, training and group sizes, as in a specification."""
    fit: dict[str, Any] = {}
    """How it was found and how well it fits, for readers."""


def rows() -> list[Row]:
    return msgspec.convert(tomllib.loads((DATA / "ablation.toml").read_text())["rows"], list[Row])


def calibration(name: str = DEFAULT_CALIBRATION) -> Calibration:
    """By name, or by the path of a file. Raises InvalidInput."""
    path = Path(name) if name.endswith(".toml") else DATA / "calibrations" / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in (DATA / "calibrations").glob("*.toml")))
        raise InvalidInput(f"there is no calibration {name!r}; there are {known}, or give the path of a .toml file")
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Calibration)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{path}: {error}") from error


def spec_of(row: Row, chosen: Calibration, **knobs: Any) -> Spec:
    """The row under this calibration; `knobs` lay further policy settings over it (φ follows from them all)."""
    burst = _number(row.steps_per_publish, chosen)
    burst = knobs.get("steps_per_publish", burst)
    dispatch = (row.scheduler | knobs).get("dispatch", "boundary")
    depth = depth_steps(chosen.staleness_steps, burst, dispatch)
    if depth < 0:
        raise InvalidInput(
            f"{row.row}: bursts of {burst} steps have a mean staleness of {mean_steps(0.0, burst, dispatch):g} at least; at "
            f"{chosen.staleness_steps:g} at most {burst_max(chosen.staleness_steps, dispatch)} steps are possible"
        )
    nodes = _cells(row, chosen)
    scheduler = {
        "mode": row.mode, "cells": len(nodes), "streaming": row.streaming, "steps_per_publish": burst, "extra_depth_steps": depth,
        "standalone_cells": row.standalone_cells, "training_cells": len(nodes) - row.standalone_cells if row.mode == "async" else 0,
    }  # fmt: skip
    cluster = {"cell_nodes": nodes, "role_transfer": row.role_transfer}
    if row.rebalance is not None:
        cluster["rebalance"] = row.rebalance
    tree = merged(chosen.base, {"name": row.row, "cluster": cluster, "scheduler": scheduler | row.scheduler | knobs})
    return parse(tree)


def _cells(row: Row, chosen: Calibration) -> list[int]:
    if row.cells:
        return [chosen.nodes // row.cells] * row.cells
    given = [None if count == "rest" else _number(count, chosen) for count in row.cell_nodes]
    rest = chosen.nodes - sum(count for count in given if count is not None)
    if rest < 0 or (rest < 1 and None in given):
        raise InvalidInput(f"{row.row}: cells of {given} nodes do not fit into {chosen.nodes}")
    return [rest if count is None else count for count in given]


def _number(value: int | str, chosen: Calibration) -> int:
    if isinstance(value, int):
        return value
    if value not in chosen.choices:
        raise InvalidInput(
            f"calibration {chosen.name}: choice `{value}` is missing; there are {', '.join(chosen.choices)}"
        )
    return chosen.choices[value]
