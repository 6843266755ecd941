"""A stored tree as JSON, for `gyre tree`: `python -m services.trajproc --run DIR --print tree SAMPLE`. Files are read, so the run may be over."""

import argparse
import json
from typing import Any

from gyre.errors import InvalidInput
from gyre.run_folder import RunFolder
from services.trajproc.core.tree import NOT_SAMPLED
from services.trajproc.core.tree.stored import MappedTree
from services.trajproc.store import TreeReader


def options(parser: argparse.ArgumentParser) -> None:
    """What the trajectory processor takes beyond `--run`."""
    parser.add_argument(
        "--print", nargs=2, metavar=("QUESTION", "ID"), default=[],
        help="answer one question as JSON on standard output and end: tree SAMPLE",
    )  # fmt: skip


def answer(folder: RunFolder, question: str, sample_id: str) -> str:
    """JSON text. Raises InvalidInput for a question there is not, NotFound for a sample without a tree."""
    if question != "tree":
        raise InvalidInput(f"{question!r} is no question; ask tree SAMPLE")
    reader = TreeReader(folder.trees)
    try:
        return json.dumps(described(reader.get(sample_id)))
    finally:
        reader.close()


def described(tree: MappedTree) -> dict[str, Any]:
    """Counts, calls, and nodes in depth-first order; a node's `call` is the index of the call that sampled it, −1 for prompt tokens."""
    chosen = tree.chosen
    return {
        "sample_id": tree.stored.sample_id,
        "tokens_unique": tree.tokens_unique,
        "tokens_flat": tree.tokens_flat,
        "tokens_sampled": tree.tokens_sampled,
        "calls": [
            {
                "call_id": call.call_id, "call_index": call.call_index, "role": call.role, "delivered": call.delivered,
                "prompt_tokens": call.prompt_tokens, "output_tokens": call.output_tokens, "finish_reason": call.finish_reason,
                "end": int(end),
            }
            for call, end in zip(tree.calls, tree.ends, strict=True)
        ],
        "set_aside": {name: {"reason": reason, "detail": detail} for name, (reason, detail) in tree.stored.set_aside.items()},
        "leaves": tree.stored.leaves,
        "nodes": [_node(tree, node, node in chosen) for node in range(1, len(tree.parents))],
    }  # fmt: skip


def _node(tree: MappedTree, node: int, is_chosen: bool) -> dict[str, Any]:
    owner, versions = int(tree.owners[node]), tree.versions(node)
    is_sampled = owner != NOT_SAMPLED
    return {
        "node": node, "parent": int(tree.parents[node]), "start": int(tree.starts[node]), "tokens": int(tree.lengths[node]),
        "call": tree.calls[owner].call_index if is_sampled else NOT_SAMPLED, "role": tree.calls[owner].role if is_sampled else "",
        "versions": [int(versions.min()), int(versions.max())] if is_sampled else [], "chosen": is_chosen,
    }  # fmt: skip
