"""The same run under several settings, one after the other, beside each other in a table.

    python tools/compare.py examples/repair/branching.toml --vary trajproc.paths_max=1,5,0 --seeds 1,2 --out runs/paths

Runs of one seed begin with the model that the first of them made (recipe and warm start), so only what varies differs. A run that is there
already (its summary was written) is not made again. Each run wants the whole machine: what it takes is part of what is compared.
"""

import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

COLUMNS = (
    "success_before", "success_after", "training_s", "compute_s", "tokens", "targets", "grad_norm", "paths", "targets_share", "segments", "kappa",
)  # fmt: skip
"""Of one run: verified success before and after; seconds of training; sums over the steps: seconds of forward and backward, tokens computed, targets;
means: gradient norm by step; by sample: chosen paths, share of its sampled tokens that is trained, segments, κ."""


def run(config: str, folder: Path, settings: Sequence[str]) -> dict[str, Any]:
    """The run's summary; it is made where it is not there yet. Raises CalledProcessError where the run fails."""
    written = folder.with_suffix(".json")
    if not written.exists():
        gyre = str(Path(sys.executable).with_name("gyre"))
        command = [gyre, "train", config, "--run-dir", str(folder), "--summary", str(written)]
        subprocess.run([*command, *(word for one in settings for word in ("--set", one))], check=True)
    return json.loads(written.read_text())


def measured(summary: dict[str, Any], database: Path) -> dict[str, float]:
    """COLUMNS of one run, from its summary and its books."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as books:
        steps = [
            json.loads(text)
            for (text,) in books.execute("SELECT metrics_json FROM steps WHERE metrics_json IS NOT NULL")
        ]
        samples = books.execute(
            "SELECT avg(paths), avg(1.0 * targets_chosen / nullif(targets_sampled, 0)), avg(segments), avg(kappa) FROM samples"
        )
        paths, share, segments, kappa = samples.fetchone()
    sums = {name: sum(step.get(name, 0.0) for step in steps) for name in ("compute_s", "tokens", "targets")}
    return {
        "success_before": summary["success_before"], "success_after": summary["success_after"],
        "training_s": summary["wall_s"].get("training"), **sums,
        "grad_norm": statistics.fmean(step.get("grad_norm", 0.0) for step in steps) if steps else None,
        "paths": paths, "targets_share": share, "segments": segments, "kappa": kappa,
    }  # fmt: skip


def table(rows: Sequence[tuple[str, int, dict[str, float | None]]]) -> str:
    """Markdown: a line for each (setting, seed), and for each setting with several seeds the mean over them."""
    lines = ["| setting | seed | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for name in dict.fromkeys(name for name, _, _ in rows):
        same = [(seed, found) for own, seed, found in rows if own == name]
        lines += [_line(name, str(seed), found) for seed, found in same]
        if len(same) > 1:
            means = {column: _mean([found[column] for _, found in same]) for column in COLUMNS}
            lines.append(_line(name, "mean", means))
    return "\n".join(lines)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _line(name: str, seed: str, found: dict[str, float | None]) -> str:
    cells = ["" if found[column] is None else f"{found[column]:.4g}" for column in COLUMNS]
    return f"| {name} | {seed} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config")
    parser.add_argument("--vary", required=True, help="SECTION.FIELD=VALUE,VALUE,…")
    parser.add_argument(
        "--set", action="append", default=[], help="SECTION.FIELD=VALUE for all of them; may be repeated"
    )
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    field, _, values = options.vary.partition("=")
    rows: list[tuple[str, int, dict[str, float | None]]] = []
    for seed in map(int, options.seeds.split(",")):
        model: Path | None = None
        for value in values.split(","):
            folder = (options.out / f"{field.rpartition('.')[2]}-{value}-seed{seed}").resolve()
            settings = [*options.set, f"{field}={value}", f"run.seed={seed}"]
            summary = run(options.config, folder, settings + ([f"model.path={model}"] if model else []))
            if model is None and (folder / "model").exists():  # not where the configuration names one
                model = folder / "model"
            rows.append((f"{field}={value}", seed, measured(summary, folder / "ledger.db")))
            print(table(rows), flush=True)


if __name__ == "__main__":
    main()
