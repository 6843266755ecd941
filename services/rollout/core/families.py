"""Model families: how each writes its tool calls and its reasoning. One row each; which one a model is of follows from what its own template writes.

    content  [before] open  name and arguments  close … [behind]

How results come back, and everything else of a conversation, is the template's alone.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from services.rollout.core.callforms import Form, JsonAlone, JsonOfArray, JsonOrMarked, Marked
from services.rollout.core.callids import AS_GIVEN, NINE, NUMBERED, CallIds
from services.rollout.core.calls_headed import Headed
from services.rollout.core.calls_python import END, START, Python
from services.rollout.core.calls_xml import Marks
from services.rollout.core.channels import CALL_HEAD, CLOSE, FINAL, OPEN, THINK, Channels


@dataclass(frozen=True, slots=True)
class Family:
    """One row."""

    name: str
    signs: tuple[str, ...]
    """All of them stand in a call's turn as the templates of this family write it."""
    open: str
    """Empty: a call stands where the content begins, or behind another one, and nowhere else."""
    close: str
    """Without it no call ends; empty: it ends with its arguments."""
    form: Form
    begin: Callable[[str], str]
    """The beginning of a call: of this tool, of any where the name is empty."""
    before: str = ""
    """What may stand before the first call of a turn."""
    behind: str = ""
    """What may stand behind the last."""
    again: re.Pattern[str] | None = None
    """What may stand between two calls in the place of marks."""
    think: tuple[str, str] = ("<think>", "</think>")
    """Around reasoning."""
    has_schemas: bool = False
    """What a value is follows from the tool's schema."""
    ids: CallIds = AS_GIVEN
    alone: tuple[str, ...] = ()
    """What may begin a call where none of its marks do."""
    opening: str = ""
    """What content begins with; no part of it."""
    channels: type[Channels] | None = None
    """A turn is several messages, which are told as one in the form of this row."""
    held: tuple[str, ...] = field(init=False)
    """Behind which nothing is content for certain."""
    marks: tuple[str, ...] = field(init=False)
    """All that no harness may begin a reply with."""

    def __post_init__(self) -> None:
        held = tuple(filter(None, (self.before, self.open))) or self.alone
        object.__setattr__(self, "held", held)
        marks = (*self.think, *held, self.close, self.behind, *(self.channels.marks if self.channels else ()))
        object.__setattr__(self, "marks", tuple(mark for mark in marks if len(mark) > 1))


def _begin_json(mark: str, member: str = "arguments") -> Callable[[str], str]:
    return lambda name: mark + '{"name": ' + (f'{json.dumps(name, ensure_ascii=False)}, "{member}": ' if name else '"')


def _mistral(name: str, sign: str, begin: Callable[[str], str]) -> Family:
    return Family(name, (sign,), "[TOOL_CALLS]", "", _MISTRAL, begin, think=("[THINK]", "[/THINK]"), ids=NINE)


def _dsml(name: str, section: str) -> Family:
    open_, sign = f"<｜DSML｜{section}>", '<｜DSML｜invoke name="'
    return Family(
        name, (open_, sign + 'f">'), open_, "</｜DSML｜invoke>", Marked(_DSML_MARKS),
        lambda name: f"{open_}\n{sign}" + (f'{name}">\n' if name else ""),
        behind=f"</｜DSML｜{section}>", again=re.compile(rf"\s*(?={sign})"), has_schemas=True,
    )  # fmt: skip


def _mistral_array(name: str, sign: str) -> Family:
    begin, again = _begin_json(sign.removesuffix("{")), re.compile(r"\s*,\s*(?=\{)")
    return Family(name, (sign,), "[TOOL_CALLS]", "", JsonOfArray(), begin, behind="]", again=again, ids=NINE)


_CODER_MARKS = Marks(
    name=re.compile(r"<function=([^>\s]+)>"), parameter=re.compile(r"<parameter=([^>\s]+)>"), parameter_end="</parameter>",
    end="</function>", close="</tool_call>", over=re.compile(r"</function>\s*</tool_call>"), around="\n", has_words=True,
)  # fmt: skip
_GLM_MARKS = Marks(
    name=re.compile(r"([\w.:/-]{1,128})(?=[\s<])"), parameter=re.compile(r"<arg_key>([^<]{1,128})</arg_key>\s*<arg_value>"),
    parameter_end="</arg_value>", close="</tool_call>", over=re.compile(r"</tool_call>\s*<tool_call>"),
)  # fmt: skip
_MINIMAX_MARKS = Marks(
    name=re.compile(r'<invoke name="([^"<>\s]{1,128})">'), parameter=re.compile(r'<parameter name="([^"<>]{1,128})">'),
    parameter_end="</parameter>", close="</invoke>", over=re.compile(r'</invoke>\s*(?:<invoke name="|</minimax:tool_call>)'),
)  # fmt: skip
_DSML_MARKS = Marks(
    name=re.compile(r'<｜DSML｜invoke name="([^"<>\s]{1,128})">'),
    parameter=re.compile(r'<｜DSML｜parameter name="([^"<>]{1,128})"(?: string="(?P<is_text>true|false)")?>'),
    parameter_end="</｜DSML｜parameter>", close="</｜DSML｜invoke>",
    over=re.compile(r'</｜DSML｜invoke>\s*(?:<｜DSML｜invoke name="|</｜DSML｜(?:function|tool)_calls>)'),
)  # fmt: skip
_TAGGED = JsonOrMarked(Marked(_CODER_MARKS), "<function=")
_KIMI = Headed(
    r"\s{0,8}(?P<own>(?:functions\.)?(?P<name>[^\s<>|:]{1,128})(?::\d{1,9})?)\s{0,8}<\|tool_call_argument_begin\|>\s{0,8}",
    "<|tool_call_end|>",
)
_DEEPSEEK = Headed(
    r"\s{0,8}(?:function<｜tool▁sep｜>)?(?P<name>[^\s<>|｜`{]{1,128})"
    r"(?:<｜tool▁sep｜>\s{0,8}(?=\{|null|<｜tool▁call▁end｜>)|\s{0,8}```(?:json)?\s{0,8})",
    "<｜tool▁call▁end｜>", is_fenced=True,
)  # fmt: skip
_HARMONY = Headed(CALL_HEAD, CLOSE)
_MISTRAL = Headed(
    r"\s{0,8}(?P<name>[^\s\[\]{}<>]{1,128})(?:\[CALL_ID\](?P<own>[A-Za-z0-9]{1,64}))?(?:\[ARGS\]\s{0,8}|(?=\{))", ""
)

