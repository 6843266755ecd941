"""What is shown of a run."""

from rich.console import Console

from gyre import records as r
from gyre.cli.training.panel import View, show_summary
from gyre.cli.training.progress import Progress
from gyre.cli.training.summary import summarize
from gyre.config.load import parse
from tests.unit.cli.test_progress import change, closed, dispatched, drop, folded, updated


def test_a_cell_that_trains_shows_its_strip_and_the_staleness_stands_beside_the_law():
    """A3, A5: a terminal shows one strip a cell; a log gets the same in one line."""
    progress = folded(
        *change("cell-0", 0, "rollout", 0), *change("cell-0", 1, "training", 20), dispatched("g000001", 2), closed(0, 0.5, 1),
        updated(0, "g000001-e0-a1"), drop("g000001-e1-a1", "no_gradient"),
        r.WaterlevelChanged(waterlevel=3, dispatched=5, finished=2, capacity=64, outstanding_groups=1, policy_version=1, burst=1, at_s=30),
    )  # fmt: skip
    view = View(progress, steps=4, law=0.5, run="demo")
    console = Console(width=110, record=True, file=open("/dev/null", "w"))
    console.print(view.render())
    text = console.export_text()
    for expected in ("cell-0", "█", "▄", "1 of 4", "3 of 64", "0.50 (law 0.5)", "no_gradient 1", "demo"):
        assert expected in text
    line = view.line()
    assert "step 1/4" in line and "waterlevel 3/64" in line and "cells T" in line and "\n" not in line


def test_the_end_of_a_run_shows_a_failed_audit():
    console = Console(width=100, record=True, file=open("/dev/null", "w"))
    config = parse({"model": {"path": "m"}}, "test")
    show_summary(console, summarize(config, "f", Progress(), [], [], {"age_cap": False}, {}, {}))
    assert "FAIL" in console.export_text()
