"""The streams, declared here and nowhere else. Services check them at start; `gyre up` declares them once.

GYRE_FACTS   every fact, in one total order: call records come before the ending that counts them. Kept; readers replay it.
GYRE_TASKS   work queue of dispatched executions; unacknowledged while an execution runs (its lease).
GYRE_MICRO   work queue of micro-steps; unacknowledged until the optimizer has stepped.
GYRE_DEAD    what could not be understood, with its reason.
KV_GYRE_CLAIMS   a key-value bucket: which gateway serves which session (gyre.bus.claims). The newest value of each key.
"""

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from gyre.bus.subjects import PREFIX

FACTS = "GYRE_FACTS"
TASKS = "GYRE_TASKS"
MICRO = "GYRE_MICRO"
DEAD = "GYRE_DEAD"
CLAIMS = "KV_GYRE_CLAIMS"
CLAIM_SUBJECT = "$KV.GYRE_CLAIMS"
CLAIMS_AGE_S = 7 * 24 * 3600.0
"""A claim on a session that nobody wrote anew for this long is forgotten; it is then made again at the next call."""

_FACT_NOUNS = (
    "run", "group", "execution", "call", "cell", "waterlevel", "weights", "reward", "sample", "batch", "step", "burst", "plan", "alarm",
)  # fmt: skip

DUPLICATE_WINDOW_S = 120.0
"""A help against repeats, not the guarantee: that is each consumer's natural key."""

DECLARE_TRIES = 10

STREAMS: dict[str, StreamConfig] = {
    FACTS: StreamConfig(
        name=FACTS,
        subjects=[f"{PREFIX}.*.{noun}.>" for noun in _FACT_NOUNS],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        duplicate_window=DUPLICATE_WINDOW_S,
    ),
    TASKS: StreamConfig(
        name=TASKS,
        subjects=[f"{PREFIX}.*.task.dispatched.>"],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        duplicate_window=DUPLICATE_WINDOW_S,
        discard=DiscardPolicy.NEW,
    ),
    MICRO: StreamConfig(
        name=MICRO,
        subjects=[f"{PREFIX}.*.micro.ready.>"],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        duplicate_window=DUPLICATE_WINDOW_S,
        discard=DiscardPolicy.NEW,
    ),
    CLAIMS: StreamConfig(
        name=CLAIMS,
        subjects=[f"{CLAIM_SUBJECT}.>"],
        max_msgs_per_subject=1,
        max_age=CLAIMS_AGE_S,
        storage=StorageType.FILE,
        duplicate_window=DUPLICATE_WINDOW_S,
    ),
    DEAD: StreamConfig(
        name=DEAD, subjects=[f"{PREFIX}.*.dead.>"], storage=StorageType.FILE, max_bytes=256 * 1024 * 1024
    ),
}


async def declare_streams(js: JetStreamContext) -> None:
    """Create the streams, or update them to this declaration. A server whose disk is slow is asked again: to ask twice changes nothing."""
    for config in STREAMS.values():
        for tries_left in reversed(range(DECLARE_TRIES)):
            try:
                await _declare(js, config)
                break
            except TimeoutError:
                if not tries_left:
                    raise


async def _declare(js: JetStreamContext, config: StreamConfig) -> None:
    try:
        await js.update_stream(config)
    except TimeoutError:
        raise
    except Exception:  # nats-py raises different classes for "no such stream" by server version
        await js.add_stream(config)


async def missing_streams(js: JetStreamContext) -> list[str]:
    """Names of declared streams that the server does not have."""
    have = {info.config.name for info in await js.streams_info()}
    return [name for name in STREAMS if name not in have]
