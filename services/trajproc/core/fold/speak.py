"""Intents → the messages that say them, by kind. Lazy: each may be folded before the next is made."""

from collections.abc import Callable, Iterator
from typing import Any

from services.trajproc.core import batch as batches
from services.trajproc.core import build, messages
from services.trajproc.core.fold import elites
from services.trajproc.core.fold.pool import Pool
from services.trajproc.core.state import sample_of


def set_aside(_pool: Pool, group: Any, now_s: float) -> Iterator[Any]:
    """Calls of a complete group that are left out of their trees."""
    yield from messages.set_aside(group, now_s)


def tell(pool: Pool, group: Any, now_s: float) -> Iterator[Any]:
    """A complete group: each member is ready, or dropped with its reason."""
    yield from messages.tell(group, pool.config, now_s)


def take(pool: Pool, group: Any, now_s: float) -> Iterator[Any]:
    """A group that the open batch took."""
    yield from messages.take(group, pool.batch, pool.config, pool.payload_bytes_max, now_s, pool.is_streaming)


def age(_pool: Pool, group: Any, now_s: float) -> Iterator[Any]:
    """A group that the batch found too old."""
    yield from messages.drop_aged(group, now_s)


def close(pool: Pool, batch: Any, now_s: float) -> Iterator[Any]:
    """The batch is complete; what it held back comes first, and what is trained again beside it."""
    for group in batch.held.values():
        yield from messages.micro_steps(group, batch, pool.config, pool.payload_bytes_max, now_s)
    replayed: dict[str, str] = {}
    for micro, elite in elites.micro_steps(pool, batch, now_s):
        replayed[micro.micro_id] = elite.sample_id
        yield micro
    yield batches.closed(batch, pool.config.turns_per_step, now_s, replayed)


def duplicate(_pool: Pool, ended: Any, now_s: float) -> Iterator[Any]:
    """The ending of an attempt that no longer counts."""
    yield build.dropped(ended, sample_of(ended), "duplicate", now_s, detail="an older attempt")


def untrainable(_pool: Pool, found: Any, now_s: float) -> Iterator[Any]:
    """A sample of a batch that the trainer found impossible."""
    ended, step = found.sample.ended, found.step
    yield build.dropped(
        ended, found.sample_id, "untrainable", now_s, step, step - found.sample.policy_version, found.why
    )


def as_it_is(_pool: Pool, fact: Any, _now_s: float) -> Iterator[Any]:
    """A fact that was made when it was decided: an alarm, a word on what is missing."""
    yield fact


SPEAKERS: dict[str, Callable[[Pool, Any, float], Iterator[Any]]] = {
    "set_aside": set_aside,
    "tell": tell,
    "take": take,
    "age": age,
    "close": close,
    "duplicate": duplicate,
    "untrainable": untrainable,
    "alarm": as_it_is,
    "overdue": as_it_is,
}
