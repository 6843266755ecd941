"""The role of a model call, by rules (B5): main, main-summary, sub-agent, sub-agent-summary, side, or unknown.

    request ─ parse_* ─▶ ChatRequest ─ features ─▶ Features ─ Classifier.role_of ─▶ Verdict ─▶ call record: role, role_rule

What decides is asked in this order, and the first answer stands:

| asked | role_rule on record |
|---|---|
| 1. the header x-gyre-role | `header` |
| 2. the user's rules, rollout.role_rules, in their order | the rule's name |
| 3. the shipped rules (role_rules.toml) of the call's harness, in their order | the rule's name |
| 4. rollout.role_default | `default`; nothing where that is `unknown` |

The harness of a call: the header x-gyre-harness, else its environment's `harness`, else rollout.harness, else the first shipped
signature that fits the call. Nothing is guessed: a call of no known harness, and a call of a known one that no rule fits, is unknown,
stays on record, is never trained.
"""

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice

import msgspec

from gyre.config import RoleRule, RolloutConfig
from gyre.config.sections.rollout import ROLES, TEXTS
from services.rollout.core.options import clean
from services.rollout.core.request import ChatRequest

ROLE_HEADER = "x-gyre-role"
"""Where a harness can say a call's role."""
HARNESS_HEADER = "x-gyre-harness"
"""Where a harness can say which one it is."""
HEAD_CHARS = TAIL_CHARS = 4000
"""Rules see this much of the begin and of the end of a text: the cost of a rule does not grow with the prompt."""


@dataclass(frozen=True, slots=True)
class Features:
    """What rules may look at; independent of the wire format that the call came in."""

    endpoint: str
    headers: Mapping[str, str]
    """Lower-case names; values are Unicode, whatever bytes they came as."""
    system: str
    """All system messages before the first other one."""
    first_user: str
    last_user: str
    tools: frozenset[str]
    messages: int
    """System ones not counted."""
    max_tokens: int | None
    opening: bytes = b""
    """Digest of the first two user messages; see threads.py. No rule looks at it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A role and what decided it."""

    role: str
    rule: str
    harness: str
    thread: str = ""
    """Of a sub-agent's call: its conversation (threads.py)."""


class _Shipped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """role_rules.toml."""

    signatures: dict[str, dict]
    """Harness → what its calls have in common, in the words of a rule."""
    rules: list[RoleRule]


class Classifier:
    """Compiled rules."""

    def __init__(self, config: RolloutConfig, shipped: str) -> None:
        """`shipped`: text of role_rules.toml."""
        table = msgspec.convert(tomllib.loads(shipped), _Shipped)
        self._config = config
        signatures = [{"name": name, "role": "unknown", **fields} for name, fields in table.signatures.items()]
        self._signatures = [_Compiled(rule) for rule in msgspec.convert(signatures, list[RoleRule])]
        self._rules = [_Compiled(rule) for rule in [*config.role_rules, *table.rules]]

    def role_of(self, call: Features, named: str = "") -> Verdict:
        """First answer in the order of the module's docstring; `named` is the harness that the call's environment names."""
        harness = self.harness_of(call, named)
        if (said := call.headers.get(ROLE_HEADER)) is not None:
            return Verdict(said if said in ROLES else "unknown", "header", harness)
        for rule in self._rules:
            if rule.rule.harness in ("", harness) and rule.fits(call):
                return Verdict(rule.rule.role, rule.rule.name, harness)
        default = self._config.role_default
        return Verdict(default, "" if default == "unknown" else "default", harness)

    def harness_of(self, call: Features, named: str = "") -> str:
        """Empty when it is none that is known."""
        said = call.headers.get(HARNESS_HEADER) or named or self._config.harness
        return said or next((one.rule.name for one in self._signatures if one.fits(call)), "")


class _Compiled:
    """A rule with its expressions compiled."""

    def __init__(self, rule: RoleRule) -> None:
        self.rule = rule
        self._texts = [(name, _pattern(text)) for name in TEXTS if (text := getattr(rule, name))]
        self._headers = [(name.lower(), _pattern(text)) for name, text in rule.headers.items()]
        self._with, self._without = frozenset(rule.tools_with), frozenset(rule.tools_without)

    def fits(self, call: Features) -> bool:
        """Whether all that the rule states applies; what is cheap is asked first."""
        rule = self.rule
        return (
            rule.endpoint in ("any", call.endpoint)
            and (rule.tools == "any" or (rule.tools == "some") == bool(call.tools))
            and self._with <= call.tools
            and not self._without & call.tools
            and (not rule.max_tokens_max or (call.max_tokens or rule.max_tokens_max + 1) <= rule.max_tokens_max)
            and (not rule.messages_max or call.messages <= rule.messages_max)
            and all((value := call.headers.get(name)) is not None and found(value) for name, found in self._headers)
            and all(found(getattr(call, name)) for name, found in self._texts)
        )


def features(request: ChatRequest, endpoint: str, headers: Mapping[str, str]) -> Features:
    """Of a request in its normal form. Header names may come in any case."""
    messages = request.messages
    head = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    users = (message for message in messages if message.role == "user")
    opening = [message.content for message in islice(users, 2)]
    last = next((message.content for message in reversed(messages) if message.role == "user"), "")
    return Features(
        endpoint=endpoint,
        headers={name.lower(): clean(value) for name, value in headers.items()},
        system=_ends("\n".join(message.content for message in messages[:head])),
        first_user=_ends(opening[0]) if opening else "",
        last_user=_ends(last),
        tools=frozenset(tool["function"]["name"] for tool in request.tools),
        messages=sum(message.role != "system" for message in messages),
        max_tokens=request.max_tokens,
        opening=hashlib.blake2b("\0".join(opening).encode(), digest_size=16).digest(),
    )


def _pattern(text: str) -> Callable[[str], re.Match | None]:
    """A search; one that can only succeed at the text's begin is tried nowhere else, which Python's search would do."""
    pattern = re.compile(text, re.MULTILINE)
    return pattern.match if text.startswith("\\A") and "|" not in text else pattern.search


def _ends(text: str) -> str:
    return text if len(text) <= HEAD_CHARS + TAIL_CHARS else f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"
