"""A stored tree as JSON, for `gyre tree` and the trace explorer: `python -m services.trajproc --run DIR --print tree --name SAMPLE`.

Files are read, so the run may be over.
"""

import argparse
import json
import math
from typing import Any

from gyre.errors import InvalidInput
from gyre.run_folder import RunFolder
from services.trajproc import demonstrations
from services.trajproc.core.tree import NOT_SAMPLED
from services.trajproc.core.tree.stored import MappedTree
from services.trajproc.store import TreeReader


def options(parser: argparse.ArgumentParser) -> None:
    """What the trajectory processor takes beyond `--run`."""
    parser.add_argument(
        "--print", metavar="QUESTION", default="",
        help="answer one question as JSON on standard output and end: tree or tokens, of the sample that is named by --name",
    )  # fmt: skip
    parser.add_argument("--name", metavar="SAMPLE", default="", help="with --print: what it is asked about")
    demonstrations.options(parser)


def answer(folder: RunFolder, question: str, sample_id: str) -> str:
    """JSON text. Raises InvalidInput for a question there is not, NotFound for a sample without a tree."""
    if question not in ("tree", "tokens"):
        raise InvalidInput(f"{question!r} is no question; ask tree or tokens")
    reader = TreeReader(folder.trees)
    try:
        tree = reader.get(sample_id)
        return json.dumps(described(tree) if question == "tree" else with_tokens(tree))
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


def with_tokens(tree: MappedTree) -> dict[str, Any]:
    """`described`, and in each node its `ids`; where a call sampled it also `logprobs` (null where not finite) and `token_versions`."""
    found = described(tree)
    for node in found["nodes"]:
        number = node["node"]
        node["ids"] = tree.tokens(number).tolist()
        if node["call"] != NOT_SAMPLED:
            logprobs = tree.logprobs(number)
            node["logprobs"] = [value if math.isfinite(value) else None for value in logprobs.round(5).tolist()]
            node["token_versions"] = tree.versions(number).tolist()
    return found


def _node(tree: MappedTree, node: int, is_chosen: bool) -> dict[str, Any]:
    owner, versions = int(tree.owners[node]), tree.versions(node)
    is_sampled = owner != NOT_SAMPLED
    return {
        "node": node, "parent": int(tree.parents[node]), "start": int(tree.starts[node]), "tokens": int(tree.lengths[node]),
        "call": tree.calls[owner].call_index if is_sampled else NOT_SAMPLED, "role": tree.calls[owner].role if is_sampled else "",
        "versions": [int(versions.min()), int(versions.max())] if is_sampled else [], "chosen": is_chosen,
    }  # fmt: skip
