"""What comes from outside is shown on a terminal as text, whatever is in it: names, messages and errors are other people's (also an attacker's).

Control characters (with them every terminal escape), surrogates and the marks that reorder or hide text are written out as `\\x1b` or `\\u202e`;
what is longer than LINE_CHARACTERS_MAX is cut, with its length. `--json` is not touched: there JSON's own escapes make it exact and harmless.
"""

import re
import time
from typing import Any

import click

from gyre.errors import InvalidInput

LINE_CHARACTERS_MAX = 2_000
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_LINES = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""As _UNSEEN, but new lines stay."""


def clean(value: Any) -> Any:
    """Texts of any depth, keys of mappings too, made fit for one line of a terminal; other values as they are."""
    if isinstance(value, str):
        return line(value)
    if isinstance(value, dict):
        return {clean(name): clean(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean(inner) for inner in value]
    return value


def line(text: str) -> str:
    """One line."""
    return _cut(_UNSEEN.sub(_written, text[: LINE_CHARACTERS_MAX + 1]), len(text))


def paragraphs(text: str) -> str:
    """As `line`, for texts whose new lines are meant: an error and its hints."""
    return "\n".join(_cut(_LINES.sub(_written, one[: LINE_CHARACTERS_MAX + 1]), len(one)) for one in text.split("\n"))


def clock(at_s: float) -> str:
    """A moment as people here read it. `at_s` is whatever somebody wrote, also what no calendar has."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(at_s))
    except (ValueError, OverflowError, OSError):
        return f"{at_s:g} s"


def not_text(error: UnicodeEncodeError) -> InvalidInput:
    """What there is to say of a word or a path that somebody typed, and that no message and no file of ours can hold."""
    return InvalidInput(f"{error.object!r} is not UTF-8 text")


def say(text: str) -> None:
    """Print one line of somebody else's text."""
    click.echo(line(text))


def _written(found: re.Match) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _cut(shown: str, length: int) -> str:
    return shown if length <= LINE_CHARACTERS_MAX else f"{shown[:LINE_CHARACTERS_MAX]}… ({length:,} characters)"
