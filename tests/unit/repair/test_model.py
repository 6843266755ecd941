"""The example's tokenizer and chat template."""

import json

import pytest
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from examples.repair.demonstrations import careful, demonstrate, persistent
from examples.repair.environment import tasks
from examples.repair.model import call_text, corpus, make_model
from examples.repair.sandbox import Sandbox
from examples.repair.workspace import tools


@pytest.fixture(scope="session")
def directory(tmp_path_factory):
    out = str(tmp_path_factory.mktemp("model") / "model")
    make_model(out, seed=0, texts=corpus(0, packages=150), layers=1, hidden=64)
    return out


@pytest.fixture(scope="session")
def tokenizer(directory):
    return AutoTokenizer.from_pretrained(directory)


def ids(tokenizer, messages, **options):
    text = tokenizer.apply_chat_template(messages, tools=tools(), tokenize=False, **options)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def demonstrated(demonstrator, seed):
    sandbox = Sandbox()
    try:
        (task,) = tasks("train", 1, seed)
        return demonstrate(task, seed, sandbox, ((demonstrator, 1.0),))
    finally:
        sandbox.close()


def test_the_directory_is_an_ordinary_hugging_face_model(directory, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(directory)
    assert AutoConfig.from_pretrained(directory).model_type == "qwen3"
    assert (
        model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>") == tokenizer.eos_token_id
    )
    assert model.config.vocab_size >= len(tokenizer) and tokenizer.chat_template


def test_rendering_up_to_each_turn_gives_the_ids_of_the_whole(tokenizer):
    """B1, slime#2263: what the model saw at each of its turns is a prefix of the whole conversation's ids."""
    example = demonstrated(persistent, seed=0)
    messages = example["messages"]
    whole = ids(tokenizer, messages)
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    assert len(turns) >= 7  # test, read, edit, test, edit, test, submit
    for index in turns:
        prompt = ids(tokenizer, messages[:index], add_generation_prompt=True)
        assert whole[: len(prompt)] == prompt
        after = ids(tokenizer, messages[: index + 1])
        assert whole[: len(after)] == after


def test_tool_results_in_a_row_are_one_user_turn(tokenizer):
    """slime#2263"""
    call = {"type": "function", "function": {"name": "run_tests", "arguments": {}}}
    head = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "", "tool_calls": [call, call]}]
    results = [{"role": "tool", "content": "OK"}, {"role": "tool", "content": "two\nlines"}]
    text = tokenizer.apply_chat_template(head + results, tools=tools(), tokenize=False)
    assert text.endswith(
        "<|im_start|>user\n<tool_response>\nOK\n</tool_response>\n<tool_response>\ntwo\nlines\n</tool_response><|im_end|>\n"
    )
    # Ids of the results rendered one at a time, without the turn's end between them, join to the same ids.
    pieces = [
        "\n<|im_start|>user" + "\n<tool_response>\nOK\n</tool_response>",
        "\n<tool_response>\ntwo\nlines\n</tool_response>",
        "<|im_end|>\n",
    ]
    prefix = tokenizer.apply_chat_template(head, tools=tools(), tokenize=False).removesuffix("\n")
    joined = [i for piece in [prefix, *pieces] for i in tokenizer(piece, add_special_tokens=False)["input_ids"]]
    assert joined == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_arguments_may_be_given_as_json_text_or_as_an_object(tokenizer):
    """B2: both wire forms are the same tokens."""

    def with_arguments(arguments):
        call = {"type": "function", "function": {"name": "read_file", "arguments": arguments}}
        return ids(
            tokenizer, [{"role": "user", "content": "go"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
        )

    assert with_arguments({"path": "grid.py"}) == with_arguments('{"path": "grid.py"}')


def test_a_tool_call_costs_few_tokens(tokenizer):
    edit = call_text("replace", {"path": "grid.py", "name": "area", "old": "+", "new": "*"})
    assert len(tokenizer(edit)["input_ids"]) <= 16
    assert len(tokenizer(call_text("run_tests", {}))["input_ids"]) <= 7


@pytest.mark.parametrize(
    "text", ["", " ", "naïve → 日本", "\t\n\n  x == 'y'\n", '{"a": {"b": [1, 22, 333]}}', "<|im_end|"]
)
def test_any_text_survives_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_demonstrations_are_what_the_tools_really_said():
    example = demonstrated(careful, seed=5)
    assert example["outcome"] == 1.0 and json.dumps(example)
    assert [m["content"] for m in example["messages"] if m["role"] == "tool"][-2:] == ["OK", "submitted"]
