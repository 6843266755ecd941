"""Tool calls between marks, as Qwen3-Coder's family writes them (B2)."""

import json

import pytest

from gyre.records import Sampling
from services.rollout.core.families import QWEN
from services.rollout.core.session import Model
from services.rollout.core.template import ChatTemplate
from services.rollout.core.toolcalls import parse

from .builders import Harness, reply_message, request, tool_message
from .families import BY_NAME

TEMPLATE = """
{%- for tool in tools or [] %}{{- tool | tojson + '\\n' }}{%- endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\\n' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
        {%- for name, value in call.function.arguments | items %}
            {%- set text = value if value is string else (value | tojson if value is mapping or value is sequence else value | string) %}
            {{- '<parameter=' + name + '>\\n' + text + '\\n</parameter>\\n' }}
        {%- endfor %}
        {{- '</function>\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
EDIT = {
    "path": {"type": "string"}, "line": {"type": "integer"}, "all": {"type": "boolean"}, "where": {"type": ["object", "null"]},
    "anything": {}, "text": {"anyOf": [{"type": "string"}]},
}  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "edit", "parameters": {"type": "object", "properties": EDIT}}}]
GO = [{"role": "user", "content": "go"}]
CLOSE = QWEN.close


def written(*parameters: tuple[str, str]) -> str:
    inside = "".join(f"<parameter={name}>\n{text}\n</parameter>\n" for name, text in parameters)
    return f"<function=edit>\n{inside}</function>"


@pytest.fixture(scope="module")
def coder(model) -> Model:
    template = model.template
    return Model(ChatTemplate(template._tokenizer, TEMPLATE.strip(), {}, template.stop_ids))


def xml_call(block: str, schemas: dict) -> tuple[str, str] | None:
    """What a closed block is read as."""
    calls = parse(f"<tool_call>{block}{CLOSE}", "c", schemas=schemas).calls
    return (calls[0].name, calls[0].arguments) if calls else None


def test_values_are_what_the_tools_schema_says():
    """A text stays the text it is, line breaks inside it included, whatever it looks like."""
    said = written(
        ("path", "12"), ("line", "12"), ("all", "True"), ("where", '{"a": 1}'), ("anything", "1"), ("text", "a\n\nb")
    )
    name, arguments = xml_call(said, {"edit": EDIT})
    assert (name, json.loads(arguments)) == (
        "edit", {"path": "12", "line": 12, "all": True, "where": {"a": 1}, "anything": "1", "text": "a\n\nb"},
    )  # fmt: skip
    assert json.loads(xml_call(written(("line", "many"), ("where", "None")), {"edit": EDIT})[1]) == {
        "line": "many", "where": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "block",
    [
        "<function=>",
        "<function=f",
        "<function=f><parameter=a>1</function>",
        "<function=f>x</function>",
        "<function=f></function>x",
    ],
)
def test_what_is_no_whole_call_is_none(block):
    assert xml_call(block, {}) is None


@pytest.mark.parametrize(
    "block", ["<function=f></function>", "\n<function=f>\n</function>\n", "<function=f>", "<function=f>\n"]
)
def test_a_call_may_have_no_parameters_and_lack_its_end(block):
    assert xml_call(block, {}) == ("f", "{}")


@pytest.mark.parametrize("end", ["", "\n", "<", "</funct", "<parameter=b", "<parameter=b>\nhalf"])
def test_output_that_is_cut_between_parameters_is_no_call(end):
    """A file without its second half would be written; `</function>` alone says that nothing is missing."""
    said = "<tool_call>\n<function=write>\n<parameter=path>\na.py\n</parameter>\n" + end
    parsed = parse(said, "c")
    assert (parsed.content, parsed.calls) == (said.strip(), ())
    assert parse(said.removesuffix(end) + "</function>", "c").calls[0].name == "write"


def test_marks_inside_a_parameter_are_its_text_and_one_without_an_end_takes_nothing_of_the_next_call():
    text = f"a {CLOSE} b <tool_call>"
    assert json.loads(xml_call(written(("text", text)), {"edit": EDIT})[1]) == {"text": text}
    broken = "<tool_call><function=f>\n<parameter=a>\n1\n</function>\n</tool_call>"
    parsed = parse(f"{broken}<tool_call>{written(('line', '3'))}</tool_call>", "c", schemas={"edit": EDIT})
    assert parsed.content == broken and [call.arguments for call in parsed.calls] == ['{"line": 3}']


def test_a_conversation_goes_on_from_the_recorded_tokens_also_after_a_restart(coder):
    """The harness re-formats the arguments that it was given, and the schema is not on record: what it was given is."""
    harness = Harness(coder)
    said = written(("path", "a.py"), ("line", "12"))
    first = harness.call(GO, f"I edit.\n<tool_call>\n{said}\n</tool_call>", tools=TOOLS)
    assert first.content == "I edit." and json.loads(first.calls[0].arguments) == {"path": "a.py", "line": 12}
    back = [*GO, reply_message(first, '{"line":12,"path":"a.py"}'), tool_message(first, 0, "done")]
    recorded = harness.ids(GO, tools=TOOLS) + coder.template.encode(f"I edit.\n<tool_call>\n{said}\n</tool_call>")
    assert harness.ids(back, tools=TOOLS)[: len(recorded)] == recorded
    again = Harness(coder)
    for record in harness.records:
        assert again.session.take(record, coder) == first
    assert again.ids(back, tools=TOOLS) == harness.ids(back, tools=TOOLS)


def test_a_tool_that_must_be_called_is_begun_in_the_models_own_form(coder, model):
    named = request(GO, TOOLS, tool_choice={"type": "function", "function": {"name": "edit"}})
    assert coder.prefix(named) == "<tool_call>\n<function=edit>\n"
    assert coder.prefix(request(GO, TOOLS, tool_choice="required")) == "<tool_call>\n<function="
    assert model.prefix(named).startswith('<tool_call>\n{"name": "edit"')
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=9, seed=1, prefix=coder.prefix(named))
    ids = coder.template.encode("<parameter=line>\n3\n</parameter>\n</function>\n</tool_call>")
    (call,) = coder.read(ids, "c", sampling, TOOLS).calls
    assert (call.name, json.loads(call.arguments)) == ("edit", {"line": 3})


def test_what_a_parameters_mark_says_of_its_value_goes_before_the_tools_schema():
    """DeepSeek from V3.2 on; where the mark says nothing the schema does."""
    family, known = (
        BY_NAME["deepseek-v3.2"],
        {"f": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "integer"}}},
    )
    inside = "".join(
        f"<｜DSML｜parameter name={name}>{value}</｜DSML｜parameter>\n"
        for name, value in (
            ('"a" string="true"', "1"),
            ('"b" string="false"', "[1]"),
            ('"c"', "1"),
            ('"d" string="false"', "no JSON"),
        )
    )
    text = f'So.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n{inside}</｜DSML｜invoke>\n</｜DSML｜function_calls>'
    parsed = parse(text, "c", schemas=known, family=family)
    assert parsed.content == "So." and [call.name for call in parsed.calls] == ["f"]
    assert json.loads(parsed.calls[0].arguments) == {"a": "1", "b": [1], "c": 1, "d": "no JSON"}
