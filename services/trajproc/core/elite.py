"""The elite store (D9): a small pool of executions that are worth training again, each once, mixed into later batches.

Key = sha256 of the task and of the tokens that are trained, in their contexts: the same solution of the same task is kept once. Admitted are
successes that a batch has trained; among them *turning points*, successes of a group in which less than half of the rewarded members
succeeded, stay longest. Bounded by count and bytes. What is replayed stands outside its old group's baseline and the new batch's: it keeps
the credit it had.

A fold of facts: what is held, and how often it was replayed, follows from SampleReady, BatchExtended and BatchClosed. The rows themselves
lie in files, which are a cache: whatever is lost is made again from the records when the facts are folded, or is not replayed.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gyre.records import Row, array, pack
from services.trajproc.core.origins import are_mixed

TURNING_SHARE = 0.5
"""A success is a turning point where fewer than this share of its group's rewarded members succeeded."""


def key_of(task_id: str, rows: Sequence[Row]) -> str:
    """64 hexadecimal digits. Tokens, how they hang together, and which of them are targets of one call; not log-probabilities, versions or credit,
    nor how many other calls there were before: calls are counted as they first appear."""
    digest = hashlib.sha256(task_id.encode())
    for row in rows:
        for part in (row.tokens, row.run_lengths, row.run_parents, _in_order_of_appearance(row.sequences)):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def _in_order_of_appearance(sequences: bytes) -> bytes:
    """int32[T]: calls, −1 where a token is no target → 0, 1, … by their first target."""
    calls_T = array(sequences, "int32")
    found, first, inverse_T = np.unique(calls_T, return_index=True, return_inverse=True)
    first = np.where(found < 0, -1, first)  # stands before all calls
    ranks = np.empty(len(found), np.int64)
    ranks[np.argsort(first)] = np.arange(len(found))
    return pack(ranks[inverse_T] - (found < 0).any(), "int32")


def is_turning(successes: int, rewarded: int) -> bool:
    """Whether a success of this group is a turning point."""
    return successes < TURNING_SHARE * rewarded


@dataclass(slots=True)
class Elite:
    """One execution of the store."""

    key: str
    sample_id: str
    group_id: str
    task_type: str
    origin: str
    policy_version: int
    """v_d, from which its age runs on."""
    bytes: int
    is_turning: bool
    order: int
    """Of admission."""
    replays: int = 0
    """How often it was trained again."""


class EliteStore:
    """At most `count_max` executions and `bytes_max` bytes of rows."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max, self._bytes_max = count_max, bytes_max
        self._held: dict[str, Elite] = {}
        self._admitted = 0
        self.bytes = 0
        self.repeats = 0
        """Successes that were held already."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def __iter__(self) -> Iterator[Elite]:
        return iter(self._held.values())

    def admit(self, found: Elite) -> list[str]:
        """Keys that had to leave; the new one's own where it is too large. One that is held already stays as it is: it is the older policy's no more
        and no less."""
        if found.key in self._held:
            self.repeats += 1
            return []
        self._admitted += 1
        found.order = self._admitted
        self._held[found.key] = found
        self.bytes += found.bytes
        gone = []
        while len(self._held) > self._count_max or self.bytes > self._bytes_max:
            worst = min(self._held.values(), key=lambda one: (one.is_turning, one.order))
            gone.append(self._drop(worst.key))
        return gone

    def expire(self, step: int, age_steps_max: int) -> list[str]:
        """Keys of those that are over the age cap, which leave."""
        return [self._drop(one.key) for one in list(self._held.values()) if step - one.policy_version > age_steps_max]

    def remove(self, sample_id: str) -> list[str]:
        """Keys held of this sample, which leave."""
        return [self._drop(one.key) for one in list(self._held.values()) if one.sample_id == sample_id]

    def choose(self, count: int, groups: Iterable[str], origins: Iterable[str]) -> list[Elite]:
        """The next to be replayed into a batch of `groups` with samples of `origins`: least replayed first, turning points before others, the
        oldest admission first. None of a group of the batch itself, none that would mix replays and resamples (C3)."""
        taken, mixed = set(groups), set(origins)
        chosen: list[Elite] = []
        for one in sorted(self._held.values(), key=lambda one: (one.replays, not one.is_turning, one.order)):
            if len(chosen) >= count:
                break
            if one.group_id not in taken and not are_mixed(mixed | {one.origin}):
                chosen.append(one)
                mixed.add(one.origin)
        return chosen

    def replayed(self, sample_ids: Iterable[str]) -> None:
        """A closed batch has trained these again."""
        names = set(sample_ids)
        for one in self._held.values():
            one.replays += one.sample_id in names

    def _drop(self, key: str) -> str:
        self.bytes -= self._held.pop(key).bytes
        return key
