"""tools/compare.py: the same run under several settings, beside each other."""

import json
import sqlite3

from tools.compare import COLUMNS, measured, table

SUMMARY = {"success_before": 0.25, "success_after": 0.75, "wall_s": {"training": 60.0}}


def books(path) -> None:
    """Two steps and two samples; the third step was opened and not updated."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE steps (metrics_json TEXT)")
        for metrics in (
            {"compute_s": 2.0, "tokens": 10, "grad_norm": 1.0},
            {"compute_s": 3.0, "tokens": 20, "grad_norm": 2.0},
            None,
        ):
            database.execute("INSERT INTO steps VALUES (?)", (metrics and json.dumps(metrics),))
        database.execute(
            "CREATE TABLE samples (paths INT, targets_chosen INT, targets_sampled INT, segments INT, kappa REAL)"
        )
        database.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", [(1, 5, 10, 2, 0.5), (3, 0, 0, 4, 1.0)])


def test_a_run_is_read_from_its_summary_and_its_books(tmp_path):
    """Sums 2 + 3 s and 10 + 20 tokens, means 1.5, 2 paths, 3 segments, κ .75; a sample without sampled tokens has no share, so it is 5/10."""
    books(tmp_path / "ledger.db")
    found = measured(SUMMARY, tmp_path / "ledger.db")
    assert found == {
        "success_before": 0.25, "success_after": 0.75, "training_s": 60.0, "compute_s": 5.0, "tokens": 30, "targets": 0.0,
        "grad_norm": 1.5, "paths": 2.0, "targets_share": 0.5, "segments": 3.0, "kappa": 0.75,
    }  # fmt: skip
    assert set(found) == set(COLUMNS)


def test_several_seeds_of_a_setting_get_a_mean():
    """(1 + 3)/2 = 2; what was not measured is left empty and out of the mean."""
    found = {column: 1.0 for column in COLUMNS}
    lines = table(
        [("x=1", 1, found), ("x=1", 2, found | {"paths": 3.0, "kappa": None}), ("x=2", 1, found)]
    ).splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| x=1", "1"],
        ["| x=1", "2"],
        ["| x=1", "mean"],
        ["| x=2", "1"],
    ]
    assert lines[4].split(" | ")[2 + COLUMNS.index("paths")] == "2"
    assert lines[4].endswith(" 1 |") and lines[3].endswith("  |")
