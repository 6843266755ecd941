"""Recorded executions as an offline data set (D12): the tokens as they were, and which of them are to be learned.

    {"sample_id": …, "ids": [token id, …], "targets": [0 or 1, …]}      one line for each chosen path

Targets are what training takes too: tokens that a call of a trained role sampled whose record is sound. A path's ids are the very ones that
were sampled and served (B1); nothing is rendered or tokenised again, so a data set is of one tokenizer. A token that several chosen paths share
is a target in the first of them only (B6). `gyre export DIR --what demonstrations` writes such files, and the warm start takes them beside
messages.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gyre.run_folder import RunFolder
from services.trajproc.core.roles import TRAINED_ROLES
from services.trajproc.core.tree.stored import MappedTree
from services.trajproc.store import TreeReader


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--demonstrations", nargs=2, type=Path, metavar=("NAMES", "FILE"),
        help="write FILE of the samples that the file NAMES names, one a line, say what is in it as JSON, and end",
    )  # fmt: skip


def write(folder: RunFolder, names: Path, file: Path) -> str:
    """JSON text {path, samples, paths, tokens, targets, without_tree}; the file appears when it is whole. Raises NotFound where no tree is kept."""
    told = {"path": str(file), "samples": 0, "paths": 0, "tokens": 0, "targets": 0, "without_tree": 0}
    reader = TreeReader(folder.trees)
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("w") as out:
            for name, tree in reader.each(names.read_text().split()):
                if tree is None:
                    told["without_tree"] += 1
                    continue
                told["samples"] += 1
                for row in rows(tree):
                    out.write(json.dumps({"sample_id": name, **row}) + "\n")
                    told["paths"] += 1
                    told["tokens"] += len(row["ids"])
                    told["targets"] += sum(row["targets"])
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
        reader.close()
    return json.dumps(told)


def rows(tree: MappedTree) -> Iterator[dict[str, Any]]:
    """A row for each chosen path that has a target of its own."""
    seen: set[int] = set()
    set_aside = tree.stored.set_aside
    trained = [call.role in TRAINED_ROLES and call.call_id not in set_aside for call in tree.calls]
    may_be_target_C = np.array([*trained, False])  # the last entry answers for NOT_SAMPLED
    for leaf in tree.stored.leaves:
        path = tree.path(leaf)
        targets = [
            np.full(int(tree.lengths[node]), may_be_target_C[tree.owners[node]] and node not in seen) for node in path
        ]
        seen.update(path)
        if any(part.any() for part in targets):
            yield {"ids": tree.flatten(leaf).tolist(), "targets": np.concatenate(targets).astype(int).tolist()}
