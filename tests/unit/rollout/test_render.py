"""Rendering of new messages against whole rendering, and our template reader against transformers' own."""

import json

import pytest
from transformers import AutoTokenizer

from gyre.errors import ConfigError, InvalidInput
from services.rollout.core.normal import Call, Message
from services.rollout.core.render import Renderer
from services.rollout.core.template import ChatTemplate

from .builders import TOOLS

TALK = [
    Message("system", "s"),
    Message("user", "look → there"),
    Message("assistant", "yes", (Call("1", "read_file", '{"path":  "a.py"}'),)),
    Message("tool", "one", (), "1"),
    Message("assistant", "done"),
    Message("user", "again"),
]
PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and not loop.last %}(earlier){% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Rewrites earlier turns, as templates do that strip old reasoning: no prefix of it is stable."""
COUNTING = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ loop.index }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""What follows depends on how much came before, so a short stand-in cannot give it."""

LATEST = PLAIN.replace(
    "{{ m.content }}",
    "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} {{ c.function.arguments }}</tool_call>{% endfor %}",
)
"""Writes thoughts in the last turn only, as Qwen3's does: what it says of a turn changes when another one follows."""
SINGLE = LATEST.replace(
    "{% for c in", "{% if m.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}{% for c in"
)
"""Takes one call a turn, as Llama 3's does."""


def with_template(model_dir, tmp_path, source: str) -> ChatTemplate:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((model_dir / name).read_bytes())
    (tmp_path / "chat_template.jinja").write_text(source)
    return ChatTemplate.load(tmp_path)


def plain(message: Message) -> dict:
    calls = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls
    ]
    return {"role": message.role, "content": message.content} | ({"tool_calls": calls} if calls else {})


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_whole_rendering_is_that_of_transformers(model, model_dir, tools):
    """B1: the same text and the same ids as the library that trained the model."""
    reference = AutoTokenizer.from_pretrained(model_dir)
    messages = [plain(message) for message in TALK]
    text = reference.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
    assert model.template.decode(model.renderer.whole(TALK, tools)) == text
    assert model.renderer.whole(TALK, tools) == reference(text, add_special_tokens=False)["input_ids"]


def test_the_example_template_is_stable_and_new_messages_equal_whole_rendering(model):
    """slime#2263: at every place where a conversation can go on."""
    renderer = model.renderer
    assert renderer.is_stable
    whole, end = renderer.whole(TALK, TOOLS), model.stop_ids[0]
    for known in (3, 5):
        new = renderer.after_reply(TALK, known, end, TOOLS)
        assert whole[-len(new) :] == new
        assert whole[-len(new) - 1] == end


@pytest.mark.parametrize("source", [COUNTING, PLAIN], ids=["counting", "plain"])
def test_a_template_that_looks_back_is_rendered_with_its_true_history(model_dir, tmp_path, source):
    template = with_template(model_dir, tmp_path, source)
    renderer = Renderer(template)
    assert renderer.is_stable == (source is PLAIN)
    whole, new = renderer.whole(TALK, None), renderer.after_reply(TALK, 5, template.stop_ids[0], None)
    assert whole[-len(new) :] == new


@pytest.mark.parametrize("source", [LATEST, SINGLE], ids=["latest", "single"])
def test_a_template_that_writes_the_last_turn_otherwise_is_rendered_by_what_is_new(model_dir, tmp_path, source):
    """Qwen3: the turn that a message follows is on record as it was sampled; what follows it is whole rendering's, at its own cost."""
    assert LATEST != PLAIN and SINGLE != LATEST
    template = with_template(model_dir, tmp_path, source)
    renderer, end = Renderer(template), template.stop_ids[0]
    assert renderer.is_stable
    whole = renderer.whole(TALK, None)
    for known in (3, 5):
        new = renderer.after_reply(TALK, known, end, None)
        assert whole[-len(new) :] == new and whole[-len(new) - 1] == end
        assert template.decode(new).startswith(f"\n<|im_start|>{TALK[known].role}\n{TALK[known].content}")