QWEN = Family("qwen", ("<tool_call>",), "<tool_call>", "</tool_call>", _TAGGED, _begin_json("<tool_call>\n"))
"""Also Hermes and all others whose template shows no other form."""
CODER = Family(
    "qwen3-coder", ("<function=",), "<tool_call>", "</tool_call>", _TAGGED,
    lambda name: "<tool_call>\n<function=" + (f"{name}>\n" if name else ""), has_schemas=True,
)  # fmt: skip
FAMILIES = (
    CODER,
    Family(
        "glm-4.5", ("<tool_call>f\n", "</tool_call>", "<arg_key>"), "<tool_call>", "</tool_call>", Marked(_GLM_MARKS),
        lambda name: f"<tool_call>{name}\n" if name else "<tool_call>", has_schemas=True,
    ),
    Family(
        "glm-4.7", ("<tool_call>f", "</tool_call>", "<arg_key>"), "<tool_call>", "</tool_call>", Marked(_GLM_MARKS),
        lambda name: f"<tool_call>{name}", has_schemas=True,
    ),
    Family(
        "kimi-k2", ("<|tool_call_begin|>", "<|tool_call_argument_begin|>"), "<|tool_call_begin|>", "<|tool_call_end|>", _KIMI,
        lambda name: f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}" + (":" if name else ""),
        before="<|tool_calls_section_begin|>", behind="<|tool_calls_section_end|>", ids=NUMBERED,
    ),
    Family(
        "deepseek-v3", ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "```json"), "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", _DEEPSEEK,
        lambda name: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>" + (f"{name}\n```json\n" if name else ""),
        before="<｜tool▁calls▁begin｜>", behind="<｜tool▁calls▁end｜>",
    ),
    Family(
        "deepseek-v3.1", ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"), "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", _DEEPSEEK,
        lambda name: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" + (f"{name}<｜tool▁sep｜>" if name else ""),
        before="<｜tool▁calls▁begin｜>", behind="<｜tool▁calls▁end｜>",
    ),
    _dsml("deepseek-v3.2", "function_calls"),
    _dsml("deepseek-v4", "tool_calls"),
    _mistral("mistral-call-id", "[TOOL_CALLS]f[CALL_ID]", lambda name: f"[TOOL_CALLS]{name}[CALL_ID]" if name else "[TOOL_CALLS]"),
    _mistral("mistral-args", "[TOOL_CALLS]f[ARGS]", lambda name: f"[TOOL_CALLS]{name}[ARGS]" if name else "[TOOL_CALLS]"),
    _mistral_array("mistral-v7", "[TOOL_CALLS] [{"),
    _mistral_array("mistral-nemo", "[TOOL_CALLS][{"),
    Family(
        "gpt-oss", ("to=functions.f", "<|channel|>commentary", "<|message|>"), OPEN, CLOSE, _HARMONY,
        lambda name: f"{OPEN}functions.{name}" + (" <|constrain|>json<|message|>" if name else ""),
        think=THINK, opening=FINAL, channels=Channels,
    ),
    Family(
        "minimax-m2", ("<minimax:tool_call>", '<invoke name="f">'), "<minimax:tool_call>", "</invoke>", Marked(_MINIMAX_MARKS),
        lambda name: '<minimax:tool_call>\n<invoke name="' + (f'{name}">\n' if name else ""),
        behind="</minimax:tool_call>", again=re.compile(r'\s*(?=<invoke name=")'), has_schemas=True,
    ),
    Family(
        "pythonic", ("[f(MARK",), "", "", Python(), lambda name: f"[{name}(" if name else "[",
        behind="]", again=re.compile(r"(?=\s*,\s*[\w.-]{1,128}\()"), alone=("[", START), has_schemas=True,
    ),
    Family(
        "llama-3", ('<|end_header_id|>\n\n{"name": "f", "parameters": ',), "", "", JsonAlone(("<|python_tag|>",)), _begin_json("", "parameters"),
        again=re.compile(r"\s*;\s*(?=\{)"), alone=("{", "<|python_tag|>"),
    ),
    Family(
        "llama-4", ("<|header_start|>", '{"name": "f", "parameters": '), "", "", JsonAlone((START, END)),
        _begin_json(START + END, "parameters"),
        behind=END, again=re.compile(r"\s*;?\s*(?=\{)"), alone=("{", START, END),
    ),
)  # fmt: skip


def family_of(written: str) -> Family:
    """The family of a template that writes `written` for a turn with one call, of the tool `f`, that has an argument."""
    return next((family for family in FAMILIES if all(sign in written for sign in family.signs)), QWEN)
