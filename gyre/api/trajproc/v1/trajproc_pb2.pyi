from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStateResponse(_message.Message):
    __slots__ = ("step", "batch_open", "turns", "turns_target", "ready_groups", "unfinished_groups", "oldest_ready_age_steps", "dropped", "no_gradient_batches", "set_aside", "evaluations_waiting", "evaluations_failed", "trees_kept", "trees_lost", "overdue", "overdue_now", "elites")
    class DroppedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class SetAsideEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class EvaluationsFailedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class OverdueEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STEP_FIELD_NUMBER: _ClassVar[int]
    BATCH_OPEN_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    TURNS_TARGET_FIELD_NUMBER: _ClassVar[int]
    READY_GROUPS_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_READY_AGE_STEPS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    NO_GRADIENT_BATCHES_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_WAITING_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_FAILED_FIELD_NUMBER: _ClassVar[int]
    TREES_KEPT_FIELD_NUMBER: _ClassVar[int]
    TREES_LOST_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_NOW_FIELD_NUMBER: _ClassVar[int]
    ELITES_FIELD_NUMBER: _ClassVar[int]
    step: int
    batch_open: bool
    turns: int
    turns_target: int
    ready_groups: int
    unfinished_groups: int
    oldest_ready_age_steps: int
    dropped: _containers.ScalarMap[str, int]
    no_gradient_batches: int
    set_aside: _containers.ScalarMap[str, int]
    evaluations_waiting: int
    evaluations_failed: _containers.ScalarMap[str, int]
    trees_kept: int
    trees_lost: int
    overdue: _containers.ScalarMap[str, int]
    overdue_now: int
    elites: int
    def __init__(self, step: _Optional[int] = ..., batch_open: _Optional[bool] = ..., turns: _Optional[int] = ..., turns_target: _Optional[int] = ..., ready_groups: _Optional[int] = ..., unfinished_groups: _Optional[int] = ..., oldest_ready_age_steps: _Optional[int] = ..., dropped: _Optional[_Mapping[str, int]] = ..., no_gradient_batches: _Optional[int] = ..., set_aside: _Optional[_Mapping[str, int]] = ..., evaluations_waiting: _Optional[int] = ..., evaluations_failed: _Optional[_Mapping[str, int]] = ..., trees_kept: _Optional[int] = ..., trees_lost: _Optional[int] = ..., overdue: _Optional[_Mapping[str, int]] = ..., overdue_now: _Optional[int] = ..., elites: _Optional[int] = ...) -> None: ...
