from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EvaluateRequest(_message.Message):
    __slots__ = ("evaluator", "kind", "sample_id", "execution_id", "group_id", "attempt", "task_type", "payload_json", "ending", "reason", "partial", "outcome", "milestones", "evidence_json", "turns", "paths", "tool_calls")
    class MilestonesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bool
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bool] = ...) -> None: ...
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MILESTONES_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_JSON_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    evaluator: str
    kind: str
    sample_id: str
    execution_id: str
    group_id: str
    attempt: int
    task_type: str
    payload_json: str
    ending: str
    reason: str
    partial: bool
    outcome: float
    milestones: _containers.ScalarMap[str, bool]
    evidence_json: str
    turns: int
    paths: _containers.RepeatedCompositeFieldContainer[Path]
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    def __init__(self, evaluator: _Optional[str] = ..., kind: _Optional[str] = ..., sample_id: _Optional[str] = ..., execution_id: _Optional[str] = ..., group_id: _Optional[str] = ..., attempt: _Optional[int] = ..., task_type: _Optional[str] = ..., payload_json: _Optional[str] = ..., ending: _Optional[str] = ..., reason: _Optional[str] = ..., partial: _Optional[bool] = ..., outcome: _Optional[float] = ..., milestones: _Optional[_Mapping[str, bool]] = ..., evidence_json: _Optional[str] = ..., turns: _Optional[int] = ..., paths: _Optional[_Iterable[_Union[Path, _Mapping]]] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ...) -> None: ...

class Path(_message.Message):
    __slots__ = ("call_id", "role", "tokens", "text", "cut")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    role: str
    tokens: int
    text: str
    cut: bool
    def __init__(self, call_id: _Optional[str] = ..., role: _Optional[str] = ..., tokens: _Optional[int] = ..., text: _Optional[str] = ..., cut: _Optional[bool] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("call_index", "call_id", "arguments")
    CALL_INDEX_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    call_index: int
    call_id: str
    arguments: str
    def __init__(self, call_index: _Optional[int] = ..., call_id: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class EvaluateResponse(_message.Message):
    __slots__ = ("score", "valid", "evidence_json", "looked_at", "detail")
    SCORE_FIELD_NUMBER: _ClassVar[int]
    VALID_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_JSON_FIELD_NUMBER: _ClassVar[int]
    LOOKED_AT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    score: float
    valid: bool
    evidence_json: str
    looked_at: _containers.RepeatedScalarFieldContainer[str]
    detail: str
    def __init__(self, score: _Optional[float] = ..., valid: _Optional[bool] = ..., evidence_json: _Optional[str] = ..., looked_at: _Optional[_Iterable[str]] = ..., detail: _Optional[str] = ...) -> None: ...
