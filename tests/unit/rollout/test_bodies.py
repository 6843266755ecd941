"""Pieces of bodies: what two bodies begin with is found to the piece, and each byte is kept once (B1)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.rollout.core.bodies import BLOCK, Pieces

PIECE = st.binary(min_size=1, max_size=3)
EDITS = st.lists(st.tuples(st.integers(0, 5 * BLOCK), st.lists(PIECE, max_size=2 * BLOCK)), max_size=6)


def new(pieces: list[bytes], after: int) -> list[bytes]:
    """As many pieces as there are, of bytes that do not come before: none is the beginning of another one."""
    return [b"%d:%s;" % (after + index, piece) for index, piece in enumerate(pieces)]


@settings(max_examples=200, deadline=None)
@given(EDITS, st.integers(0, 5 * BLOCK), PIECE)
def test_what_a_body_begins_with_is_counted_in_pieces(edits, cut, other):
    """Bodies that go on from any earlier one, at any piece; each is compared with the beginnings of all the others."""
    known, made = [Pieces()], 0
    for kept, more in edits:
        before = known[-1]
        known.append(Pieces(before, min(kept, len(before)), new(more, made)))
        made += len(more)
    for pieces in known:
        data = [piece.data() for piece in pieces]
        assert [pieces.end(count) for count in range(len(data) + 1)] == [
            len(b"".join(data[:count])) for count in range(len(data) + 1)
        ]
        for one in known:
            same = sum(1 for _ in iter_same(data, [piece.data() for piece in one]))
            assert one.common(b"".join(data) + b"]}") == same
        kept = min(cut, len(data))
        assert pieces.common(b"".join(data[:kept]) + b"!" + other) == kept


def iter_same(first: list[bytes], second: list[bytes]):
    for one, other in zip(first, second, strict=False):
        if one != other:
            return
        yield one


def test_a_conversation_that_grows_keeps_each_byte_once_and_few_parts():
    """After 1000 pieces, added two at a time: 60 blocks and the loose ones, which are at least BLOCK and less than two of them."""
    pieces = Pieces()
    for turn in range(500):
        pieces = Pieces(pieces, len(pieces), [b"a%d" % turn * 50, b"b%d" % turn * 50])
    held = {id(piece._held): len(piece._held) for piece in pieces}
    assert sum(held.values()) == pieces.end(len(pieces))
    loose = len(pieces) - BLOCK * len(pieces._blocks)
    assert BLOCK <= loose < 2 * BLOCK and len(held) == len(pieces._blocks) + loose
