from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Command(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMMAND_UNSPECIFIED: _ClassVar[Command]
    COMMAND_SUSPEND: _ClassVar[Command]
    COMMAND_RESUME: _ClassVar[Command]
    COMMAND_VOID: _ClassVar[Command]
    COMMAND_RELEASE: _ClassVar[Command]
    COMMAND_TRUNCATE: _ClassVar[Command]
COMMAND_UNSPECIFIED: Command
COMMAND_SUSPEND: Command
COMMAND_RESUME: Command
COMMAND_VOID: Command
COMMAND_RELEASE: Command
COMMAND_TRUNCATE: Command

class Task(_message.Message):
    __slots__ = ("task_id", "task_type", "environment", "seed", "payload_json", "tenant", "purpose", "group_size", "temperature", "top_p", "limits")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    task_type: str
    environment: str
    seed: int
    payload_json: str
    tenant: str
    purpose: str
    group_size: int
    temperature: float
    top_p: float
    limits: Limits
    def __init__(self, task_id: _Optional[str] = ..., task_type: _Optional[str] = ..., environment: _Optional[str] = ..., seed: _Optional[int] = ..., payload_json: _Optional[str] = ..., tenant: _Optional[str] = ..., purpose: _Optional[str] = ..., group_size: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("wall_s", "turns_max", "context_tokens_max", "output_tokens_max", "tokens_max", "calls_max", "concurrency_max")
    WALL_S_FIELD_NUMBER: _ClassVar[int]
    TURNS_MAX_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    CALLS_MAX_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_MAX_FIELD_NUMBER: _ClassVar[int]
    wall_s: float
    turns_max: int
    context_tokens_max: int
    output_tokens_max: int
    tokens_max: int
    calls_max: int
    concurrency_max: int
    def __init__(self, wall_s: _Optional[float] = ..., turns_max: _Optional[int] = ..., context_tokens_max: _Optional[int] = ..., output_tokens_max: _Optional[int] = ..., tokens_max: _Optional[int] = ..., calls_max: _Optional[int] = ..., concurrency_max: _Optional[int] = ...) -> None: ...

class SubmitTasksRequest(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ...) -> None: ...

class SubmitTasksResponse(_message.Message):
    __slots__ = ("group_ids",)
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    group_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class StartTrainingRequest(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: int
    def __init__(self, steps: _Optional[int] = ...) -> None: ...

class StartTrainingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CellState(_message.Message):
    __slots__ = ("cell", "target", "phase", "changes")
    CELL_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    cell: str
    target: str
    phase: str
    changes: int
    def __init__(self, cell: _Optional[str] = ..., target: _Optional[str] = ..., phase: _Optional[str] = ..., changes: _Optional[int] = ...) -> None: ...

class GetStateResponse(_message.Message):
    __slots__ = ("cells", "waterlevel", "capacity", "policy_version", "burst", "outstanding_groups", "queued_groups", "steps_done", "steps_wanted", "dispatched", "finished", "executions_by_state", "refused_transitions")
    class ExecutionsByStateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class RefusedTransitionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CELLS_FIELD_NUMBER: _ClassVar[int]
    WATERLEVEL_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    OUTSTANDING_GROUPS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    STEPS_DONE_FIELD_NUMBER: _ClassVar[int]
    STEPS_WANTED_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    EXECUTIONS_BY_STATE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedCompositeFieldContainer[CellState]
    waterlevel: int
    capacity: int
    policy_version: int
    burst: int
    outstanding_groups: int
    queued_groups: int
    steps_done: int
    steps_wanted: int
    dispatched: int
    finished: int
    executions_by_state: _containers.ScalarMap[str, int]
    refused_transitions: _containers.ScalarMap[str, int]
    def __init__(self, cells: _Optional[_Iterable[_Union[CellState, _Mapping]]] = ..., waterlevel: _Optional[int] = ..., capacity: _Optional[int] = ..., policy_version: _Optional[int] = ..., burst: _Optional[int] = ..., outstanding_groups: _Optional[int] = ..., queued_groups: _Optional[int] = ..., steps_done: _Optional[int] = ..., steps_wanted: _Optional[int] = ..., dispatched: _Optional[int] = ..., finished: _Optional[int] = ..., executions_by_state: _Optional[_Mapping[str, int]] = ..., refused_transitions: _Optional[_Mapping[str, int]] = ...) -> None: ...

class CommandExecutionsRequest(_message.Message):
    __slots__ = ("command", "ids", "by", "reason")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    command: Command
    ids: _containers.RepeatedScalarFieldContainer[str]
    by: str
    reason: str
    def __init__(self, command: _Optional[_Union[Command, str]] = ..., ids: _Optional[_Iterable[str]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CommandExecutionsResponse(_message.Message):
    __slots__ = ("commanded", "refused")
    COMMANDED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    commanded: _containers.RepeatedCompositeFieldContainer[CommandedExecution]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedExecution]
    def __init__(self, commanded: _Optional[_Iterable[_Union[CommandedExecution, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[RefusedExecution, _Mapping]]] = ...) -> None: ...

class CommandedExecution(_message.Message):
    __slots__ = ("execution_id", "ordinal", "state")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    ordinal: int
    state: str
    def __init__(self, execution_id: _Optional[str] = ..., ordinal: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...

class RefusedExecution(_message.Message):
    __slots__ = ("id", "code", "message")
    ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    code: str
    message: str
    def __init__(self, id: _Optional[str] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class WatchWaterlevelRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchWaterlevelResponse(_message.Message):
    __slots__ = ("waterlevel", "dispatched", "finished", "capacity", "outstanding_groups", "policy_version", "burst", "at_s", "lost")
    WATERLEVEL_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    OUTSTANDING_GROUPS_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    waterlevel: int
    dispatched: int
    finished: int
    capacity: int
    outstanding_groups: int
    policy_version: int
    burst: int
    at_s: float
    lost: int
    def __init__(self, waterlevel: _Optional[int] = ..., dispatched: _Optional[int] = ..., finished: _Optional[int] = ..., capacity: _Optional[int] = ..., outstanding_groups: _Optional[int] = ..., policy_version: _Optional[int] = ..., burst: _Optional[int] = ..., at_s: _Optional[float] = ..., lost: _Optional[int] = ...) -> None: ...

class WatchRolesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRolesResponse(_message.Message):
    __slots__ = ("cell", "change", "target", "phase", "at_s", "duration_s", "burst", "moved_calls", "lost")
    CELL_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    BURST_FIELD_NUMBER: _ClassVar[int]
    MOVED_CALLS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    cell: str
    change: int
    target: str
    phase: str
    at_s: float
    duration_s: float
    burst: int
    moved_calls: int
    lost: int
    def __init__(self, cell: _Optional[str] = ..., change: _Optional[int] = ..., target: _Optional[str] = ..., phase: _Optional[str] = ..., at_s: _Optional[float] = ..., duration_s: _Optional[float] = ..., burst: _Optional[int] = ..., moved_calls: _Optional[int] = ..., lost: _Optional[int] = ...) -> None: ...

class GetQueuesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetQueuesResponse(_message.Message):
    __slots__ = ("tiers", "evaluations")
    TIERS_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    tiers: _containers.RepeatedCompositeFieldContainer[TierQueue]
    evaluations: int
    def __init__(self, tiers: _Optional[_Iterable[_Union[TierQueue, _Mapping]]] = ..., evaluations: _Optional[int] = ...) -> None: ...

class TierQueue(_message.Message):
    __slots__ = ("tier", "waiting_groups", "queue_max", "unfinished_executions", "concurrency_max", "wait_s_max", "promotions", "waiting_by_tenant", "queue_max_by_tenant")
    class WaitingByTenantEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class QueueMaxByTenantEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TIER_FIELD_NUMBER: _ClassVar[int]
    WAITING_GROUPS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MAX_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_MAX_FIELD_NUMBER: _ClassVar[int]
    PROMOTIONS_FIELD_NUMBER: _ClassVar[int]
    WAITING_BY_TENANT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MAX_BY_TENANT_FIELD_NUMBER: _ClassVar[int]
    tier: str
    waiting_groups: int
    queue_max: int
    unfinished_executions: int
    concurrency_max: int
    wait_s_max: float
    promotions: int
    waiting_by_tenant: _containers.ScalarMap[str, int]
    queue_max_by_tenant: _containers.ScalarMap[str, int]
    def __init__(self, tier: _Optional[str] = ..., waiting_groups: _Optional[int] = ..., queue_max: _Optional[int] = ..., unfinished_executions: _Optional[int] = ..., concurrency_max: _Optional[int] = ..., wait_s_max: _Optional[float] = ..., promotions: _Optional[int] = ..., waiting_by_tenant: _Optional[_Mapping[str, int]] = ..., queue_max_by_tenant: _Optional[_Mapping[str, int]] = ...) -> None: ...

class WhatIfRequest(_message.Message):
    __slots__ = ("knobs", "limit_s", "seeds")
    class KnobsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KNOBS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    knobs: _containers.ScalarMap[str, str]
    limit_s: float
    seeds: int
    def __init__(self, knobs: _Optional[_Mapping[str, str]] = ..., limit_s: _Optional[float] = ..., seeds: _Optional[int] = ...) -> None: ...

class WhatIfResponse(_message.Message):
    __slots__ = ("unchanged", "changed", "time_ratio", "time_ratio_error", "seeds", "measured_step_s", "basis")
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    TIME_RATIO_FIELD_NUMBER: _ClassVar[int]
    TIME_RATIO_ERROR_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_STEP_S_FIELD_NUMBER: _ClassVar[int]
    BASIS_FIELD_NUMBER: _ClassVar[int]
    unchanged: Prediction
    changed: Prediction
    time_ratio: float
    time_ratio_error: float
    seeds: int
    measured_step_s: float
    basis: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, unchanged: _Optional[_Union[Prediction, _Mapping]] = ..., changed: _Optional[_Union[Prediction, _Mapping]] = ..., time_ratio: _Optional[float] = ..., time_ratio_error: _Optional[float] = ..., seeds: _Optional[int] = ..., measured_step_s: _Optional[float] = ..., basis: _Optional[_Iterable[str]] = ...) -> None: ...

class Prediction(_message.Message):
    __slots__ = ("step_s", "step_s_error", "staleness_mean", "staleness_max", "token_staleness_mean", "timed_out_share", "idle_share", "role_changes_per_step")
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    STEP_S_ERROR_FIELD_NUMBER: _ClassVar[int]
    STALENESS_MEAN_FIELD_NUMBER: _ClassVar[int]
    STALENESS_MAX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_STALENESS_MEAN_FIELD_NUMBER: _ClassVar[int]
    TIMED_OUT_SHARE_FIELD_NUMBER: _ClassVar[int]
    IDLE_SHARE_FIELD_NUMBER: _ClassVar[int]
    ROLE_CHANGES_PER_STEP_FIELD_NUMBER: _ClassVar[int]
    step_s: float
    step_s_error: float
    staleness_mean: float
    staleness_max: int
    token_staleness_mean: float
    timed_out_share: float
    idle_share: float
    role_changes_per_step: float
    def __init__(self, step_s: _Optional[float] = ..., step_s_error: _Optional[float] = ..., staleness_mean: _Optional[float] = ..., staleness_max: _Optional[int] = ..., token_staleness_mean: _Optional[float] = ..., timed_out_share: _Optional[float] = ..., idle_share: _Optional[float] = ..., role_changes_per_step: _Optional[float] = ...) -> None: ...
