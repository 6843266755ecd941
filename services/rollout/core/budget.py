"""What one execution may still do: its turns, calls, tokens, calls at once, and the parameters its next call is sampled with (B4, C6).

| limit | reached | the execution |
|---|---|---|
| turns_max: calls that were answered | 400 `turns_exceeded` | ends as timed_out(turns), scored on what is there |
| calls_max: calls begun | 400 `calls_exceeded` | timed_out(calls) |
| tokens_max: tokens sampled by all its calls | 400 `tokens_exceeded`; the call before was cut there | timed_out(tokens) |
| context_tokens_max: a prompt with its output | 400 `context_length_exceeded`; an output is cut there | goes on, if the harness compacts |
| output_tokens_max: tokens of one call | the output is cut there | goes on |
| concurrency_max: calls at once | 429 with Retry-After | goes on |
| wall_s | its environment's clock, and the gateway's behind it (leases.py) | timed_out(wall) |
"""

from gyre.errors import GyreError, Overloaded
from gyre.ids import seed_for
from gyre.records import Sampling
from gyre.records.call import output_room
from services.rollout.core.keys import Claims
from services.rollout.core.options import BadRequest
from services.rollout.core.request import ChatRequest
from services.rollout.core.session import Prompt, Session

CONCURRENCY_MAX = 32
"""Calls of one execution at once where its task says nothing; sub-agents of today's harnesses stay well below."""


class BudgetOver(GyreError):
    """The execution has used up one of its limits: an ordinary ending, not an error of anybody."""

    limit = "turns"


class TurnsOver(BudgetOver):
    code = "turns_exceeded"


class CallsOver(BudgetOver):
    code, limit = "calls_exceeded", "calls"


class TokensOver(BudgetOver):
    code, limit = "tokens_exceeded", "tokens"


def check_room(claims: Claims, session: Session, unrecorded: int, live: int) -> None:
    """Whether one more call may begin; `unrecorded` of its calls will be turns, `live` are under way. Raises BudgetOver, Overloaded."""
    if session.turns + unrecorded >= claims.turns_max:
        raise TurnsOver(f"this execution has made its {claims.turns_max} turns")
    if claims.calls_max and session.next_index >= claims.calls_max:
        raise CallsOver(f"this execution has begun its {claims.calls_max} calls")
    if claims.tokens_max and session.tokens_sampled >= claims.tokens_max:
        raise TokensOver(f"this execution has sampled its {claims.tokens_max} tokens")
    check_concurrency(claims, live)


def check_concurrency(claims: Claims, live: int) -> None:
    """Raises Overloaded."""
    most = claims.concurrency_max or CONCURRENCY_MAX
    if live >= most:
        raise Overloaded(f"{live} calls of this execution are running; at most {most} may")


def sampling_of(
    claims: Claims,
    request: ChatRequest,
    prompt: Prompt,
    session: Session,
    context_max: int,
    payload_bytes: int,
    prefix: str,
) -> tuple[Sampling, int, bool]:
    """Parameters inside the execution's bounds, what their max_tokens would be were nothing of tokens_max used up, and whether the context bounds
    the output. Raises BadRequest.

    Training samples are drawn at the task's own temperature and top_p whatever the harness asks: the loss assumes it. Evaluations may ask for less
    of either. Calls that run at once may each use what is left of tokens_max. A record has to fit `payload_bytes`."""
    context_max = min(claims.context_tokens_max, context_max)
    room = min(context_max - len(prompt.ids), output_room(len(prompt.ids), payload_bytes))
    if room < 1:
        raise BadRequest(
            f"prompt is too long: {len(prompt.ids)} tokens > {context_max - 1} maximum; the context holds {context_max} with the reply",
            "messages", "context_length_exceeded",
        )  # fmt: skip
    temperature, top_p = claims.temperature, claims.top_p
    if claims.purpose == "evaluation":
        temperature = min(temperature, request.temperature if request.temperature is not None else temperature)
        top_p = max(1e-6, min(top_p, request.top_p if request.top_p is not None else top_p))
    asked = min(request.max_tokens or claims.output_tokens_max, claims.output_tokens_max)
    left = max(1, claims.tokens_max - session.tokens_sampled) if claims.tokens_max else asked
    sampling = Sampling(
        temperature=temperature, top_p=top_p, max_tokens=min(asked, left, room), seed=seed_for(claims.seed, session.next_index),
        stop_sequences=list(request.stop), is_one_call=request.is_one_call, prefix=prefix,
    )  # fmt: skip
    return sampling, min(asked, room), room < min(asked, left)
