"""Evaluators beside the environment's own verdict."""

from typing import Annotated, Literal

from msgspec import Meta

from gyre.config.sections.base import Positive, Seconds, Section, Share


class EvaluatorConfig(Section):
    """One evaluator of ended executions (D4, docs/evaluators.md). Precedence: guard over rule over learned over dense."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,32}$")]
    """Names it in the books (`learned.NAME` among a sample's rewards); letters, digits, - and _."""
    kind: Literal["guard", "rule", "learned", "dense"]
    """guard: decides alone when it fires. rule: verified like the outcome. learned: a reward model, fills what rules leave open. dense: shaping,
    fills what is left after that."""
    transport: Literal["http", "grpc"] = "http"
    """http: JSON by POST. grpc: gyre.api.evaluation.v1.EvaluatorService, as `gyre.evaluation.serve` answers it."""
    url: str = ""
    """Where an http evaluator is asked, e.g. `http://127.0.0.1:8090/score`."""
    address: str = ""
    """host:port of a grpc evaluator."""
    token_env: str = ""
    """Name of the environment variable with a token, sent as `authorization: Bearer …`; empty: none is sent. The token itself is never recorded."""
    weight: Share = 0.2
    """What it can pay: a rule, of the whole reward; learned and dense, of what is left open above them. A guard has none."""
    fires_below: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.5
    """Guards: it fires where its score is below this. 1 fires on the least doubt."""
    guard_value: Share = 0.0
    """Guards: the whole reward of an execution for which it fires."""
    required: bool = True
    """true: an execution without its answer leaves training, reason `evaluation_failed`, never as a zero. false: the component is left out, for the
    whole group, so that a baseline compares like with like."""
    timeout_s: Seconds = 30.0
    """Longest wait for one answer."""
    tries: Positive = 5
    """Questions about one execution at most."""
    budget_s: Seconds = 120.0
    """All tries of one execution together, waiting between them included; also the longest that a group waits for it once it is asked."""
    concurrency: Positive = 8
    """Questions that are open at once. Too many: a reward model queues them inside their time-out."""
    text_chars_max: Annotated[int, Meta(ge=0, le=500_000)] = 65_536
    """Characters of decoded text it is shown, its paths together; the middle of what is longer is cut out. 0: no text, and no tokenizer is loaded."""
    tool_calls_max: Annotated[int, Meta(ge=0, le=200)] = 200
    """Tool calls it is shown; of more the first and the last half of this number."""
