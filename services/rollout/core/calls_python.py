"""Tool calls written as Python, with literals for arguments (Llama 4 and others that are shown this form). Nothing is evaluated: what is written
becomes JSON word by word, at a cost that is its length.

    [edit(path="a.py", line=12), run(where={"a": [None, True]})]      in <|python_start|>…<|python_end|> or not
"""

import json
import re
import sys

from services.rollout.core.calls_json import Read, Said, lenient
from services.rollout.core.calls_xml import Schemas, as_json, value_of
from services.rollout.core.opencalls import Skim

START, END = "<|python_start|>", "<|python_end|>"
DEPTH_MAX = 100
"""Of brackets in brackets."""

_LEAD = re.compile(r"(?:\s*(?:<\|python_start\|>\s*\[?|\[)|(?<=\))\s*,)\s*")
"""What stands before a call: the beginning of the list, or, behind another call, a comma."""
_NAME = re.compile(r"([\w.-]{1,128})\(", re.ASCII)
_NAME_BEGUN = re.compile(r"[\w.-]{0,128}", re.ASCII)
_OVER = re.compile(r"\s*(?:(?=,)|\Z|\]\s*(?:<\|python_end\|>)?|<\|python_end\|>)")
"""What may follow a call."""
_KEY = re.compile(r"\s*([\w.-]{1,128})\s*=(?!=)\s*")
_WORD = re.compile(r"\s*(?:([\w.+-]+)|([()\[\]{},:]))\s*")
_QUOTE = re.compile(r"\s*([rRuU]?)(\"\"\"|'''|\"|')")
_INSIDE = {
    '"': re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL),
    "'": re.compile(r"[^'\\]*+(?:\\.[^'\\]*+)*+", re.DOTALL),
    '"""': re.compile(r'[^"\\]*+(?:(?:\\.|"{1,2}(?=[^"]))[^"\\]*+)*+', re.DOTALL),
    "'''": re.compile(r"[^'\\]*+(?:(?:\\.|'{1,2}(?=[^']))[^'\\]*+)*+", re.DOTALL),
}
_ESCAPE = re.compile(r"\\(\n|[\\'\"abfnrtv]|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})")
_ESCAPED = {"\n": "", "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORDS = {"None": "null", "True": "true", "False": "false"} | {
    word: word for word in ("null", "true", "false", "NaN", "Infinity", "-Infinity")
}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_OUTSIDE = re.compile(r"[^\"'()\[\]{}<]*+")


class Python:
    """The form, as callforms.Form."""

    def read(self, text: str, at: int, schemas: Schemas) -> Read:
        """One call of the list, with what ends the list."""
        lead = _LEAD.match(text, at)
        if lead is None:
            rest = text[at:].lstrip()
            return None, None if START.startswith(rest) else at
        named = _NAME.match(text, lead.end())
        if named is None:
            return None, None if _NAME_BEGUN.match(text, lead.end()).end() == len(text) else at  # type: ignore[union-attr]
        try:
            written, end = _json_of(text, named.end())
            if written is None:
                return None, None
            values = lenient.decode(written)
        except (ValueError, RecursionError):
            return None, at
        if (over := _OVER.match(text, end)) is None:
            return None, at
        known = schemas.get(named[1], {})
        values = {
            key: value_of(said, known.get(key)) if isinstance(said, str) else said for key, said in values.items()
        }
        return Said(named[1], as_json(values)), over.end()

    def skim(self, text: str, at: int) -> Skim | None:
        lead = _LEAD.match(text, at)
        named = _NAME.match(text, lead.end()) if lead is not None else None
        return PythonSkim(named.end()) if named is not None else None


class PythonSkim:
    """Of a call whose arguments begin at `at`: its end is where its bracket closes, outside of texts."""

    def __init__(self, at: int) -> None:
        self._at, self._depth, self._quote = at, 1, ""

    def is_due(self, text: str) -> bool:
        while True:
            if self._quote:
                self._at = _INSIDE[self._quote].match(text, self._at).end()  # type: ignore[union-attr]
                if not text.startswith(self._quote, self._at):
                    return False
                self._at, self._quote = self._at + len(self._quote), ""
            self._at = _OUTSIDE.match(text, self._at).end()  # type: ignore[union-attr]
            mark = text[self._at : self._at + 1]
            if not mark:
                return False
            if mark in "\"'":
                if text[self._at : self._at + 3] in (mark, mark * 2) and len(text) < self._at + 3:
                    return False  # it may become one of three
                self._quote = mark * 3 if text.startswith(mark * 3, self._at) else mark
            elif mark in "([{":
                self._depth += 1
            elif mark in ")]}" and self._depth > 1:
                self._depth -= 1
            else:
                return True
            self._at += len(self._quote) or 1


def _json_of(text: str, at: int) -> tuple[str | None, int]:
    """The arguments that begin at `at`, as JSON's text of one object, and where the call ends; None: it is cut. Raises ValueError where they are no
    literals with names."""
    said, open_ = ["{"], [")"]
    while True:
        if len(open_) == 1 and (key := _KEY.match(text, at)) is not None and said[-1] in "{,":
            said += json.dumps(key[1]), ":"
            at = key.end()
        if (quote := _QUOTE.match(text, at)) is not None:
            inside = _INSIDE[quote[2]].match(text, quote.end())
            at = inside.end()  # type: ignore[union-attr]
            if not text.startswith(quote[2], at):
                return None, at
            said.append(json.dumps(inside[0] if quote[1] in ("r", "R") else _unescaped(inside[0])))  # type: ignore[index]
            at += len(quote[2])
            continue
        word = _WORD.match(text, at)
        if word is None:
            if text[at:].strip():
                raise ValueError("no literal")
            return None, at
        at = word.end()
        if word[1]:
            if at == len(text):
                return None, at
            said.append(_word(word[1]))
        elif word[2] in _CLOSERS:
            open_.append(_CLOSERS[word[2]])
            said.append("{" if word[2] == "{" else "[")
            if len(open_) > DEPTH_MAX:
                raise ValueError("too deep")
        elif word[2] in ",:":
            if word[2] == ":" and len(open_) == 1:
                raise ValueError("no name of an argument")
            said.append(word[2])
        elif open_.pop() != word[2]:
            raise ValueError("brackets do not match")
        else:
            if said[-1] == ",":
                said.pop()
            if not open_:
                return "".join([*said, "}"]), word.end(2)
            said.append("}" if word[2] == "}" else "]")


def _word(word: str) -> str:
    """Raises ValueError for what is neither a constant nor a number."""
    if word in _WORDS:
        return _WORDS[word]
    if _NUMBER.fullmatch(word):
        return word
    try:
        return str(int(word, 0))
    except ValueError:
        return repr(float(word))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    said = escape[1]
    if said in _ESCAPED or said in "\\'\"":
        return _ESCAPED.get(said, said)
    code = int(said[1:], 16) if said[0] in "xuU" else int(said, 8)
    return chr(code) if code <= sys.maxunicode else escape[0]
