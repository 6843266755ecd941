"""From call records to training rows: `gyre bench trajectories --json [--calls 400] [--tokens 1000000] [--branches 10]`.

One execution of branches of as many calls each. They leave the first at a reply or in the middle of one, or hang from the root with the system
prompt in common; a third of the new tokens are sampled, under two policy versions; every call brings as many new tokens. Records come shuffled.

    rows_s_1m             seconds from records in memory to sampled rows, for a million unique tokens; the median of --repeats
    bytes_ratio           what Python and numpy hold at their peak (tracemalloc) while records are decoded, kept, and made into rows that are all
                          kept, over 4 bytes for each unique token and 4 for the log-probability of each sampled one; encoded records not counted
    growth_1m_over_100k   CPU time per token, over that of an execution with a tenth of the calls and of the tokens; medians of --repeats in turn (CPU
                          time, because on a shared machine the longer one is interrupted and the shorter one is not)
"""

import argparse
import gc
import json
import statistics
import time
import tracemalloc

import numpy as np

from gyre import ids
from gyre.config import TrajprocConfig
from gyre.records import CallRecorded, Row, Sampling, decode_fact, encode, pack
from services.trajproc.core.rows import make_rows
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.tree import Tree, TreeBuilder

SAMPLED_SHARE = 1 / 3
SYSTEM_TOKENS_SHARE = 0.5
"""Of one call's new tokens: the prompt that every root branch begins with."""
VOCABULARY = 150_000
SAMPLE = "g000000-e0-a1"


def make_records(calls: int, tokens: int, branches: int, seed: int = 0) -> list[CallRecorded]:
    """About `tokens` unique tokens in `calls` calls on `branches` paths, shuffled."""
    rng = np.random.default_rng(seed)
    new = tokens // calls
    system = rng.integers(0, VOCABULARY, int(new * SYSTEM_TOKENS_SHARE))
    records: list[CallRecorded] = []
    length = calls // branches
    for branch in range(branches):
        for step in range(length):
            parent, cut, shared = records[-1] if step else None, 0, system if not step else system[:0]
            if branch and not step and branch % 3:
                parent, shared = records[int(rng.integers(max(1, length // 2)))], system[:0]
            if parent is not None:
                outputs = len(parent.output_ids) // 4
                cut = parent.prompt_tokens + (outputs if step or branch % 3 == 1 else outputs // 2)
            records.append(
                _record(rng, len(records), parent, cut, shared, new, "main" if branch < branches // 2 else "sub-agent")
            )
    rng.shuffle(records)
    return records


def _record(
    rng: np.random.Generator, index: int, parent: CallRecorded | None, cut: int, shared: np.ndarray, new: int, role: str
) -> CallRecorded:  # fmt: skip
    sampled = int(new * SAMPLED_SHARE)
    delta = np.concatenate([shared, rng.integers(0, VOCABULARY, new - sampled)])
    return CallRecorded(
        call_id=ids.call_id(SAMPLE, index), execution_id="g000000-e0", group_id="g000000", attempt=1, call_index=index,
        purpose="train", parent=parent.call_id if parent else "", parent_tokens=cut, prompt_delta=pack(delta, "int32"),
        prompt_tokens=cut + len(delta), output_ids=pack(rng.integers(0, VOCABULARY, sampled), "int32"),
        logprobs=pack(-rng.random(sampled), "float32"), versions=pack(np.arange(sampled) * 2 // sampled, "int32"),
        sampling=Sampling(temperature=1.0, top_p=1.0, max_tokens=sampled, seed=1), finish_reason="stop", role=role,
    )  # fmt: skip


def rows_of(records: list[CallRecorded], row_tokens_max: int) -> tuple[Tree, list[Row]]:
    """What the trajectory processor does with an execution: records one by one, then the sample."""
    builder = TreeBuilder()
    for record in records:
        builder.add(record)
    tree = builder.tree()
    paths = choose_paths(tree, SAMPLE, TrajprocConfig().paths_max)
    return tree, make_rows(tree, paths, SAMPLE, np.ones(len(tree.calls)), row_tokens_max)


def times_s(sizes: list[list[CallRecorded]], row_tokens_max: int, repeats: int) -> list[tuple[float, float]]:
    """For each of `sizes` its median time and CPU time; they take turns, so that a busy machine slows both."""
    took: list[list[tuple[float, float]]] = [[] for _ in sizes]
    for _ in range(repeats):
        for records, times in zip(sizes, took, strict=True):
            gc.collect()
            start_s, start_cpu_s = time.perf_counter(), time.process_time()
            rows_of(records, row_tokens_max)
            times.append((time.perf_counter() - start_s, time.process_time() - start_cpu_s))
    return [
        (statistics.median(wall for wall, _ in times), statistics.median(cpu for _, cpu in times)) for times in took
    ]


def peak_bytes(records: list[CallRecorded], row_tokens_max: int) -> tuple[int, int, int]:
    """(peak, of that the decoded records, of that the rows)."""
    wire = [encode(record) for record in records]
    gc.collect()
    tracemalloc.start()
    kept = [decode_fact(data) for data in wire]
    of_records = tracemalloc.get_traced_memory()[0]
    _, rows = rows_of(kept, row_tokens_max)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (
        peak,
        of_records,
        sum(
            len(getattr(row, name))
            for row in rows
            for name in row.__struct_fields__
            if isinstance(getattr(row, name), bytes)
        ),
    )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--json", action="store_true")
    asked.add_argument("--calls", type=int, default=400)
    asked.add_argument("--tokens", type=int, default=1_000_000)
    asked.add_argument("--branches", type=int, default=10)
    asked.add_argument("--row-tokens-max", type=int, default=131_072)
    asked.add_argument("--repeats", type=int, default=15)
    chosen = asked.parse_args()
    large = make_records(chosen.calls, chosen.tokens, chosen.branches)
    small = make_records(chosen.calls // 10, chosen.tokens // 10, chosen.branches)
    tree, rows = rows_of(large, chosen.row_tokens_max)
    unique_bytes = 4 * tree.tokens_unique + 4 * tree.tokens_sampled
    peak, of_records, of_rows = peak_bytes(large, chosen.row_tokens_max)
    small_tokens = rows_of(small, chosen.row_tokens_max)[0].tokens_unique
    (large_s, large_cpu_s), (small_s, small_cpu_s) = times_s([large, small], chosen.row_tokens_max, chosen.repeats)
    found = {
        "rows_s_1m": large_s * 1e6 / tree.tokens_unique,
        "bytes_ratio": peak / unique_bytes,
        "growth_1m_over_100k": (large_cpu_s / tree.tokens_unique) / (small_cpu_s / small_tokens),
        "calls": len(tree.calls), "branches": chosen.branches, "nodes": len(tree.parents),
        "tokens_unique": tree.tokens_unique, "tokens_flat": tree.tokens_flat, "tokens_sampled": tree.tokens_sampled,
        "rows": len(rows), "rows_tokens": sum(row.length for row in rows),
        "peak_bytes": peak, "records_bytes": of_records, "rows_bytes": of_rows, "unique_bytes": unique_bytes,
        "large_s": large_s, "small_s": small_s, "large_cpu_s": large_cpu_s, "small_cpu_s": small_cpu_s,
    }  # fmt: skip
    print(json.dumps(found, indent=None if chosen.json else 2))


if __name__ == "__main__":
    main()
