from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AskRequest(_message.Message):
    __slots__ = ("question", "names", "after", "limit")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    question: str
    names: _containers.RepeatedScalarFieldContainer[str]
    after: str
    limit: int
    def __init__(self, question: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class AskResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class AuditRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Criterion(_message.Message):
    __slots__ = ("name", "passed", "figure", "query")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    FIGURE_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    name: str
    passed: bool
    figure: str
    query: str
    def __init__(self, name: _Optional[str] = ..., passed: _Optional[bool] = ..., figure: _Optional[str] = ..., query: _Optional[str] = ...) -> None: ...

class AuditResponse(_message.Message):
    __slots__ = ("passed", "criteria")
    PASSED_FIELD_NUMBER: _ClassVar[int]
    CRITERIA_FIELD_NUMBER: _ClassVar[int]
    passed: bool
    criteria: _containers.RepeatedCompositeFieldContainer[Criterion]
    def __init__(self, passed: _Optional[bool] = ..., criteria: _Optional[_Iterable[_Union[Criterion, _Mapping]]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("sample_id",)
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    def __init__(self, sample_id: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class GetDropsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDropsResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class GetBooksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetBooksResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class GetBillRequest(_message.Message):
    __slots__ = ("by",)
    BY_FIELD_NUMBER: _ClassVar[int]
    by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, by: _Optional[_Iterable[str]] = ...) -> None: ...

class GetBillResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class GetTraceRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetTraceResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class GetIntakeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetIntakeResponse(_message.Message):
    __slots__ = ("stream_sequence", "facts", "spans", "poison")
    STREAM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    POISON_FIELD_NUMBER: _ClassVar[int]
    stream_sequence: int
    facts: int
    spans: int
    poison: int
    def __init__(self, stream_sequence: _Optional[int] = ..., facts: _Optional[int] = ..., spans: _Optional[int] = ..., poison: _Optional[int] = ...) -> None: ...

class GetQueuesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetQueuesResponse(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...
