"""What the engine samples and says about it equals transformers' own forward of the same tokens."""

import random

import numpy as np
import pytest
import torch
from engine_helpers import VOCAB, reference_logprobs, start

from services.rollout.engine import ContextTooLong, EmptyPrompt, FinishReason, UnknownToken
from services.rollout.engine.sampling import sample, uniforms

LOGPROB_TOLERANCE = 1e-4
"""fp32 on both sides; what remains is the order of additions (about 1e-6 here)."""


def prompt_of(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCAB) for _ in range(length)]


def assert_exact(model, prompt, recorder, temperature=1.0):
    expected = reference_logprobs(model, prompt, recorder.ids, temperature)
    torch.testing.assert_close(torch.tensor(recorder.joined("logprobs")), expected, atol=LOGPROB_TOLERANCE, rtol=0)


@pytest.mark.parametrize("slack_tokens", [0, 256], ids=["short and long apart", "all in one run"])
@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_logprobs_of_a_ragged_batch_equal_a_plain_forward(make_engine, plain, monkeypatch, name, slack_tokens):
    """B1: lengths from 1 to 120 decode together; a wrong position, mask or head order moves log-probabilities by 0.1 and more."""
    monkeypatch.setattr("services.rollout.engine.attention.RUN_SLACK_TOKENS", slack_tokens)
    engine = make_engine(name, slots=7)
    lengths = [1, 120, 7, 33, 64, 2, 90]
    calls = [(prompt_of(n, n), start(engine, str(n), prompt_of(n, n), max_tokens=12 + n % 5, seed=n)) for n in lengths]
    for prompt, call in calls:
        assert call.wait().finish == FinishReason.LENGTH
        assert len(call.ids) == 12 + len(prompt) % 5
        assert_exact(plain[name], prompt, call)


@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_greedy_output_equals_transformers_generate(make_engine, plain, name):
    """B1: argmax at each step over exact logits leaves no freedom."""
    engine = make_engine(name)
    for n in (5, 40):
        prompt = prompt_of(n, n)
        expected = plain[name].generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, n:].tolist()
        call = start(engine, str(n), prompt, max_tokens=20, temperature=0.0).wait()
        assert call.ids == expected
        assert_exact(plain[name], prompt, call)


def test_logprobs_are_those_of_the_tempered_distribution(make_engine, plain):
    """B1: at temperature 0.7 the record holds log softmax(logits / 0.7), not log softmax(logits)."""
    prompt = prompt_of(30)
    call = start(make_engine(), "a", prompt, max_tokens=20, temperature=0.7, seed=3).wait()
    assert_exact(plain["qwen3"], prompt, call, temperature=0.7)
    untempered = reference_logprobs(plain["qwen3"], prompt, call.ids)
    assert (torch.tensor(call.joined("logprobs")) - untempered).abs().max() > 0.05


def test_a_prompt_prefilled_in_chunks_beside_running_calls_is_exact(make_engine, plain, monkeypatch):
    """B1: with 16 prompt tokens a step, 200 tokens take 13 steps or more, in which the first call goes on decoding."""
    monkeypatch.setattr("services.rollout.engine.runner.PREFILL_TOKENS_STEP", 16)
    engine = make_engine()
    first, long = prompt_of(5, 1), prompt_of(200, 2)
    runner = start(engine, "runner", first, max_tokens=60, seed=1)
    assert runner.first.wait(30)
    late = start(engine, "late", long, max_tokens=10, seed=2).wait()
    runner.wait()
    assert engine.stats().steps >= 60
    assert_exact(plain["qwen3"], first, runner)
    assert_exact(plain["qwen3"], long, late)


