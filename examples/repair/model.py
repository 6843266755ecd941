"""The model of the example: a real tokenizer, chat template and architecture, small enough to learn on two CPU cores.

    packages, tool calls, template ──▶ byte-level BPE ──┐
                              Qwen's chat format ───────┼──▶ a directory for AutoTokenizer and AutoModelForCausalLM
                              random Qwen3 weights ─────┘

`python -m examples.repair.model --out DIR --seed N`
"""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from random import Random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, set_seed

from examples.repair.environment import tasks
from examples.repair.packages import make_package

VOCABULARY_MAX = 1024
CONTEXT_MAX = 1024

END_OF_TURN = "<|im_end|>"
PADDING = "<|endoftext|>"
SPECIAL = (
    PADDING, "<|im_start|>", END_OF_TURN, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
)  # fmt: skip

CHUNKS = "|".join((
    r'\{"name": "[a-z_]+", "arguments": \{("path": ")?',
    r'", "name": "', r'", "old": "', r'", "new": "', r'"?\}\}',
    r" ?[A-Za-z_]+(\.py)?",
    r" ?[0-9]{1,2}",
    r" {2,}",
    r"[):]*\n+",
    r" ?[^\sA-Za-z0-9_\"{}]+",
    r"\s+|.",
))  # fmt: skip
"""What the byte-pair merges may join: words with the space before them, numbers, runs of signs, an indentation, and, unlike
in larger models, the fixed parts of a tool call, so that choosing a tool is one token and a whole edit some fifteen."""

CHAT_TEMPLATE = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n' }}{%- endif %}
    {%- for tool in tools %}
        {%- set f = tool.function if tool.function is defined else tool %}
        {{- f.name + '(' + f.parameters.properties.keys() | join(', ') + ')\\n' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + content }}
        {%- for call in message.tool_calls or [] %}
            {%- if not loop.first or content %}{{- '\\n' }}{%- endif %}
            {%- set f = call.function if call.function is defined else call %}
            {{- '<tool_call>\\n{"name": "' + f.name + '", "arguments": ' }}
            {{- f.arguments if f.arguments is string else f.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""Qwen's format; tools as signatures, consecutive tool results in one user turn, no thinking."""


def make_tokenizer(texts: Iterator[str], vocabulary_max: int = VOCABULARY_MAX) -> PreTrainedTokenizerFast:
    """A byte-level BPE over these texts: any bytes can be encoded and decode to themselves."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CHUNKS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_max, special_tokens=list(SPECIAL), show_progress=False, min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END_OF_TURN, pad_token=PADDING, chat_template=CHAT_TEMPLATE.strip(),
        model_max_length=CONTEXT_MAX, clean_up_tokenization_spaces=False,
    )  # fmt: skip


def make_config(tokenizer: PreTrainedTokenizerFast, layers: int = 2, hidden: int = 96) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=-(-len(tokenizer) // 64) * 64, hidden_size=hidden, intermediate_size=3 * hidden,
        num_hidden_layers=layers, num_attention_heads=hidden // 32, num_key_value_heads=hidden // 32, head_dim=32,
        max_position_embeddings=CONTEXT_MAX, rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True, initializer_range=0.08, use_cache=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, dtype="float32",
    )  # fmt: skip


def make_model(out: str, seed: int, texts: Iterator[str] | None = None, layers: int = 2, hidden: int = 96) -> None:
    """Write a randomly initialised model with its tokenizer to `out`, which appears whole or not at all."""
    tokenizer = make_tokenizer(texts if texts is not None else corpus(seed))
    set_seed(seed)
    model = Qwen3ForCausalLM(make_config(tokenizer, layers, hidden))
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    parent = os.path.dirname(os.path.abspath(out))
    os.makedirs(parent, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".model-", dir=parent)
    try:
        tokenizer.save_pretrained(temporary)
        model.save_pretrained(temporary)
        os.rename(temporary, out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def corpus(seed: int, packages: int = 1500) -> Iterator[str]:
    """Texts as the model will see them: training packages, tool calls, test reports."""
    rng = Random(f"repair-corpus/{seed}")
    for task in tasks("train", packages, seed):
        package = make_package(task.seed)
        for path, text in package.files.items():
            yield text
            yield call_text("read_file", {"path": path})
        edit = {"path": package.fault_path, "name": package.fault_name, "old": package.wrong, "new": package.right}
        yield call_text("replace", edit)
        for name in ("run_tests", "list_files", "submit"):
            yield call_text(name, {})
        yield "\n".join(package.files)
        module, failed = package.fault_path.removesuffix(".py"), rng.randint(1, 3)
        yield f"FAIL {module}.py f: got {rng.randint(-9, 99)}, expected {rng.randint(-9, 99)}\n{failed} of 6 failed"
        yield from (
            f"FAIL {module}.py {line[4:].split('(')[0]}:" for line in package.solution.split("\n") if line[:4] == "def "
        )
        yield f"ERROR {package.fault_path}:1: ModuleNotFoundError: No module named '{package.wrong}'\nOK"
        yield "system\nuser\nassistant\nlist_files()\nread_file(path)\nreplace(path, name, old, new)\nrun_tests()\n"
        yield "submit()\nRepair the package.\nThe tests fail. Find the fault, mend it, submit.\nsubmitted\nerror: "


def call_text(name: str, arguments: dict) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="directory to write; must not exist")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=96)
    options = parser.parse_args()
    make_model(options.out, options.seed, layers=options.layers, hidden=options.hidden)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
