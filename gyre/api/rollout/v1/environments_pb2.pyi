from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttachRequest(_message.Message):
    __slots__ = ("request_id", "execution_id", "attempt", "hello", "started", "ended", "heartbeat")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    execution_id: str
    attempt: int
    hello: Hello
    started: Started
    ended: Ended
    heartbeat: Heartbeat
    def __init__(self, request_id: _Optional[str] = ..., execution_id: _Optional[str] = ..., attempt: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., started: _Optional[_Union[Started, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("request_id", "execution_id", "attempt", "welcome", "assignment", "cancel", "accepted", "refused", "suspend", "resume", "truncate")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    execution_id: str
    attempt: int
    welcome: Welcome
    assignment: Assignment
    cancel: Cancel
    accepted: Accepted
    refused: Refused
    suspend: Suspend
    resume: Resume
    truncate: Truncate
    def __init__(self, request_id: _Optional[str] = ..., execution_id: _Optional[str] = ..., attempt: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., suspend: _Optional[_Union[Suspend, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., truncate: _Optional[_Union[Truncate, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("environment", "slots", "instance_id", "running")
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    environment: str
    slots: int
    instance_id: str
    running: _containers.RepeatedCompositeFieldContainer[Running]
    def __init__(self, environment: _Optional[str] = ..., slots: _Optional[int] = ..., instance_id: _Optional[str] = ..., running: _Optional[_Iterable[_Union[Running, _Mapping]]] = ...) -> None: ...

class Running(_message.Message):
    __slots__ = ("execution_id", "attempt")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    attempt: int
    def __init__(self, execution_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("api_base", "model", "heartbeat_s", "unknown", "observation_bytes_max")
    API_BASE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_S_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    api_base: str
    model: str
    heartbeat_s: float
    unknown: _containers.RepeatedCompositeFieldContainer[Running]
    observation_bytes_max: int
    def __init__(self, api_base: _Optional[str] = ..., model: _Optional[str] = ..., heartbeat_s: _Optional[float] = ..., unknown: _Optional[_Iterable[_Union[Running, _Mapping]]] = ..., observation_bytes_max: _Optional[int] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("task_id", "task_type", "seed", "payload_json", "api_key", "wall_s", "turns_max", "context_tokens_max", "output_tokens_max", "temperature", "top_p", "traceparent")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    WALL_S_FIELD_NUMBER: _ClassVar[int]
    TURNS_MAX_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_MAX_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    task_type: str
    seed: int
    payload_json: str
    api_key: str
    wall_s: float
    turns_max: int
    context_tokens_max: int
    output_tokens_max: int
    temperature: float
    top_p: float
    traceparent: str
    def __init__(self, task_id: _Optional[str] = ..., task_type: _Optional[str] = ..., seed: _Optional[int] = ..., payload_json: _Optional[str] = ..., api_key: _Optional[str] = ..., wall_s: _Optional[float] = ..., turns_max: _Optional[int] = ..., context_tokens_max: _Optional[int] = ..., output_tokens_max: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., traceparent: _Optional[str] = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ("image_digest", "tool_versions", "dependency_snapshot", "is_replay")
    class ToolVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    IMAGE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOOL_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCY_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    IS_REPLAY_FIELD_NUMBER: _ClassVar[int]
    image_digest: str
    tool_versions: _containers.ScalarMap[str, str]
    dependency_snapshot: str
    is_replay: bool
    def __init__(self, image_digest: _Optional[str] = ..., tool_versions: _Optional[_Mapping[str, str]] = ..., dependency_snapshot: _Optional[str] = ..., is_replay: _Optional[bool] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("ending", "reason", "detail", "evaluation", "external_calls", "snapshots", "rollback_turns", "quota_left")
    ENDING_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_CALLS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_TURNS_FIELD_NUMBER: _ClassVar[int]
    QUOTA_LEFT_FIELD_NUMBER: _ClassVar[int]
    ending: str
    reason: str
    detail: str
    evaluation: Evaluation
    external_calls: int
    snapshots: int
    rollback_turns: int
    quota_left: int
    def __init__(self, ending: _Optional[str] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., evaluation: _Optional[_Union[Evaluation, _Mapping]] = ..., external_calls: _Optional[int] = ..., snapshots: _Optional[int] = ..., rollback_turns: _Optional[int] = ..., quota_left: _Optional[int] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("outcome", "valid", "milestones", "milestone_weights", "evidence_json", "tries", "milestone_turns")
    class MilestonesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bool
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bool] = ...) -> None: ...
    class MilestoneWeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class MilestoneTurnsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    VALID_FIELD_NUMBER: _ClassVar[int]
    MILESTONES_FIELD_NUMBER: _ClassVar[int]
    MILESTONE_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_JSON_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    MILESTONE_TURNS_FIELD_NUMBER: _ClassVar[int]
    outcome: float
    valid: bool
    milestones: _containers.ScalarMap[str, bool]
    milestone_weights: _containers.ScalarMap[str, float]
    evidence_json: str
    tries: int
    milestone_turns: _containers.ScalarMap[str, int]
    def __init__(self, outcome: _Optional[float] = ..., valid: _Optional[bool] = ..., milestones: _Optional[_Mapping[str, bool]] = ..., milestone_weights: _Optional[_Mapping[str, float]] = ..., evidence_json: _Optional[str] = ..., tries: _Optional[int] = ..., milestone_turns: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Suspend(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Truncate(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Refused(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
