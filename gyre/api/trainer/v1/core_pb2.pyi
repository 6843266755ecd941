from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TrainRequest(_message.Message):
    __slots__ = ("join", "computed", "reduced", "committed", "claimed", "alive", "leaving")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    REDUCED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    join: Join
    computed: Computed
    reduced: Reduced
    committed: Committed
    claimed: Claimed
    alive: Alive
    leaving: Leaving
    def __init__(self, join: _Optional[_Union[Join, _Mapping]] = ..., computed: _Optional[_Union[Computed, _Mapping]] = ..., reduced: _Optional[_Union[Reduced, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., claimed: _Optional[_Union[Claimed, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ...) -> None: ...

class TrainResponse(_message.Message):
    __slots__ = ("step", "reduce", "commit", "release", "verdict")
    STEP_FIELD_NUMBER: _ClassVar[int]
    REDUCE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    step: Step
    reduce: Reduce
    commit: Commit
    release: Release
    verdict: Verdict
    def __init__(self, step: _Optional[_Union[Step, _Mapping]] = ..., reduce: _Optional[_Union[Reduce, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, _Mapping]] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("cell",)
    CELL_FIELD_NUMBER: _ClassVar[int]
    cell: str
    def __init__(self, cell: _Optional[str] = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Leaving(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Claimed(_message.Message):
    __slots__ = ("micro_id", "step")
    MICRO_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    micro_id: str
    step: int
    def __init__(self, micro_id: _Optional[str] = ..., step: _Optional[int] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("micro_id", "answer")
    class Answer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ANSWER_UNSPECIFIED: _ClassVar[Verdict.Answer]
        ANSWER_COMPUTE: _ClassVar[Verdict.Answer]
        ANSWER_PASS: _ClassVar[Verdict.Answer]
        ANSWER_DISCARD: _ClassVar[Verdict.Answer]
    ANSWER_UNSPECIFIED: Verdict.Answer
    ANSWER_COMPUTE: Verdict.Answer
    ANSWER_PASS: Verdict.Answer
    ANSWER_DISCARD: Verdict.Answer
    MICRO_ID_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    micro_id: str
    answer: Verdict.Answer
    def __init__(self, micro_id: _Optional[str] = ..., answer: _Optional[_Union[Verdict.Answer, str]] = ...) -> None: ...

class Computed(_message.Message):
    __slots__ = ("micro_id", "samples", "compute_s")
    MICRO_ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    micro_id: str
    samples: _containers.RepeatedCompositeFieldContainer[SampleStats]
    compute_s: float
    def __init__(self, micro_id: _Optional[str] = ..., samples: _Optional[_Iterable[_Union[SampleStats, _Mapping]]] = ..., compute_s: _Optional[float] = ...) -> None: ...

class SampleStats(_message.Message):
    __slots__ = ("sample_id", "traceparent", "sums", "refused")
    class SumsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    traceparent: str
    sums: _containers.ScalarMap[str, float]
    refused: str
    def __init__(self, sample_id: _Optional[str] = ..., traceparent: _Optional[str] = ..., sums: _Optional[_Mapping[str, float]] = ..., refused: _Optional[str] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("step", "snapshot_path", "checksum")
    STEP_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_PATH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    step: int
    snapshot_path: str
    checksum: str
    def __init__(self, step: _Optional[int] = ..., snapshot_path: _Optional[str] = ..., checksum: _Optional[str] = ...) -> None: ...

class Reduce(_message.Message):
    __slots__ = ("step", "round", "rank", "world_size", "store_path")
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    STORE_PATH_FIELD_NUMBER: _ClassVar[int]
    step: int
    round: int
    rank: int
    world_size: int
    store_path: str
    def __init__(self, step: _Optional[int] = ..., round: _Optional[int] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., store_path: _Optional[str] = ...) -> None: ...

class Reduced(_message.Message):
    __slots__ = ("step", "round", "ok", "error")
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    step: int
    round: int
    ok: bool
    error: str
    def __init__(self, step: _Optional[int] = ..., round: _Optional[int] = ..., ok: _Optional[bool] = ..., error: _Optional[str] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStateResponse(_message.Message):
    __slots__ = ("version", "step_open", "cells", "micro_computed", "micro_known")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_OPEN_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    MICRO_COMPUTED_FIELD_NUMBER: _ClassVar[int]
    MICRO_KNOWN_FIELD_NUMBER: _ClassVar[int]
    version: int
    step_open: bool
    cells: _containers.RepeatedScalarFieldContainer[str]
    micro_computed: int
    micro_known: int
    def __init__(self, version: _Optional[int] = ..., step_open: _Optional[bool] = ..., cells: _Optional[_Iterable[str]] = ..., micro_computed: _Optional[int] = ..., micro_known: _Optional[int] = ...) -> None: ...
