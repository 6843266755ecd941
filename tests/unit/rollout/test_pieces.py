"""Ids by pieces are the library's, for the tokenizers of the usual families; where that is not certain the library is asked."""

import json
from random import Random

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre

from examples.repair.model import CHUNKS, call_text, corpus
from services.rollout.core import pieces
from services.rollout.core.pieces import encoder, translated

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"\p{N}{1,3}", "[一-龥]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)  # fmt: skip


def _split(*patterns: str) -> pre.PreTokenizer:
    return pre.Sequence([*(pre.Split(Regex(one), "isolated") for one in patterns), pre.ByteLevel(False, use_regex=False)])  # fmt: skip


CUTS = {
    "gpt2": pre.ByteLevel(add_prefix_space=False), "qwen": _split(QWEN), "llama": _split(QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")),
    "o200k": _split(O200K), "deepseek": _split(*DEEPSEEK), "repair": _split(CHUNKS), "gaps": _split("[a-f]+"),
    "digits": pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]),
}  # fmt: skip
TEXTS = [*corpus(1, packages=20)]
BITS = [
    *map(chr, range(128)), *("é", "ſ", "\u3000", "二", "   ", "\r\n", "\n\n", " word", "Hello", "1234", "'s", "'S", "=="),
    *("<|im_start|>", "<|im_end|>", "<|im", "<tool_call>", "<tool", call_text("replace", {"path": "a.py"})),
]  # fmt: skip


def _tokenizer(cut: pre.PreTokenizer | None, **options: object) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**options))
    if cut is not None:
        tokenizer.pre_tokenizer = cut
    trainer = trainers.BpeTrainer(
        vocab_size=600, show_progress=False, special_tokens=["<|im_start|>", "<|im_end|>"], initial_alphabet=pre.ByteLevel.alphabet()
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=True), "<|im"])
    return tokenizer


def _encoders(tokenizer: Tokenizer):
    def library(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    return encoder(tokenizer, json.loads(tokenizer.to_str()), library), library


@pytest.mark.parametrize("family", CUTS)
def test_ids_are_the_librarys(family, monkeypatch):
    monkeypatch.setattr(pieces, "PIECES_MAX", 300)  # so that what is known is forgotten again, too
    tokenizer = _tokenizer(CUTS[family])
    tokenizer.normalizer = normalizers.NFC()
    ours, library = _encoders(tokenizer)
    assert ours is not library
    rng = Random(7)
    odd = ["".join(rng.choices(BITS, k=rng.randint(0, 30))) for _ in range(1500)]
    for text in [*TEXTS, *odd, "x" * 500]:
        assert ours(text) == library(text), repr(text)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: setattr(one, "normalizer", normalizers.Lowercase()),
        lambda one: setattr(one, "pre_tokenizer", pre.ByteLevel(add_prefix_space=True)),
        lambda one: setattr(one, "pre_tokenizer", _split(r"^a|\w+")),
        lambda one: setattr(one, "pre_tokenizer", pre.Metaspace()),
        lambda one: one.add_tokens([AddedToken("<end>", lstrip=True)]),
        lambda one: one.enable_truncation(8),
        lambda one: (
            setattr(one, "normalizer", normalizers.NFKC()),
            one.add_tokens([AddedToken("ﬁn", normalized=True)]),
        ),
    ],
)
def test_what_is_not_certain_goes_to_the_library(change):
    tokenizer = _tokenizer(CUTS["qwen"])
    change(tokenizer)
    ours, library = _encoders(tokenizer)
    assert ours is library


def test_a_probe_that_differs_makes_the_library_do_all():
    tokenizer = _tokenizer(CUTS["qwen"])

    def library(text: str) -> list[int]:
        return [*tokenizer.encode(text, add_special_tokens=False).ids, 0]

    assert encoder(tokenizer, json.loads(tokenizer.to_str()), library) is library


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (r"(\.py)?[^\s\p{L}]", r"(?:\.py)?[^\sA-Za-z]"),
        (r"\P{N}\p{^L}\p{Lu}\p{M}", r"[^0-9][^A-Za-z][A-Z](?!)"),
        (r"\p{M}*+[\p{M}a]", r"(?!)*+[a]"),
    ],
)
def test_expressions_as_python_has_them(theirs, ours):
    assert translated(theirs) == ours


ODD = (
    r"a{2}+", "^a", "a$", r"\bword", r"[[:alpha:]]", r"[a-z&&b]", r"(?<name>a)", r"\1", r"[\p{M}]", r"\p{Greek}", "a{", "[a", "a{,}", "a{}",
)  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_expressions_that_may_mean_something_else_are_refused(odd):
    with pytest.raises((KeyError, pieces.NotCertain)):
        translated(odd)