def test_a_template_that_rewrites_every_earlier_turn_is_refused_clearly(model_dir, tmp_path):
    """B1: what the model saw and what the template now says cannot both be kept."""
    template = with_template(model_dir, tmp_path, FORGETFUL)
    renderer = Renderer(template)
    assert not renderer.is_stable
    with pytest.raises(InvalidInput, match="rewrites earlier turns"):
        renderer.after_reply(TALK, 5, template.stop_ids[0], None)


def test_a_template_that_refuses_a_message_is_the_requests_fault(model_dir, tmp_path):
    source = PLAIN.replace(
        "{% for m in messages %}",
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}",
    )
    renderer = Renderer(with_template(model_dir, tmp_path, source))
    with pytest.raises(InvalidInput, match="no tools"):
        renderer.whole(TALK, None)


@pytest.mark.parametrize(("place", "condition"), [("first", "loop.first"), ("later", "not loop.first")])
@pytest.mark.parametrize("how", ["{{ raise_exception('no system here') }}", "{% continue %}"], ids=["refuses", "drops"])
def test_system_messages_that_a_template_does_not_show_are_said_by_the_user(model_dir, tmp_path, place, condition, how):
    """Claude Code and others put them anywhere; nothing that a harness says is lost."""
    source = PLAIN.replace(
        "{% for m in messages %}",
        "{% for m in messages %}{% if m.role == 'system' and " + condition + " %}" + how + "{% endif %}",
    )
    template = with_template(model_dir, tmp_path, source)
    said = [Message("system", "one"), Message("user", "two"), Message("system", "three")]
    text = template.decode(Renderer(template).whole(said, None))
    assert "one" in text and "three" in text
    assert text.count("user") == 2 and text.count("system") == 1


def test_a_template_of_alternating_turns_without_a_system_gets_it_in_the_users_first_words(model_dir, tmp_path):
    """Gemma's kind: a second turn of the user's is refused as the system is; what comes later goes on as whole rendering has it."""
    source = PLAIN.replace(
        "{% for m in messages %}",
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}",
    )
    template = with_template(model_dir, tmp_path, source)
    renderer = Renderer(template)
    said = [
        Message("system", "one"), Message("user", "two"), Message("assistant", "yes"), Message("system", "three"), Message("user", "four"),
    ]  # fmt: skip
    whole = renderer.whole(said, None)
    assert "<|im_start|>user\none\n\ntwo<|im_end|>" in template.decode(whole)
    assert template.decode(whole).count("user\n") == 2
    new = renderer.after_reply(said, 3, template.stop_ids[0], None)
    assert whole[-len(new) :] == new


def test_reasoning_of_turns_that_are_not_on_record_is_shown_to_the_template(model_dir, tmp_path):
    """Whether it keeps it is its own rule; Qwen's does after the last question only."""
    source = PLAIN.replace("{{ m.content }}", "{{ m.reasoning_content or '' }}{{ m.content }}")
    assert source != PLAIN
    template = with_template(model_dir, tmp_path, source)
    said = [Message("user", "u"), Message("assistant", "said", reasoning="thought"), Message("user", "v")]
    assert "thoughtsaid" in template.decode(Renderer(template).whole(said, None))


def test_arguments_go_in_as_objects_where_the_template_wants_them(model_dir, tmp_path):
    source = PLAIN.replace(
        "{{ m.content }}",
        "{{ m.content }}{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% endfor %}",
    )
    template = with_template(model_dir, tmp_path, source)
    assert "path=a.py" in template.decode(Renderer(template).whole(TALK, None))


def test_a_model_without_template_or_end_token_is_refused_at_start(model_dir, tmp_path):
    with pytest.raises(ConfigError, match="no readable tokenizer"):
        ChatTemplate.load(tmp_path)
    template_less = with_template(model_dir, tmp_path, PLAIN)
    assert template_less.stop_ids
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="no chat template"):
        ChatTemplate.load(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del config["eos_token"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": PLAIN}))
    with pytest.raises(ConfigError, match="end-of-sequence"):
        ChatTemplate.load(tmp_path)
