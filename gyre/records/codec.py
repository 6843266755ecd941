"""Encoding of records: MessagePack with a tag, so that a reader knows what it holds."""

from typing import Any

import msgspec

from gyre.errors import InvalidInput
from gyre.records.arrays import Row
from gyre.records.call import CallRecorded
from gyre.records.cell import BurstOpened, CellReported, PlanChosen, RoleChanged, WaterlevelChanged, WeightsPublished
from gyre.records.execution import (
    ExecutionCommanded,
    ExecutionEnded,
    ExecutionLeased,
    ExecutionResumed,
    ExecutionStarted,
    ExecutionSuspended,
    GroupDispatched,
    GroupSubmitted,
    RunStarted,
)
from gyre.records.reward import RewardScored, RewardWeighed
from gyre.records.sample import CallSetAside, SampleDropped, SampleReady
from gyre.records.step import (
    AlarmRaised,
    BatchClosed,
    BatchExtended,
    BatchOverdue,
    MicroStep,
    StepJoined,
    StepOpened,
    StepUpdated,
)
from gyre.records.task import TaskDispatched

SCHEMA_VERSION = 1

Fact = (
    RunStarted
    | GroupSubmitted
    | GroupDispatched
    | ExecutionLeased
    | ExecutionStarted
    | ExecutionCommanded
    | ExecutionSuspended
    | ExecutionResumed
    | ExecutionEnded
    | CallRecorded
    | CallSetAside
    | RoleChanged
    | CellReported
    | BurstOpened
    | PlanChosen
    | WaterlevelChanged
    | WeightsPublished
    | RewardScored
    | RewardWeighed
    | SampleReady
    | SampleDropped
    | StepOpened
    | BatchExtended
    | BatchOverdue
    | BatchClosed
    | StepJoined
    | StepUpdated
    | AlarmRaised
)
"""Everything on the facts stream."""

_encoder = msgspec.msgpack.Encoder()
_fact_decoder = msgspec.msgpack.Decoder(Fact)
_task_decoder = msgspec.msgpack.Decoder(TaskDispatched)
_micro_decoder = msgspec.msgpack.Decoder(MicroStep)
_rows_decoder = msgspec.msgpack.Decoder(list[Row])


def encode(record: msgspec.Struct) -> bytes:
    return _encoder.encode(record)


def decode_fact(data: bytes) -> Fact:
    """Raises InvalidInput when the bytes are no known fact (poison)."""
    return _decode(_fact_decoder, data)


def decode_task(data: bytes) -> TaskDispatched:
    return _decode(_task_decoder, data)


def decode_micro(data: bytes) -> MicroStep:
    return _decode(_micro_decoder, data)


def encode_rows(rows: list[Row]) -> bytes:
    """Rows by themselves, for the blob store (MicroStep.blob)."""
    return _encoder.encode(rows)


def decode_rows(data: bytes) -> list[Row]:
    return _decode(_rows_decoder, data)


def _decode(decoder: "msgspec.msgpack.Decoder[Any]", data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"not a record of schema {SCHEMA_VERSION}: {error}") from error
