"""What travels on the bus and is stored: msgspec structs, encoded as MessagePack.

Fields are added with defaults, never renamed, removed or re-used; `SCHEMA_VERSION` travels in every message's header.
Times are Unix seconds (`at_s`), durations end in `_s`, versions are optimizer steps done.
"""

from gyre.records.arrays import Row, array, pack
from gyre.records.call import CallRecorded, Sampling
from gyre.records.cell import (
    CELL_PHASES,
    BurstOpened,
    CellReported,
    PlanChosen,
    RoleChanged,
    WaterlevelChanged,
    WeightsPublished,
)
from gyre.records.codec import (
    SCHEMA_VERSION,
    Fact,
    decode_fact,
    decode_micro,
    decode_rows,
    decode_task,
    encode,
    encode_rows,
)
from gyre.records.execution import (
    Evaluation,
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
from gyre.records.lifecycle import DROP_REASONS, SET_ASIDE_REASONS, TRANSITIONS, ExecutionState, advance
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
from gyre.records.task import Limits, TaskDispatched, TaskSpec

__all__ = [
    "CELL_PHASES",
    "DROP_REASONS",
    "SCHEMA_VERSION",
    "SET_ASIDE_REASONS",
    "TRANSITIONS",
    "AlarmRaised",
    "BatchClosed",
    "BatchExtended",
    "BatchOverdue",
    "BurstOpened",
    "CallRecorded",
    "CallSetAside",
    "CellReported",
    "Evaluation",
    "ExecutionCommanded",
    "ExecutionEnded",
    "ExecutionLeased",
    "ExecutionResumed",
    "ExecutionStarted",
    "ExecutionState",
    "ExecutionSuspended",
    "Fact",
    "GroupDispatched",
    "GroupSubmitted",
    "Limits",
    "MicroStep",
    "PlanChosen",
    "RewardScored",
    "RewardWeighed",
    "RoleChanged",
    "Row",
    "RunStarted",
    "SampleDropped",
    "SampleReady",
    "Sampling",
    "StepJoined",
    "StepOpened",
    "StepUpdated",
    "TaskDispatched",
    "TaskSpec",
    "WaterlevelChanged",
    "WeightsPublished",
    "advance",
    "array",
    "decode_fact",
    "decode_micro",
    "decode_rows",
    "decode_task",
    "encode",
    "encode_rows",
    "pack",
]
