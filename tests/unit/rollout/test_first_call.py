"""Where the one call that is wanted ends: found as soon as it is there, at a cost that is the output's, whatever a model writes into it (A6, B2)."""

from random import Random

import pytest

from services.rollout.core import blocks
from services.rollout.core.blocks import FirstCall, is_closed
from services.rollout.core.families import QWEN

OPEN, CLOSE = QWEN.open, QWEN.close
BITS = [
    OPEN, CLOSE, "\n", " ", "{", "}", '"', '\\"', "\\", ":", ",", "[", "]", "x", "1", "null", "NaN", "</tool", "_call>", "<tool_call",
    '{"name": "f", "arguments": {"a": "', '"}}', '{"name": "f", "arguments": ', "<function=f>", "<function=", "<parameter=a>", "</parameter>",
    "</function>", OPEN + '{"name": "g", "arguments": {}}' + CLOSE, OPEN + "<function=g></function>" + CLOSE,
]  # fmt: skip


def _is_in(text: str) -> bool:
    return any(map(is_closed, blocks.blocks(text)))


@pytest.mark.parametrize("seed", range(8))
def test_what_is_found_piece_by_piece_is_what_the_whole_text_has(seed):
    """Never sooner; later only where an error stands that is looked for when the text has doubled, which one more reading of it shows."""
    rng = Random(seed)
    found = 0
    for _ in range(400):
        pieces = rng.choices(BITS, k=rng.randint(1, 40))
        first, text = FirstCall(think_open=False), ""
        for piece in pieces:
            text += piece
            is_in = first.is_in(text)
            if is_in != _is_in(text):
                assert not is_in and FirstCall(think_open=False).is_in(text) and _late(text), repr(text)
                break
            if is_in:
                found += 1
                break
    assert found > 20


def _late(text: str) -> bool:
    """Whether a block that is no JSON stands before the call."""
    return any(block.call is None and not block.is_cut for block in blocks.blocks(text))


INSIDE = {
    "one text": ('{"name": "f", "arguments": {"a": "', CLOSE, '"}}'),
    "a text with quotes": ('{"name": "f", "arguments": {"a": "', f'\\"{CLOSE}\\" {{', '"}}'),
    "many texts": ('{"name": "f", "arguments": {"a": [', f'"{CLOSE}", ', '""]}}'),
    "objects": ('{"name": "f", "arguments": {"a": [', f'{{"b": ["{CLOSE}"]}}, ', "1]}}"),
    "one parameter": ("<function=f><parameter=a>", CLOSE, "</parameter></function>"),
    "many parameters": ("<function=f>", f"<parameter=a>{CLOSE}</parameter>", "</function>"),
}


@pytest.mark.parametrize("kind", INSIDE)
def test_a_call_whose_texts_are_closing_marks_is_read_a_few_times(kind, monkeypatch):
    """Not with each of them; and its end is found at once."""
    begin, again, end = INSIDE[kind]
    read, real = [], blocks._block
    monkeypatch.setattr(blocks, "_block", lambda text, *rest: read.append(len(text)) or real(text, *rest))
    first, text = FirstCall(think_open=False), OPEN + begin
    for _ in range(500):
        text += again
        assert not first.is_in(text)
    text += end
    assert not first.is_in(text) and first.is_in(text + CLOSE)
    assert sum(read) < 8 * len(text)


@pytest.mark.parametrize("bad", ['he said "hi" there', 'x", y: "', '"}, <b>"'])
def test_a_call_behind_one_that_turns_out_to_be_none_is_found_at_once(bad):
    first, text = FirstCall(think_open=False), OPEN + '{"name": "f", "arguments": {"a": "' + CLOSE * 40
    assert not first.is_in(text)
    for piece in (bad, CLOSE, " then ", OPEN, '{"name": "g", "arguments": {}}'):
        text += piece
        assert not first.is_in(text)
    assert first.is_in(text + CLOSE)
