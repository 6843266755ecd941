"""Cost of snapshots: `gyre bench snapshots --json [--files 2000] [--file-bytes 8000] [--changed 20] [--folder DIR]`.

A tree of --files files of random text; --changed of them are rewritten between two snapshots.

    first_s, first_bytes       the first snapshot of the tree: seconds, and bytes written to the store
    second_s, second_bytes     the second, after the change
    growth_ratio               bytes written by the second, over those that changed: 1 and the listings of the changed folders
    unchanged_s                a third, of a tree that nobody touched
    restore_s                  the first one restored in the tree's place
    record_call_ms             what the record adds to a tool call with a result of 2 kB
    record_outside_call_ms     the same of a call outside, which is made to last
    clones                     whether the file system shares blocks (files beyond 1 MiB)
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

from gyre.env import StepResult, ToolCall
from gyre.env.recording import Journal, Redactor, Tape
from gyre.env.snapshots import Series, Store, trees


def measure(folder: Path, files: int, file_bytes: int, changed: int, settle_s: float) -> dict[str, float]:
    rng, tree = random.Random(0), folder / "tree"
    for index in range(files):
        path = tree / f"d{index % 50}" / f"f{index}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(file_bytes))
    time.sleep(settle_s)  # files that were just written are read again by the next snapshot
    series = Series(Store(folder / "store"), "bench")
    first = series.take(tree)
    for index in range(changed):
        (tree / f"d{index % 50}" / f"f{index}").write_bytes(rng.randbytes(file_bytes))
    second, third = series.take(tree), series.take(tree)
    begun_s = time.perf_counter()
    series.restore(first.digest, tree)
    restore_s = time.perf_counter() - begun_s
    return {
        "first_s": first.took_s, "first_bytes": first.bytes_written, "second_s": second.took_s, "second_bytes": second.bytes_written,
        "growth_ratio": second.bytes_written / (changed * file_bytes), "unchanged_s": third.took_s, "restore_s": restore_s,
        "record_call_ms": record_call_ms(folder, set()), "record_outside_call_ms": record_call_ms(folder, {"tool"}),
    }  # fmt: skip


def record_call_ms(folder: Path, outside: set[str], calls: int = 200) -> float:
    """Median over `calls` of a tool that answers at once."""
    journal = Journal(Tape(folder / f"{len(outside)}.tape", Redactor()), outside)
    result, took = StepResult(content="a line of a program, and its output\n" * 57), []

    async def answer() -> StepResult:
        return result

    async def call() -> None:
        for index in range(calls):
            begun_s = time.perf_counter()
            await journal.call(ToolCall(call_id="c", name="tool", arguments={"path": f"src/{index}.py"}), answer)
            took.append(time.perf_counter() - begun_s)

    asyncio.run(call())
    journal.close()
    return 1000 * statistics.median(took)


def can_clone(folder: Path) -> bool:
    (folder / "a").write_bytes(b"x" * 4096)
    source, target = os.open(folder / "a", os.O_RDONLY), os.open(folder / "b", os.O_RDWR | os.O_CREAT)
    try:
        return trees.clone(source, target)
    finally:
        os.close(source)
        os.close(target)


def main() -> None:
    parser = argparse.ArgumentParser(prog="gyre bench snapshots", description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--file-bytes", type=int, default=8000)
    parser.add_argument("--changed", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where to measure; a temporary folder if none is given")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    runs = []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            runs.append(measure(Path(folder), options.files, options.file_bytes, options.changed, settle_s=1.1))
            clones = can_clone(Path(folder))
    found = {name: round(statistics.median(run[name] for run in runs), 5) for name in runs[0]}
    found |= {"files": options.files, "file_bytes": options.file_bytes, "changed": options.changed, "clones": clones}
    print(json.dumps(found) if options.json else "\n".join(f"{name:16} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
