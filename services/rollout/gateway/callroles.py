"""The role of each call that comes in: the rules are asked, and what they do not know is told of."""

import asyncio
import logging
from collections.abc import Mapping
from importlib.resources import files

from gyre.bus import Bus
from gyre.clock import Clock
from gyre.config import Config
from gyre.errors import GyreError
from gyre.ids import sample_id
from gyre.records import AlarmRaised, CallRecorded
from services.rollout.core.classify import Classifier, Features, Verdict, features
from services.rollout.core.keys import Claims
from services.rollout.core.request import ChatRequest
from services.rollout.core.threads import Threads
from services.rollout.core.unknown import WINDOW_CALLS, UnknownShare

log = logging.getLogger(__name__)

FIX = "send the header x-gyre-role, or add a rule to rollout.role_rules; docs/harnesses.md says how"
WARNINGS_MAX = 50
"""Kinds of unknown calls that are told of one by one."""


class CallRoles:
    """Verdicts, one warning for each kind of call that no rule knows, and an alarm where such calls are many."""

    def __init__(self, config: Config, bus: Bus, clock: Clock) -> None:
        rules = files("services.rollout.core").joinpath("role_rules.toml").read_text()
        self._classifier = Classifier(config.rollout, rules)
        self._harnesses = {environment.name: environment.harness for environment in config.environments}
        self._bus, self._clock = bus, clock
        self._share = UnknownShare()
        self._threads = Threads()
        self._warned: set[tuple[str, ...]] = set()
        self._saying: set[asyncio.Task] = set()

    def restore(self, sample: str, record: CallRecorded) -> None:
        """A sub-agent's conversation that is on record."""
        if record.thread:
            self._threads.know(sample, record.thread)

    def of(self, claims: Claims, request: ChatRequest, endpoint: str, headers: Mapping[str, str]) -> Verdict:
        call = features(request, endpoint, headers)
        verdict = self._classifier.role_of(call, self._harnesses.get(claims.environment, ""))
        verdict = self._threads.settled(sample_id(claims.execution_id, claims.attempt), call, verdict)
        is_unknown = verdict.role == "unknown"
        if is_unknown:
            self._warn(call, verdict)
        share = self._share.count(claims.task_type, is_unknown, self._clock.now_s())
        if share is not None:
            task = asyncio.create_task(self._alarm(claims.task_type, share))
            self._saying.add(task)
            task.add_done_callback(self._saying.discard)
        return verdict

    def _warn(self, call: Features, verdict: Verdict) -> None:
        agent, prompt = call.headers.get("user-agent", "")[:80], " ".join(call.system[:80].split())
        kind = (verdict.harness, verdict.rule, agent, prompt[:40])
        if kind in self._warned or len(self._warned) >= WARNINGS_MAX:
            return
        self._warned.add(kind)
        who = f"a call of {verdict.harness}" if verdict.harness else "a call of no known harness"
        why = f"by `{verdict.rule}`" if verdict.rule else "as no rule fits it"
        log.warning(
            "%s is of unknown role %s, so it is recorded and never trained (user agent %r, %d tools, system prompt %r): %s",
            who, why, agent, len(call.tools), prompt, FIX,
        )  # fmt: skip

    async def _alarm(self, task_type: str, share: float) -> None:
        message = f"{share:.0%} of the last {WINDOW_CALLS} calls of executions of type `{task_type}` are of unknown role and never trained: {FIX}"
        log.warning("alarm unknown_roles: %s", message)
        alarm = AlarmRaised(
            kind="unknown_roles", message=message, service="gateway", at_s=self._clock.now_s(), values={"share": share}
        )
        try:
            await self._bus.publish(alarm)
        except GyreError as error:
            log.warning("the alarm could not be put on record: %s", error)