def test_the_next_call_of_a_session_computes_only_what_is_new_and_stays_exact(make_engine, plain):
    """B8's saving on the sampling side: 80 prompt + 9 fed outputs are held, so 91 + 10 new tokens cost 12 (one to go on from)."""
    engine = make_engine()
    prompt = prompt_of(80)
    one = start(engine, "1", prompt, session="s", max_tokens=10, seed=1).wait()
    follow = prompt + one.ids + prompt_of(11, 9)
    before = engine.stats()
    two = start(engine, "2", follow, session="s", max_tokens=10, seed=2).wait()
    after = engine.stats()
    assert_exact(plain["qwen3"], follow, two)
    assert after.prefill_reused_tokens - before.prefill_reused_tokens == 89 == two.chunks[-1].reused_tokens
    assert after.prefill_computed_tokens - before.prefill_computed_tokens == len(follow) - 89


def test_a_system_prefix_is_copied_between_sessions_and_stays_exact(make_engine, plain):
    """B8: eight calls of eight sessions share 100 tokens and start together: one computes them, seven copy them."""
    engine = make_engine(slots=8)
    system = prompt_of(100)
    prompts = [system + prompt_of(5, seed) for seed in range(1, 9)]
    calls = [start(engine, str(i), p, max_tokens=6, seed=i) for i, p in enumerate(prompts)]
    for prompt, call in zip(prompts, calls, strict=True):
        assert_exact(plain["qwen3"], prompt, call.wait())
    assert engine.stats().prefill_computed_tokens == 100 + 8 * 5
    assert engine.stats().prefill_reused_tokens == 7 * 100 == sum(call.chunks[-1].reused_tokens for call in calls)


def test_a_short_side_call_does_not_cost_a_session_its_long_context(make_engine):
    """B8: a sub-agent's call that shares 20 of 120 tokens takes another slot; the main branch finds its own again."""
    engine = make_engine()
    main = prompt_of(120)
    start(engine, "1", main, session="s", max_tokens=1, seed=1).wait()
    start(engine, "side", main[:20] + prompt_of(30, 5), session="s", max_tokens=1, seed=1).wait()
    before = engine.stats().prefill_computed_tokens
    start(engine, "2", [*main, 1, 2], session="s", max_tokens=1, seed=1).wait()
    assert engine.stats().prefill_computed_tokens - before == 2


def test_a_repeated_prompt_still_computes_its_last_token(make_engine, plain):
    """B1: keys of a whole prompt are held, but its last logits are not: one token is fed again."""
    engine = make_engine()
    prompt = prompt_of(40)
    one = start(engine, "1", prompt, session="s", max_tokens=5, seed=1).wait()
    two = start(engine, "2", prompt, session="s", max_tokens=5, seed=1).wait()
    assert one.ids == two.ids
    assert engine.stats().prefill_computed_tokens == 41
    assert_exact(plain["qwen3"], prompt, two)


def test_a_migrated_call_goes_on_elsewhere_with_the_same_tokens(make_engine, plain):
    """A6: the first engine drained after k tokens, a second continuing, give what one engine gives alone; so does max_tokens."""
    prompt = prompt_of(50)
    whole = start(make_engine(), "call", prompt, max_tokens=120).wait()
    first = make_engine()
    part = start(first, "call", prompt, max_tokens=120)
    assert part.first.wait(30)
    assert first.drain() == 1
    assert part.finish == FinishReason.MIGRATED
    assert 0 < len(part.ids) < 120
    rest = start(make_engine(), "call", prompt, resume=part.ids, max_tokens=120).wait()
    assert part.ids + rest.ids == whole.ids
    assert rest.finish == FinishReason.LENGTH
    assert_exact(plain["qwen3"], prompt + part.ids, rest)


def test_sampled_tokens_do_not_depend_on_the_company(make_engine):
    """A6, C11: alone, among others, and with other slot counts, each seeded call gives the same ids."""
    prompts = [prompt_of(3 + 9 * i, i) for i in range(9)]
    settings = [{"temperature": 1.0}, {"temperature": 0.6}, {"top_p": 0.8}]

    def run(engine, together):
        calls = []
        for i, prompt in enumerate(prompts):
            calls.append(start(engine, str(i), prompt, max_tokens=25, seed=i, **settings[i % 3]))
            if not together:
                calls[-1].wait()
        return [call.wait().ids for call in calls]

    alone = run(make_engine(slots=1), together=False)
    assert run(make_engine(slots=9), together=True) == alone
    assert run(make_engine(slots=3), together=True) == alone
    assert len({tuple(ids) for ids in alone}) == 9


