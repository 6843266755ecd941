"""How things are named. Names are deterministic, so that a second delivery or a second run gives the same name.

    group      g000012                   a task, dispatched once
    execution  g000012-e3                member 3 of the group
    sample     g000012-e3-a1             attempt 1 of that execution: the primary key of all evidence
    call       g000012-e3-a1-c7          model call 7 of that attempt
    micro-step s000004-g000012-m0        piece 0 of group 12 in the batch of step 4

No name contains `.`, `*`, `>` or white space: each is one token of a bus subject. Numbers are zero-padded so that
names sort as they were made.
"""

import hashlib
import re

from gyre.numbers import is_count

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")


def group_id(index: int) -> str:
    return f"g{index:06d}"


def execution_id(group: str, member: int) -> str:
    return f"{group}-e{member}"


def sample_id(execution: str, attempt: int) -> str:
    return f"{execution}-a{attempt}"


def call_id(sample: str, call_index: int) -> str:
    return f"{sample}-c{call_index}"


def micro_id(step: int, group: str, piece: int) -> str:
    return f"s{step:06d}-{group}-m{piece}"


def cell_id(index: int) -> str:
    """Cell 0 is the core (A2)."""
    return f"cell-{index}"


def split_sample_id(sample: str) -> tuple[str, int]:
    """`g000012-e3-a1` → (`g000012-e3`, 1). Raises ValueError when it is not a sample's name."""
    execution, separator, attempt = sample.rpartition("-a")
    if not separator or not is_count(attempt) or not execution:
        raise ValueError(f"{sample!r} is not a sample id such as g000012-e3-a1")
    return execution, int(attempt)


def is_token(name: str) -> bool:
    """Whether `name` may stand as one token of a bus subject."""
    return _TOKEN.fullmatch(name) is not None


def seed_for(*parts: object) -> int:
    """A 63-bit seed that depends on all `parts` and nothing else (stable across processes and Python versions)."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
