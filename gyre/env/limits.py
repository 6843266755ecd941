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
MILESTONES_MAX = 64
"""The gateway takes no more; a larger map might not even fit one message."""


def cut_text(text: str, bytes_max: int) -> str:
    """`text` in at most `bytes_max` bytes of UTF-8; when something is missing the text says so itself."""
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    if size <= bytes_max:
        return text
    note = f"\n[cut: {size} bytes, the first {bytes_max} at most are shown]"
    kept = text[:bytes_max].encode(errors="replace")[: max(0, bytes_max - len(note))]
    return kept.decode(errors="ignore") + note[: max(0, bytes_max - len(kept))]


def cut_detail(text: str) -> str:
    """The end of an error's text: the end of a traceback is what names the fault. Undecodable file names in it become question marks."""
    kept = text if len(text) <= DETAIL_CHARS_MAX else "… " + text[2 - DETAIL_CHARS_MAX :]
    return kept.encode(errors="replace").decode()


def check_sendable(what: str, value: Any) -> None:
    """Raises InvalidInput when `value`, which goes to the model, is not JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} must hold JSON values only: {error}") from error


def check_made_of(image_digest: Any, tool_versions: Any, dependency_snapshot: Any) -> None:
    """Evidence of what a world was made of: short texts. Raises InvalidInput."""
    if not isinstance(tool_versions, dict):
        raise InvalidInput(f"Evidence.tool_versions must be a dict, not {type(tool_versions).__name__}")
    texts = [image_digest, dependency_snapshot, *tool_versions, *tool_versions.values()]
    for text in texts:
        if not isinstance(text, str):
            raise InvalidInput(f"Evidence must hold texts only, not {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"Evidence must hold Unicode text: {error}") from error
    if (size := sum(map(len, texts))) > EVIDENCE_BYTES_MAX:
        raise InvalidInput(f"Evidence has {size} characters, at most {EVIDENCE_BYTES_MAX}: give digests, not contents")


def check_milestones(weights: Any) -> None:
    """Names and weights as an environment declares them. Raises InvalidInput."""
    if not isinstance(weights, dict) or len(weights) > MILESTONES_MAX:
        count = len(weights) if isinstance(weights, dict) else type(weights).__name__
        raise InvalidInput(f"milestones must be a dict of at most {MILESTONES_MAX} names, not {count}")
    for name, weight in weights.items():
        if not isinstance(name, str) or len(name) > MILESTONES_MAX:
            raise InvalidInput(
                f"a milestone's name must be a text of at most {MILESTONES_MAX} characters, not {str(name)[:80]!r}"
            )
        if not isinstance(weight, int | float) or not 0 <= weight <= 1:
            raise InvalidInput(f"milestone {name} must weigh a number from 0 to 1, not {str(weight)[:80]!r}")


def evidence_json(evidence: dict[str, Any]) -> str:
    """Evidence as a JSON object inside its bound. Raises InvalidInput when it is not JSON."""
    if not isinstance(evidence, dict):
        raise InvalidInput(f"Score.evidence must be a dict, not {type(evidence).__name__}")
    try:
        text = json.dumps(evidence, allow_nan=False, default=_scalar)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"Score.evidence must hold JSON values only: {error}") from error
    if len(text) <= EVIDENCE_BYTES_MAX:
        return text
    return json.dumps({"cut": f"{len(text)} bytes of evidence, {EVIDENCE_BYTES_MAX} are stored at most"})


def checked_outcome(outcome: Any) -> float:
    """A number in [0, 1], one of a numerical library's as well. Raises InvalidInput."""
    try:
        # A text is no number, whatever it says.
        number = float(outcome) if hasattr(type(outcome), "__float__") else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if 0 <= number <= 1:
        return number
    raise InvalidInput(f"Score.outcome must be a number from 0 to 1, not {str(outcome)[:80]!r}")


def truth(what: str, value: Any) -> bool:
    """Raises InvalidInput for what is neither true nor false, as an array of several."""
    try:
        return bool(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what} must be true or false, not {type(value).__name__}: {error}") from error


def _scalar(value: Any) -> Any:
    """For json: a number of a numerical library as Python's own."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