def test_sampling_follows_the_stated_distribution():
    """B1: 20,000 draws from p = [.5, .3, .15, .05]; the standard error of a share is at most .0035, five of them are .018."""
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    n = 20_000
    seeds, at = np.arange(n, dtype=np.uint64) // np.uint64(100), np.arange(n, dtype=np.uint64) % np.uint64(100)
    logits = p.log().expand(n, 4)
    ids, logprobs = sample(logits, np.ones(n), np.ones(n), seeds, at)
    assert (torch.bincount(ids, minlength=4) / n - p).abs().max() < 0.018
    torch.testing.assert_close(logprobs, p.log()[ids])


def test_top_p_renormalises_over_the_tokens_it_keeps():
    """B1: of [.5, .3, .15, .05] top_p .7 keeps the first two (.5 < .7 ≤ .8): probabilities .625 and .375."""
    n = 4_000
    at = np.arange(n, dtype=np.uint64)
    logits = torch.tensor([0.05, 0.5, 0.15, 0.3]).log().expand(n, 4)
    ids, logprobs = sample(logits, np.ones(n), np.full(n, 0.7), np.zeros(n, np.uint64), at)
    assert set(ids.tolist()) == {1, 3}
    assert abs((ids == 1).float().mean().item() - 0.625) < 0.04  # five standard errors
    expected = torch.where(ids == 1, torch.tensor(0.625), torch.tensor(0.375)).log()
    torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=0)


def test_draws_of_neighbouring_seeds_and_positions_are_unrelated():
    """C11: correlation of 10,000 pairs has standard error .01; means lie at 1/2 within five of .0029."""
    i = np.arange(10_000, dtype=np.uint64)
    by_position, by_seed = uniforms(np.full_like(i, 7), i), uniforms(i, np.full_like(i, 3))
    for draws in (by_position, by_seed):
        assert 0 <= draws.min() and draws.max() < 1
        assert abs(draws.mean() - 0.5) < 0.015
        assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(by_position, by_seed)[0, 1]) < 0.05


def test_prompts_without_room_or_tokens_are_refused_by_name(make_engine):
    """B1: silently cutting a prompt would record tokens the model never saw."""
    engine = make_engine(context_max=32)
    with pytest.raises(ContextTooLong) as refused:
        start(engine, "a", prompt_of(32))
    assert (refused.value.prefix_tokens, refused.value.context_max) == (32, 32)
    with pytest.raises(EmptyPrompt):
        start(engine, "b", [])
    for unknown in (-1, VOCAB):
        with pytest.raises(UnknownToken):
            start(engine, "u", [1, unknown])
    # 31 tokens leave room for exactly one
    fits = start(engine, "c", prompt_of(31), max_tokens=9).wait()
    assert (len(fits.ids), fits.finish) == (1, FinishReason.LENGTH)


def test_a_full_context_ends_the_call_with_length(make_engine, plain):
    """B1: 20 prompt tokens in a context of 32 leave 12; the last sampled token needs no key of its own."""
    prompt = prompt_of(20)
    call = start(make_engine(context_max=32), "a", prompt, max_tokens=99, seed=1).wait()
    assert (len(call.ids), call.finish) == (12, FinishReason.LENGTH)
    assert_exact(plain["qwen3"], prompt, call)


def test_the_stop_token_is_part_of_the_output(make_engine):
    """B1: the policy sampled it, so it is recorded and can be trained."""
    prompt = prompt_of(10)
    ids = start(make_engine(), "a", prompt, max_tokens=10, seed=5).wait().ids
    stop = ids[4]
    call = start(make_engine(), "a", prompt, max_tokens=10, seed=5, stop_token_ids=(stop,)).wait()
    assert call.finish == FinishReason.STOP
    assert call.ids == ids[: ids.index(stop) + 1]
