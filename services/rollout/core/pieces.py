"""Ids of text by pieces that are known already: what the tokenizer's library gives, in less than half of its time.

    text ──added tokens──▶ segments ──the tokenizer's own expressions──▶ pieces ──byte-pair merges──▶ ids
                               │ not ASCII: the library                      │ known: looked up

A byte-level BPE merges nothing across pieces, so a piece has the same ids wherever it stands, and an agent's words come again and again. Only what is
certain is done here: text in ASCII, where letters, numbers and spaces are few and the same for everybody, cut by expressions that mean the
same to Python as to the library. Whatever a tokenizer has that is not in this file, its text goes to the library whole.
"""

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from tokenizers import Tokenizer

Encode = Callable[[str], list[int]]

PIECES_MAX, PIECE_CHARS_MAX = 32_768, 48
"""Pieces that are known at most, and how long one may be: some 8 MiB."""
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What `ByteLevel` cuts by where it cuts at all."""
CATEGORIES = {
    "L": "A-Za-z", "Lu": "A-Z", "Ll": "a-z", "Lt": "", "Lm": "", "Lo": "", "M": "", "N": "0-9", "Nd": "0-9",
    "P": r"!\"#%&'()*,\-./:;?@\[\\\]_{}", "S": r"$+<=>\^`|~", "Z": " ",
}  # fmt: skip
"""Unicode's, as far as ASCII goes; written as the inside of a set."""
_UNIT = re.compile(
    r"""(?P<category>\\[pP]\{\^?[A-Za-z]+\})|(?P<escape>\\[sSdDwWrnt]|\\[^A-Za-z0-9])|(?P<set>\[\^?)
    |(?P<group>\(\?(?:i?:|=|!|<=|<!|>))|(?P<plain>\((?!\?))|(?P<times>\{(?:\d+(?:,\d*)?|,\d+)\}(?!\+))|(?P<sign>[^\\\[\](){}^$])|(?P<close>\))""",
    re.VERBOSE | re.DOTALL,
)
_IN_SET = re.compile(
    r"""(?P<category>\\p\{[A-Za-z]+\})|(?P<escape>\\[sSdDwWrnt]|\\[^A-Za-z0-9])|(?P<end>\])|(?P<sign>[^\\\[\]&]|&(?!&))""",
    re.VERBOSE | re.DOTALL,
)


class NotCertain(Exception):
    """Something that may not mean the same here."""


class Pieces:
    """The encoder of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, config: dict[str, Any], library: Encode) -> None:
        """`config` is tokenizer.json's content. Raises NotCertain, and KeyError, TypeError, re.error of what is odd; see `encoder`."""
        _check(config)
        self._cuts = _cuts(config["pre_tokenizer"])
        added = config["added_tokens"]
        if config["normalizer"] and any(token["normalized"] and not token["content"].isascii() for token in added):
            raise NotCertain  # it may become ASCII
        self._added = {token["content"]: (token["id"],) for token in added}
        self._first, self._then = (
            _split_by([token["content"] for token in added if token["normalized"] is normalized])
            for normalized in (False, True)
        )
        self._model, self._library = tokenizer.model, library
        self._known: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """As the library."""
        found: list[tuple[int, ...]] = []
        for index, segment in enumerate(self._first(text)):
            if index % 2:
                found.append(self._added[segment])
            elif segment and not segment.isascii():
                found.append(tuple(self._library(segment)))
            elif segment:
                for place, part in enumerate(self._then(segment)):
                    found += (self._added[part],) if place % 2 else self._of(part)
        return list(chain.from_iterable(found))

    def _of(self, text: str) -> Sequence[tuple[int, ...]]:
        pieces = [text] if text else []
        for cut in self._cuts:
            pieces = cut(pieces[0]) if len(pieces) == 1 else [piece for whole in pieces for piece in cut(whole)]
        found = list(map(self._known.get, pieces))
        if None in found:
            found = [ids if ids is not None else self._new(piece) for ids, piece in zip(found, pieces, strict=True)]
        return found  # type: ignore[return-value]

    def _new(self, piece: str) -> tuple[int, ...]:
        ids = tuple(token.id for token in self._model.tokenize(piece.translate(_SHOWN)))
        if len(piece) <= PIECE_CHARS_MAX:
            if len(self._known) >= PIECES_MAX:
                self._known.clear()
            self._known[piece] = ids
        return ids


def encoder(tokenizer: Tokenizer, config: dict[str, Any], library: Encode) -> Encode:
    """By pieces where that is certain to give what `library` gives, else `library`."""
    try:
        pieces = Pieces(tokenizer, config, library)
    except (NotCertain, KeyError, TypeError, re.error):
        return library
    return pieces.encode if all(pieces.encode(text) == library(text) for text in _PROBES) else library


COMPOSED_MAX = 4
"""Characters that Unicode's normal forms make one of (Unicode Standard Annex 15, table of expansion factors)."""
BYTE_SIGNS = 256


def chars_max(config: dict[str, Any]) -> int | None:
    """Characters that a token of this tokenizer stands for at most; None where that is not certain: a byte-level model that knows every byte leaves
    nothing out, and each sign of its tokens is a byte."""
    try:
        _check(config)
        stages = config["pre_tokenizer"].get("pretokenizers", [config["pre_tokenizer"]])
        vocabulary = config["model"]["vocab"]
        if stages[-1]["type"] != "ByteLevel" or sum(len(token) == 1 for token in vocabulary) < BYTE_SIGNS:
            return None
    except (NotCertain, KeyError, TypeError, AttributeError):
        return None
    longest = max(map(len, [*vocabulary, *(token["content"] for token in config["added_tokens"])]))
    return longest * (COMPOSED_MAX if config["normalizer"] is not None else 1)


