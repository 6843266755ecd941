"""One question, asked until there is a valid answer or its budget is used up."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gyre.clock import Clock
from gyre.config import EvaluatorConfig
from gyre.errors import GyreError
from gyre.evaluation import Finding, checked
from gyre.evaluation.evaluator import plain
from services.trajproc.evaluators.secrets import finding_without, without

BACKOFF_S = 0.5
"""Wait after the first failed try; it doubles with each."""
BACKOFF_S_MAX = 10.0
"""A server that came back is found within this long."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The last word on one question. Without a finding, `detail` says what went wrong at the last try."""

    finding: Finding | None
    tries: int
    took_s: float
    detail: str = ""


async def ask_within_budget(
    ask: Callable[[], Awaitable[Finding]],
    settings: EvaluatorConfig,
    clock: Clock,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    secret: str = "",
) -> Answer:
    """At most `tries` tries inside `budget_s`, each at most `timeout_s`. Every error counts as a failed try, none is raised.

    `secret` is taken out of answers and of what is said of an error: a server may send back what it was sent.
    """
    began_s, tried, detail = clock.monotonic_s(), 0, ""
    while tried < settings.tries and (left_s := settings.budget_s - (clock.monotonic_s() - began_s)) > 0:
        tried += 1
        wait_s = min(settings.timeout_s, left_s)
        try:
            async with asyncio.timeout(wait_s):
                finding = checked(finding_without(await ask(), secret))
            return Answer(finding, tried, clock.monotonic_s() - began_s)
        except TimeoutError:
            detail = f"no answer within {wait_s:.3g} s"
        except GyreError as error:
            detail = str(error)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
        if tried < settings.tries:
            left_s = settings.budget_s - (clock.monotonic_s() - began_s)
            await sleep(max(0.0, min(BACKOFF_S * 2 ** (tried - 1), BACKOFF_S_MAX, left_s)))
    return Answer(None, tried, clock.monotonic_s() - began_s, plain(without(detail, secret)))
