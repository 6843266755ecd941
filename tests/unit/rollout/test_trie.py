"""Contexts share their tokens in strands, and none is changed by another's (B1, B3)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.rollout.core.trie import Context, SessionTrie

TOKENS = st.lists(st.integers(0, 3), max_size=6)
CALLS = st.lists(st.tuples(st.integers(0, 99), st.floats(0, 1), st.booleans(), TOKENS, TOKENS), max_size=25)
"""Of each call: which context it goes on from, where it leaves it, whether that is known to the trie, what is new, what is sampled."""


def ids(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, np.int32)


@given(CALLS)
def test_every_context_stays_what_it_was(calls):
    trie, contexts = SessionTrie(), {"": list[int]()}
    for number, (which, share, is_known, new, output) in enumerate(calls):
        names = list(contexts)
        name = names[which % len(names)]
        before = contexts[name] if is_known else contexts[name][: round(share * len(contexts[name]))]
        prompt = before + new
        parent, kept = trie.place(ids(prompt), trie.context(name) if is_known else None)
        assert contexts[parent.call_id][:kept] == prompt[:kept]
        trie.add(f"c{number}", parent, kept, ids(prompt[kept:]), ids(output), [])
        contexts[f"c{number}"] = prompt + output
        for one, tokens in contexts.items():
            context = trie.context(one)
            assert context is not None and context.tokens().tolist() == tokens and context.length == len(tokens)
            assert context.tail.tolist() == tokens[context.kept :]


def test_a_conversation_that_only_goes_on_is_one_piece():
    """Else every call would walk and join as many pieces as there were calls before it (C6)."""
    trie = SessionTrie()
    last: Context | None = trie.context("")
    for number in range(200):
        last = trie.add(f"c{number}", last, last.length, ids([1, 2, 3]), ids([4]), [])
    assert len(last.pieces()) == 1 and last.length == 800
    branch = trie.add("b", last, 400, ids([7]), ids([8]), [])
    assert [len(piece) for piece in branch.pieces()] == [400, 2]
    assert last.tokens().tolist() == [1, 2, 3, 4] * 200
