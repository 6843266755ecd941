from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GenerateRequest(_message.Message):
    __slots__ = ("call_id", "session", "prompt_ids", "resume_ids", "max_tokens", "temperature", "top_p", "seed", "stop_ids", "chunk_tokens", "prompt", "known", "known_tokens")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PROMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    RESUME_IDS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_IDS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    KNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    session: str
    prompt_ids: _containers.RepeatedScalarFieldContainer[int]
    resume_ids: _containers.RepeatedScalarFieldContainer[int]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop_ids: _containers.RepeatedScalarFieldContainer[int]
    chunk_tokens: int
    prompt: bytes
    known: str
    known_tokens: int
    def __init__(self, call_id: _Optional[str] = ..., session: _Optional[str] = ..., prompt_ids: _Optional[_Iterable[int]] = ..., resume_ids: _Optional[_Iterable[int]] = ..., max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ..., stop_ids: _Optional[_Iterable[int]] = ..., chunk_tokens: _Optional[int] = ..., prompt: _Optional[bytes] = ..., known: _Optional[str] = ..., known_tokens: _Optional[int] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("ids", "logprobs", "versions", "finish_reason", "reused_tokens", "known")
    IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    REUSED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    versions: _containers.RepeatedScalarFieldContainer[int]
    finish_reason: str
    reused_tokens: int
    known: str
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., versions: _Optional[_Iterable[int]] = ..., finish_reason: _Optional[str] = ..., reused_tokens: _Optional[int] = ..., known: _Optional[str] = ...) -> None: ...

class GenerateWholeRequest(_message.Message):
    __slots__ = ("call",)
    CALL_FIELD_NUMBER: _ClassVar[int]
    call: GenerateRequest
    def __init__(self, call: _Optional[_Union[GenerateRequest, _Mapping]] = ...) -> None: ...

class GenerateWholeResponse(_message.Message):
    __slots__ = ("output",)
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    output: GenerateResponse
    def __init__(self, output: _Optional[_Union[GenerateResponse, _Mapping]] = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("call_id",)
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    def __init__(self, call_id: _Optional[str] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("moved_calls",)
    MOVED_CALLS_FIELD_NUMBER: _ClassVar[int]
    moved_calls: int
    def __init__(self, moved_calls: _Optional[int] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("serving", "version", "checksum", "running", "waiting", "slots", "tokens_sampled", "tokens_prefilled", "tokens_reused", "busy_s")
    SERVING_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_SAMPLED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PREFILLED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_REUSED_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    serving: bool
    version: int
    checksum: str
    running: int
    waiting: int
    slots: int
    tokens_sampled: int
    tokens_prefilled: int
    tokens_reused: int
    busy_s: float
    def __init__(self, serving: _Optional[bool] = ..., version: _Optional[int] = ..., checksum: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., slots: _Optional[int] = ..., tokens_sampled: _Optional[int] = ..., tokens_prefilled: _Optional[int] = ..., tokens_reused: _Optional[int] = ..., busy_s: _Optional[float] = ...) -> None: ...
