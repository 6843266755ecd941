"""The model's own chat template and tokenizer, without transformers and torch: jinja2 and tokenizers read the model directory."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from gyre.errors import ConfigError, InvalidInput
from services.rollout.core.pieces import Encode, chars_max, encoder

__all__ = ["ChatTemplate", "Encode"]

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
"""A single text is no work for the library's pool of threads, which would also be in the way of forks."""
DATE_ANSWER = "01 January 2026"
"""What templates that ask for today's date get: a prompt must not depend on the day it is rendered."""


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks training targets for others; here it is only its content."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        parser.stream.skip(1)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """Messages → text → ids, and back."""

    def __init__(self, tokenizer: Tokenizer, source: str, special: dict[str, str], stop_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        config = json.loads(tokenizer.to_str())
        self.encode = encoder(tokenizer, config, self.encode_long)
        """Text → ids (list[int]); what is no added token is only text."""
        self.token_chars_max = chars_max(config)
        """A text of so many characters a token cannot be fewer tokens; None: nothing is certain of this tokenizer."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda _format: DATE_ANSWER
        self._template = environment.from_string(source)
        self._special = special
        self.stop_ids = tuple(stop_ids)
        """Tokens that end a turn; the first is the tokenizer's own end-of-sequence token."""

    @classmethod
    def load(cls, model_dir: Path) -> "ChatTemplate":
        """Raises ConfigError when the directory holds no fast tokenizer or no chat template."""
        try:
            tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
            config = json.loads((model_dir / "tokenizer_config.json").read_text())
        except Exception as error:  # tokenizers raises plain Exception
            raise ConfigError(
                f"{model_dir} has no readable tokenizer.json and tokenizer_config.json: {error}"
            ) from error
        file = model_dir / "chat_template.jinja"
        source = file.read_text() if file.exists() else config.get("chat_template")
        if isinstance(source, list):
            source = next((entry["template"] for entry in source if entry.get("name") == "default"), None)
        if not isinstance(source, str):
            raise ConfigError(f"{model_dir} has no chat template (chat_template.jinja, or in tokenizer_config.json)")
        special = {
            name: _token_text(config[name])
            for name in ("bos_token", "eos_token", "pad_token", "unk_token")
            if config.get(name)
        }
        stop = [tokenizer.token_to_id(special.get("eos_token", "")), *_generation_stops(model_dir)]
        stop_ids = list(dict.fromkeys(token for token in stop if token is not None))
        if not stop_ids:
            raise ConfigError(f"{model_dir} names no end-of-sequence token: a turn could never end")
        return cls(tokenizer, source, special, stop_ids)

    def render(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, generation: bool
    ) -> str:
        """Text of a conversation; `generation` opens the assistant's turn. Raises InvalidInput with the template's reason."""
        try:
            return self._template.render(
                messages=messages, tools=tools or None, add_generation_prompt=generation, **self._special
            )
        except (jinja2.TemplateError, TypeError, KeyError, ValueError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"messages do not fit the model's chat template: {error}") from error

    def encode_long(self, text: str) -> list[int]:
        """As `encode`, by the library alone, which lets go of the interpreter meanwhile; for threads."""
        # without offsets, which cost a third
        return self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens included."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


def _generation_stops(model_dir: Path) -> list[int]:
    path = model_dir / "generation_config.json"
    stop = json.loads(path.read_text()).get("eos_token_id") if path.exists() else None
    return stop if isinstance(stop, list) else [stop]


def _token_text(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else str(token)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)
