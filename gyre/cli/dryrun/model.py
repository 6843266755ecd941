"""A model directory for emulated cells: a tokenizer of single characters, a chat template, and weights without a tensor."""

import json
import string
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

START, END, UNKNOWN = "<|im_start|>", "<|im_end|>", "<|unk|>"
REPLY = '<tool_call>{"name": "work", "arguments": {}}</tool_call>'
"""One token: what an emulated cell answers."""
CHAT_TEMPLATE = (
    "{% for m in messages %}" + START + "{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}"
    '<tool_call>{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}}</tool_call>"
    "{% endfor %}" + END + "\n{% endfor %}"
    "{% if add_generation_prompt %}" + START + "assistant\n{% endif %}"
)
EMPTY_SAFETENSORS = (2).to_bytes(8, "little") + b"{}"


def make(folder: Path) -> Path:
    """Write it, unless it is there. Returns `folder`."""
    if (folder / "tokenizer.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    characters = sorted({*string.printable})
    tokenizer = Tokenizer(models.WordLevel({UNKNOWN: 0} | {c: i + 1 for i, c in enumerate(characters)}, UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (START, END, REPLY)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END, "chat_template": CHAT_TEMPLATE}))
    (folder / "config.json").write_text(json.dumps({"model_type": "emulated", "vocab_size": len(characters) + 4}))
    (folder / "model.safetensors").write_bytes(EMPTY_SAFETENSORS)
    return folder
