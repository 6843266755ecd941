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
    __slots__ = ("sessions", "calls_running", "calls_waiting", "calls_recorded", "tokens_sampled", "environment_slots", "calls_by_cell", "calls_moved")
    class EnvironmentSlotsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class CallsByCellEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    CALLS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    CALLS_WAITING_FIELD_NUMBER: _ClassVar[int]
    CALLS_RECORDED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_SAMPLED_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    CALLS_BY_CELL_FIELD_NUMBER: _ClassVar[int]
    CALLS_MOVED_FIELD_NUMBER: _ClassVar[int]
    sessions: int
    calls_running: int
    calls_waiting: int
    calls_recorded: int
    tokens_sampled: int
    environment_slots: _containers.ScalarMap[str, int]
    calls_by_cell: _containers.ScalarMap[str, int]
    calls_moved: int
    def __init__(self, sessions: _Optional[int] = ..., calls_running: _Optional[int] = ..., calls_waiting: _Optional[int] = ..., calls_recorded: _Optional[int] = ..., tokens_sampled: _Optional[int] = ..., environment_slots: _Optional[_Mapping[str, int]] = ..., calls_by_cell: _Optional[_Mapping[str, int]] = ..., calls_moved: _Optional[int] = ...) -> None: ...
