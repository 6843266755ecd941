"""Bounds of what an environment may send, so that a careless one harms nobody but itself."""

import json
import math
from typing import Any

from gyre.errors import InvalidInput

DETAIL_CHARS_MAX = 2000
"""An error's text is for people; a traceback of this length still shows its end."""
EVIDENCE_BYTES_MAX = 64 * 1024
"""What an evaluation looked at is stored with every sample; digests and counts fit, files do not."""
OBSERVATION_BYTES_MAX = 64 * 1024
"""Used where the gateway names no bound of its own."""


def cut_text(text: str, bytes_max: int) -> str:
    """`text` in at most `bytes_max` bytes of UTF-8; when something is missing the text says so itself."""
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    if size <= bytes_max:
        return text
    note = f"\n[cut: {size} bytes, the first {bytes_max} at most are shown]"
    kept = text[:bytes_max].encode(errors="replace")[: max(0, bytes_max - len(note))]
    return kept.decode(errors="ignore") + note[: max(0, bytes_max - len(kept))]


def cut_detail(text: str) -> str:
    """The end of an error's text: the end of a traceback is what names the fault."""
    return text if len(text) <= DETAIL_CHARS_MAX else "… " + text[2 - DETAIL_CHARS_MAX :]


def evidence_json(evidence: dict[str, Any]) -> str:
    """Evidence as a JSON object inside its bound. Raises InvalidInput when it is not JSON."""
    try:
        text = json.dumps(evidence, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"Score.evidence must hold JSON values only: {error}") from error
    if len(text) <= EVIDENCE_BYTES_MAX:
        return text
    return json.dumps({"cut": f"{len(text)} bytes of evidence, {EVIDENCE_BYTES_MAX} are stored at most"})


def checked_outcome(outcome: Any) -> float:
    """A number in [0, 1]. Raises InvalidInput."""
    if isinstance(outcome, bool | int | float) and math.isfinite(outcome) and 0 <= outcome <= 1:
        return float(outcome)
    raise InvalidInput(f"Score.outcome must be a number from 0 to 1, not {str(outcome)[:80]!r}")
