"""The same call gives the same bits whatever else the engine does: what makes a run of the same seed train the same samples.

Compared with ==, not within a tolerance. A tolerance would not do: training feeds log-probabilities back into weights, and AdamW divides by the
size of the gradient, so that a difference in the last bit becomes another token after some steps.
"""

import random

import pytest
import torch
from engine_helpers import VOCAB, start

from services.rollout.engine.attention import KEYS_STEP, KvStore
from services.rollout.engine.runner import PREFILL_TOKENS_STEP, ROWS_MULTIPLE

DRAWN = {"temperature": 0.7, "max_tokens": 40, "seed": 5}
"""40 tokens from position 110 on pass a multiple of KEYS_STEP."""


def _prompt(seed: int, tokens: int = KEYS_STEP - 18) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCAB) for _ in range(tokens)]


def _bits(recorder) -> tuple[list[int], list[float]]:
    return recorder.ids, recorder.joined("logprobs")


@pytest.fixture(params=["qwen3", "llama"])
def name(request):
    return request.param


@pytest.fixture
def alone(make_engine, name):
    """The call by itself, on an engine of its own."""
    return _bits(start(make_engine(name), "alone", _prompt(1), **DRAWN).wait())


def test_a_call_gives_the_same_bits_among_any_number_of_others(make_engine, alone, name):
    """Same seed, same samples: calls of 1 to 11 others, of all lengths, admitted before and after it."""
    for others in (1, 2, 11):
        engine = make_engine(name, slots=12)
        rng = random.Random(others)
        before = [
            start(engine, f"b{i}", _prompt(10 + i, rng.randrange(1, 200)), max_tokens=30) for i in range(others // 2)
        ]
        call = start(engine, "call", _prompt(1), **DRAWN)
        after = [
            start(engine, f"a{i}", _prompt(50 + i, rng.randrange(1, 200)), max_tokens=30)
            for i in range(others - others // 2)
        ]
        for recorder in (*before, *after):
            recorder.wait()
        assert _bits(call.wait()) == alone


def test_a_call_gives_the_same_bits_whether_its_tokens_were_sampled_or_come_again_as_a_prompt(make_engine, alone, name):
    """Same seed, same samples: a call moved after any number of tokens, so prompt and decode compute the same of a token."""
    ids, logprobs = alone
    for done in (1, 7, 20, 39):
        call = start(make_engine(name), f"moved-{done}", _prompt(1), resume=ids[:done], **DRAWN).wait()
        assert _bits(call) == (ids[done:], logprobs[done:])


def test_a_call_gives_the_same_bits_whether_keys_are_found_in_a_slot_copied_or_computed(make_engine, alone, name):
    """Same seed, same samples: which of the three happens depends on the order in which calls come and go."""
    engine = make_engine(name)
    start(engine, "own", _prompt(1)[:60] + _prompt(2, 40), session="s", max_tokens=3).wait()
    assert _bits(start(engine, "found", _prompt(1), session="s", **DRAWN).wait()) == alone
    assert _bits(start(engine, "copied", _prompt(1), session="t", **DRAWN).wait()) == alone
    assert engine.stats().prefill_reused_tokens >= 60 + len(_prompt(1)) - 1, "nothing was found and nothing copied"


def test_a_call_gives_the_same_bits_however_its_prompt_is_cut_into_chunks(make_engine, alone, name):
    """Same seed, same samples: a chunk is what other prompts leave of a step's budget."""
    engine = make_engine(name, slots=4, context_max=PREFILL_TOKENS_STEP)
    filler = [start(engine, f"f{i}", _prompt(20 + i, PREFILL_TOKENS_STEP - 31 - 7 * i), max_tokens=2) for i in range(2)]
    assert _bits(start(engine, "call", _prompt(1), **DRAWN).wait()) == alone
    for recorder in filler:
        recorder.wait()


def test_keys_follow_from_the_position_alone(plain):
    """Shapes must not depend on company: a short context beside long ones is attended over as many keys as by itself."""
    store = KvStore(plain["qwen3"].config, 4, 640, torch.device("cpu"), torch.float32)
    store.plan([(0, 5), (1, KEYS_STEP - 1), (2, KEYS_STEP), (3, 639)], [])
    assert [(run.slot, run.stop - run.start, run.keys) for run in store.runs] == [
        (0, 2, KEYS_STEP), (2, 1, 2 * KEYS_STEP), (3, 1, 640),
    ]  # fmt: skip
    store.plan([], [(2, KEYS_STEP - 3, 5)])
    assert [(run.start, run.stop, run.keys) for run in store.runs] == [(0, 3, KEYS_STEP), (3, 5, 2 * KEYS_STEP)]


def test_matrix_products_of_filled_up_rows_do_not_depend_on_the_other_rows():
    """What ROWS_MULTIPLE relies on and no shape can force: if this fails on a machine, runs of one seed differ there after a few steps."""
    torch.manual_seed(0)
    with torch.inference_mode():
        for inner, outer in ((96, 288), (288, 96), (96, 960), (64, VOCAB)):
            weight, rows = torch.randn(outer, inner), torch.randn(608, inner)
            whole = torch.nn.functional.linear(rows, weight)
            for count in range(ROWS_MULTIPLE, 608, ROWS_MULTIPLE):
                part = torch.nn.functional.linear(rows[5 : 5 + count], weight)
                assert torch.equal(part, whole[5 : 5 + count]), f"{count} rows of {inner} → {outer}"