def _check(config: dict[str, Any]) -> None:
    model, added = config["model"], config["added_tokens"]
    certain = (
        model["type"] == "BPE"
        and not model["dropout"]
        and config["truncation"] is None
        and config["padding"] is None
        and _is_nothing(config["normalizer"])
        and not any(token["single_word"] or token["lstrip"] or token["rstrip"] for token in added)
    )
    if not certain:
        raise NotCertain


def _is_nothing(normalizer: dict[str, Any] | None) -> bool:
    """To ASCII."""
    if normalizer is None or normalizer["type"] in ("NFC", "NFD", "NFKC", "NFKD"):
        return True
    return normalizer["type"] == "Sequence" and all(map(_is_nothing, normalizer["normalizers"]))


def _cuts(config: dict[str, Any]) -> list[Callable[[str], list[str]]]:
    """What a text is cut by, one after the other; the last turns bytes into the model's signs, which is all that it may do to them."""
    stages = config["pretokenizers"] if config["type"] == "Sequence" else [config]
    *before, last = stages
    if last["type"] != "ByteLevel" or last["add_prefix_space"]:
        raise NotCertain
    cuts = [_stage(stage) for stage in before]
    return [*cuts, _cut(GPT2)] if last["use_regex"] else cuts


def _stage(config: dict[str, Any]) -> Callable[[str], list[str]]:
    match config:
        case {"type": "Digits", "individual_digits": bool(each)}:
            return _cut(r"[0-9]" if each else r"[0-9]+")
        case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": str(pattern)}}:
            return _cut(pattern)
        case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"String": str(text)}}:
            return _cut(re.sub(r"([^A-Za-z0-9])", r"\\\1", text))
    raise NotCertain


def _cut(pattern: str) -> Callable[[str], list[str]]:
    """Text → its matches and what stands between them."""
    ours = re.compile(translated(pattern), re.ASCII)
    if ours.match("") is not None:
        raise NotCertain
    find, with_rest = ours.findall, re.compile(f"({ours.pattern})", re.ASCII).split

    def cut(text: str) -> list[str]:
        found = find(text)
        return found if sum(map(len, found)) == len(text) else [piece for piece in with_rest(text) if piece]

    return cut


def translated(pattern: str) -> str:
    """An expression of the library's (Oniguruma's) as Python's `re` has it, for ASCII text; without groups. Raises NotCertain for what may
    differ, KeyError for a category that is not in CATEGORIES."""
    parts, at = list[str](), 0
    while at < len(pattern):
        unit = _UNIT.match(pattern, at)
        if unit is None:
            raise NotCertain(pattern[at:])
        at = unit.end()
        match unit.lastgroup:
            case "set":
                inside, at = _set(pattern, at)
                parts.append(f"{unit[0]}{inside}]")
            case "category":
                parts.append(_category(unit[0]))
            case "plain":
                parts.append("(?:")
            case _:
                parts.append(unit[0])
    return "".join(parts)


def _set(pattern: str, at: int) -> tuple[str, int]:
    """The inside of a set, and where its bracket is over."""
    parts = list[str]()
    while True:
        unit = _IN_SET.match(pattern, at)
        if unit is None:
            raise NotCertain(pattern[at:])
        at = unit.end()
        if unit.lastgroup == "end":
            break
        parts.append(CATEGORIES[unit[0][3:-1]] if unit.lastgroup == "category" else unit[0])
    if not (inside := "".join(parts)):
        raise NotCertain
    return inside, at


def _category(unit: str) -> str:
    """`\\p{L}`, `\\P{L}`, `\\p{^L}` outside of a set."""
    name = unit[3:-1]
    is_not = unit.startswith(r"\P") != name.startswith("^")
    signs = CATEGORIES[name.removeprefix("^")]
    if not signs:
        return r"[\x00-\x7f]" if is_not else r"(?!)"
    return f"[{'^' if is_not else ''}{signs}]"


def _split_by(texts: list[str]) -> Callable[[str], list[str]]:
    """Text → what stands between any of `texts`, the longest that fits, and every second one is that."""
    if not texts:
        return lambda text: [text]
    return re.compile(f"({'|'.join(map(re.escape, sorted(texts, key=len, reverse=True)))})").split


def _shown() -> dict[int, str]:
    """How a byte-level model writes each byte: printable ones as themselves, the others, in their order, from U+0100 on."""
    odd = [byte for byte in range(128) if not 33 <= byte <= 126]
    return {byte: chr(256 + place) for place, byte in enumerate(odd)}


_SHOWN = _shown()
_SIGNS = [chr(byte) for byte in range(128)]
_PROBES = (
    "".join(f"{sign}a {sign} {sign}{sign}1{sign}A\n{sign}" for sign in _SIGNS),
    "".join(_SIGNS),
    "It's we'll 1234567 \t\t x\r\n\r\n  y   \n\n z__init__(self, a=[1, 2]): // …é ſ\n ",
)
"""Of what a tokenizer is asked before it is trusted to be understood."""
