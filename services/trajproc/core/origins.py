"""Where samples come from (C3): a first attempt, a resample in a new environment, a replay on a snapshot of an earlier attempt's environment.

Replays share a past with the attempt that they go on from, resamples do not: they are counted apart and never stand in one batch. A group that a
batch cannot take for this reason waits for the next one.
"""

from collections.abc import Iterable

from services.trajproc.core.state import Batch, Group, Member, Verdict

FIRST, RESAMPLE, REPLAY = "first", "resample", "replay"
APART = frozenset({RESAMPLE, REPLAY})


def origin_of(member: Member) -> str:
    """Of an execution that has ended."""
    if member.is_replay:
        return REPLAY
    return RESAMPLE if member.ended is not None and member.ended.attempt > 1 else FIRST


def are_mixed(origins: Iterable[str]) -> bool:
    return set(origins) >= APART


def separate(verdicts: list[Verdict]) -> None:
    """Inside one group resampled members stay and replays leave, so that some batch can take it."""
    kept = [verdict for verdict in verdicts if not verdict.drop]
    if are_mixed(verdict.origin for verdict in kept):
        for verdict in kept:
            if verdict.origin == REPLAY:
                verdict.drop = "mixed"


def fits(group: Group, batch: Batch) -> bool:
    """Whether the batch may take the group."""
    return not are_mixed([*batch.origins, *(verdict.origin for verdict in group.trainable)])
