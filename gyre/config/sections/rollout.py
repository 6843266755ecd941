"""Gateway, leases, engines, roles of calls."""

import difflib
import re

from gyre.config.sections.base import NotNegative, Positive, Seconds, Section
from gyre.config.sections.vllm import VllmConfig

ROLES = ("main", "main-summary", "sub-agent", "sub-agent-summary", "side", "unknown")
"""Classes of calls (B5): the first four are trained, in this order; `side` and `unknown` are on record and never trained."""
HARNESSES = ("claude-code", "codex", "qwen-code", "opencode", "mini-swe-agent", "aider")
"""Harnesses for which rules are shipped."""
ENDPOINTS = ("chat", "messages", "responses")
"""Wire formats: OpenAI's chat completions, Anthropic's messages, OpenAI's responses."""
ENGINES = ("embedded", "vllm")
STREAMS = ("live", "recorded", "by_harness")


class RoleRule(Section):
    """A call to which all that is stated applies has this role (B5). A rule that states nothing applies to every call.

    Texts are regular expressions, searched for anywhere (`\\A` is the text's begin, `^` a line's begin) in the first and
    last 4000 characters of what they are about."""

    name: str
    """Its name, recorded with each call that it decides, such as `mine/planner`."""
    role: str
    """main, main-summary, sub-agent, sub-agent-summary, side or unknown."""
    harness: str = ""
    """Only calls of this harness; empty: of any."""
    endpoint: str = "any"
    """Only calls in this wire format: any, chat, messages or responses."""
    headers: dict[str, str] = {}
    """Header name → expression that its value must hold; `.` where it must only be there. A header that is missing holds nothing."""
    system: str = ""
    """Expression that the system prompt (all system and developer messages before the first other one) must hold."""
    first_user: str = ""
    """Expression that the first user message must hold."""
    last_user: str = ""
    """Expression that the last user message must hold, which need not be the last message."""
    tools_with: list[str] = []
    """Tools that the call must offer, all of them."""
    tools_without: list[str] = []
    """Tools of which the call must offer none."""
    tools: str = "any"
    """Whether the call must offer tools at all: any, some or none."""
    max_tokens_max: NotNegative = 0
    """The call must ask for at most this many tokens, and one that names no number does not; 0: whatever it asks for."""
    messages_max: NotNegative = 0
    """The call must have at most this many messages, system ones not counted; 0: however many."""

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("`name` is empty: a rule's name is recorded with each call that it decides")
        _check_word(self.role, "role", ROLES)
        _check_word(self.endpoint, "endpoint", ("any", *ENDPOINTS))
        _check_word(self.tools, "tools", ("any", "some", "none"))
        for field, text in [*((name, getattr(self, name)) for name in TEXTS), *self.headers.items()]:
            try:
                re.compile(text)
            except re.error as error:
                literal = _SPECIAL.sub(r"\\\g<0>", text)
                raise ValueError(
                    f"`{field}` of rule `{self.name}` is no regular expression: {error}; for the literal text write '{literal}'"
                ) from None


_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
TEXTS = ("system", "first_user", "last_user")
"""Fields of a rule that are expressions over a text of the call."""


def check_rule_harnesses(rules: list[RoleRule], own: list[str]) -> None:
    """A rule for a harness that no call will ever be of. `own`: harnesses that the configuration names. Raises ValueError."""
    for rule in rules:
        if rule.harness:
            _check_word(rule.harness, f"harness` of rule `{rule.name}", (*HARNESSES, *own))


def _check_word(word: str, field: str, known: tuple[str, ...]) -> None:
    if word not in known:
        near = difflib.get_close_matches(word, known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
        raise ValueError(f"`{field}` is `{word}`; {hint}")


class RolloutConfig(Section):
    """Gateway, leases, engines."""

    gateways: Positive = 1
    """Gateway processes side by side; each is an address that any call may go to, and any environment. More than one is for a load beyond one
    processor, or to outlive the loss of a machine."""
    lease_s: Seconds = 10.0
    """An execution whose holder is silent for this long is given out again as the next attempt."""
    attempts_max: Positive = 5
    """Attempts of one execution before it ends as failed: those that an environment was given and that were lost. Waiting for an environment is none,
    nor is going on as the same attempt after a gateway's restart."""
    request_bytes_max: Positive = 8 * 1024 * 1024
    """Largest body of one model call; larger ones are answered 413."""
    observation_bytes_max: Positive = 64 * 1024
    """Largest tool result that an environment may show the model; the rest is cut, and said so."""
    engine: str = "embedded"
    """What generates: `embedded` (torch, inside the cell's process) or `vllm` (a server beside it; docs/vllm.md)."""
    vllm: VllmConfig = VllmConfig()
    """vLLM, where it is the engine."""
    slots: Positive = 32
    """Calls one engine decodes at once."""
    context_max: Positive = 1024
    """Tokens of the longest context (prompt and output) an engine serves."""
    threads: Positive = 1
    """CPU threads of one engine."""
    device: str = "cpu"
    """Where the embedded engine runs, in torch's words."""
    streams: str = "by_harness"
    """What a streamed reply lets out before its call is on record. `live`: content as it is sampled; `recorded`: signs of life only, so that a
    gateway that dies cuts no reply in two; `by_harness`: live, but recorded for harnesses that are known to give up on a cut stream."""
    harness: str = ""
    """The harness all calls come from, unless their environment names another; empty: recognised by each call (user agent, system prompt). May
    be one of your own, for your rules."""
    role_rules: list[RoleRule] = []
    """Rules for the roles of calls, asked in this order before those that are shipped; docs/harnesses.md."""
    role_default: str = "unknown"
    """Role of a call that no header and no rule decides. `unknown` is on record and never trained; `main` trains whatever comes, side
    calls too: only for a harness that makes none."""

    def __post_init__(self) -> None:
        _check_word(self.role_default, "role_default", ROLES)
        _check_word(self.streams, "streams", STREAMS)
        names = [rule.name for rule in self.role_rules]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"several rules are named {', '.join(sorted(twice))}: a name must tell which one decided")
