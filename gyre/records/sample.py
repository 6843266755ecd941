"""Facts about samples: one attempt of one execution, made ready for training or dropped; and about records of it that nobody trains."""

import msgspec


class SampleReady(msgspec.Struct, frozen=True, kw_only=True, tag="sample.ready"):
    """Evaluated, put into tree form, given its advantage, waiting for a batch."""

    sample_id: str
    execution_id: str
    group_id: str
    attempt: int
    task_type: str
    tenant: str
    reward: float
    rewards: dict[str, float]
    """Components beside the total (D4): `outcome`, `milestone.<name>` …"""
    success: bool
    truncated: bool
    advantage: float
    turns: int
    tokens_tree: int
    """Unique tokens of the tree."""
    tokens_flat: int
    """Tokens of all root-to-leaf paths, flattened."""
    targets_chosen: int
    """|U_e|: target tokens that will be trained, each once (B6)."""
    targets_sampled: int
    """Policy-sampled tokens of the whole tree."""
    paths: int
    """Chosen candidate paths, at most J_max (B5)."""
    sequences_chosen: int = 0
    """Model calls that these targets are of."""
    policy_version: int
    """v_d."""
    version_min: int
    version_mean: float
    version_max: int
    """Versions of the sampled tokens: oldest, token-weighted mean, newest (slime#2092)."""
    at_s: float
    traceparent: str = ""
    segments: int = 1
    """Segments its calls were cut into (D3); 1 where credit is by execution."""
    kappa: float = 1.0
    """Share of the execution's advantage in its calls' (fusion); the rest is their segment's."""
    segment_starts: list[int] = []
    """Call index with which each segment begins, of the first 64."""
    segment_advantages: list[float] = []
    """Advantage of each of these segments' calls."""
    repeated_share: float = 0.0
    """Share of its tool calls that have the very arguments of an earlier one (watched for reward gaming, D4)."""
    origin: str = "first"
    """`first` attempt, `resample` (a later attempt in a new environment) or `replay` (on a snapshot of an earlier one's) (C3)."""
    elite_key: str = ""
    """Of a success where there is an elite store (D9): digest of its task and of the tokens that it trains."""


class SampleDropped(msgspec.Struct, frozen=True, kw_only=True, tag="sample.dropped"):
    """Left training, for one of lifecycle.DROP_REASONS; what it cost stands with it (C9)."""

    sample_id: str
    execution_id: str
    group_id: str
    attempt: int
    task_type: str
    tenant: str
    reason: str
    detail: str = ""
    step: int = -1
    """Step whose batch it would have been in, −1 where none."""
    age_steps: int = 0
    waited_s: float = 0.0
    turns: int = 0
    tokens: int = 0
    occupancy_s: float = 0.0
    at_s: float = 0.0
    traceparent: str = ""


class CallSetAside(msgspec.Struct, frozen=True, kw_only=True, tag="call.set_aside"):
    """A call record that cannot be trusted: kept on the stream, and nothing of it is trained; the rest of its execution is."""

    call_id: str
    execution_id: str
    group_id: str
    attempt: int
    reason: str
    """One of lifecycle.SET_ASIDE_REASONS."""
    detail: str = ""
    """For people: what was found."""
    tokens: int = 0
    """Output tokens that are lost to training."""
    at_s: float = 0.0
