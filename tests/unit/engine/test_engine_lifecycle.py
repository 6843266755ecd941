"""Weights in flight, abort, drain, unload, fairness, failures."""

import hashlib
import random
import threading

import pytest
import torch
from engine_helpers import SIZES, VOCAB, reference_logprobs, start
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3Config

from gyre.errors import ConfigError
from services.rollout.engine import (
    CallExists,
    Engine,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
    SamplingParams,
    WeightsRefused,
)

PROMPT = [random.Random(0).randrange(VOCAB) for _ in range(30)]


def weights_of(model_dir: str) -> dict[str, torch.Tensor]:
    return load_file(f"{model_dir}/model.safetensors")


def sha256_of(path: str) -> str:
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def close_to(model, prompt, recorder) -> bool:
    expected = reference_logprobs(model, prompt, recorder.ids)
    return bool((torch.tensor(recorder.joined("logprobs")) - expected).abs().max() < 1e-4)


def test_versions_change_within_a_call_when_weights_arrive_in_flight(make_engine, model_dirs):
    """A4, field case AReaL: the call is not interrupted; its tokens say 3, then 4, and never 3 again."""
    engine = make_engine(version=3)
    call = start(engine, "a", PROMPT, max_tokens=200, seed=1)
    assert call.first.wait(30)
    path = f"{model_dirs['qwen3-new']}/model.safetensors"
    engine.load_weights(path, version=4, checksum=sha256_of(path))
    done = len(call.ids)
    call.wait()
    versions = call.joined("versions")
    assert (len(versions), call.finish) == (200, FinishReason.LENGTH)
    assert versions == sorted(versions) and set(versions) == {3, 4}
    # nothing sampled after load_weights returned may still say 3
    assert set(versions[done + 1 :]) == {4}


def test_after_new_weights_nothing_old_is_reused(make_engine, model_dirs, plain):
    """A4: prefix caches are keyed by version; a reused old key would show as a wrong log-probability."""
    engine = make_engine()
    first = start(engine, "1", PROMPT, session="s", max_tokens=5, seed=1).wait()
    engine.load_weights(model_dirs["qwen3-new"], version=1)
    reused = engine.stats().prefill_reused_tokens
    follow = PROMPT + first.ids + [1, 2, 3]
    second = start(engine, "2", follow, session="s", max_tokens=5, seed=1).wait()
    assert engine.stats().prefill_reused_tokens == reused
    assert close_to(plain["qwen3-new"], follow, second)
    assert not close_to(plain["qwen3"], follow, second)


def test_a_call_that_ran_over_a_weight_change_leaves_nothing_to_reuse(make_engine, model_dirs, plain):
    """A4: its keys are of two versions, good for itself alone."""
    engine = make_engine()
    call = start(engine, "1", PROMPT, session="s", max_tokens=150, seed=1)
    assert call.first.wait(30)
    engine.load_weights(weights_of(model_dirs["qwen3-new"]), version=1)
    call.wait()
    assert set(call.joined("versions")) == {0, 1}
    before = engine.stats().prefill_reused_tokens
    follow = PROMPT + call.ids + [1]
    after = start(engine, "2", follow, session="s", max_tokens=5, seed=1).wait()
    assert engine.stats().prefill_reused_tokens == before
    assert close_to(plain["qwen3-new"], follow, after)


def broken_weights(good: dict[str, torch.Tensor], how: str) -> dict[str, torch.Tensor]:
    names = sorted(good)
    state = {name: tensor.clone() for name, tensor in good.items()}
    if how == "missing":
        del state[names[-1]]
    elif how == "unknown":
        state["model.layers.9.mlp.up_proj.weight"] = torch.zeros(2)
    elif how == "shape":
        state[names[-1]] = state[names[-1]][:-1].clone()
    elif how == "nan":
        state[names[-1]].view(-1)[0] = float("nan")
    elif how == "tied":
        state["lm_head.weight"] = state["model.embed_tokens.weight"] + 1
    return state


@pytest.mark.parametrize("how", ["missing", "unknown", "shape", "nan", "tied"])
def test_refused_weights_leave_the_old_ones_serving(make_engine, model_dirs, plain, how):
    """A4: a half-updated model is impossible; all tensors but one are valid here, and none of them gets in."""
    engine = make_engine(version=7)
    with pytest.raises(WeightsRefused):
        engine.load_weights(broken_weights(weights_of(model_dirs["qwen3-new"]), how), version=8)
    call = start(engine, "a", PROMPT, max_tokens=8, seed=1).wait()
    assert close_to(plain["qwen3"], PROMPT, call)
    assert set(call.joined("versions")) == {7}


def test_a_file_with_another_checksum_or_cut_short_is_refused(make_engine, model_dirs, plain, tmp_path):
    """A4: the file is hashed as read; one flipped weight of a valid file, or a half-written file, is seen."""
    engine = make_engine()
    good = f"{model_dirs['qwen3-new']}/model.safetensors"
    published = sha256_of(good)
    changed = weights_of(model_dirs["qwen3-new"])
    changed["model.norm.weight"][0] += 1
    save_file(changed, tmp_path / "changed.safetensors")
    (tmp_path / "short.safetensors").write_bytes(open(good, "rb").read()[:-100])
    for name, checksum in (("changed", published), ("short", published), ("short", None), ("absent", None)):
        with pytest.raises(WeightsRefused):
            engine.load_weights(tmp_path / f"{name}.safetensors", version=1, checksum=checksum)
    assert close_to(plain["qwen3"], PROMPT, start(engine, "a", PROMPT, max_tokens=8, seed=1).wait())


def test_abort_ends_one_call_and_spares_the_others(make_engine):
    """A6: running, waiting, unknown; the tokens so far were delivered."""
    engine = make_engine(slots=1)
    running = start(engine, "running", PROMPT, max_tokens=200, seed=1)
    waiting = start(engine, "waiting", PROMPT, max_tokens=5, seed=2)
    last = start(engine, "last", PROMPT, max_tokens=5, seed=3)
    assert running.first.wait(30)
    engine.abort("waiting", "client left")
    engine.abort("nobody")
    assert waiting.wait().finish == FinishReason.ABORTED
    assert (waiting.ids, waiting.chunks[-1].detail) == ([], "client left")
    engine.abort("running")
    assert running.wait().finish == FinishReason.ABORTED
    assert 0 < len(running.ids) < 200
    assert last.wait().finish == FinishReason.LENGTH


def test_drain_moves_running_and_waiting_calls_with_the_tokens_they_have(make_engine):
    """A6: chunks of 64 tokens are not full when the drain comes: what was gathered must come with the ending."""
    engine = make_engine(slots=2)
    watched = start(engine, "watched", PROMPT, max_tokens=220, seed=1)
    gathered = start(engine, "gathered", PROMPT, max_tokens=220, seed=2, chunk_tokens=1000)
    waiting = start(engine, "waiting", PROMPT, max_tokens=5, seed=3)
    assert watched.first.wait(30)
    assert engine.drain() == 3
    assert [c.finish for c in (watched, gathered, waiting)] == [FinishReason.MIGRATED] * 3
    assert waiting.ids == []
    assert len(gathered.chunks) == 1 and abs(len(gathered.ids) - len(watched.ids)) <= 1
    # the engine itself still serves
    assert start(engine, "next", PROMPT, max_tokens=3).wait().finish == FinishReason.LENGTH


def test_unload_frees_and_load_serves_the_new_version(make_engine, model_dirs, plain):
    """A1, A6: what is loaded changes, the engine stays."""
    engine = make_engine()
    call = start(engine, "a", PROMPT, max_tokens=220)
    assert call.first.wait(30)
    assert engine.unload() == 1
    assert call.finish == FinishReason.MIGRATED
    assert sum(p.numel() for p in engine._runner.model.parameters()) == 0 and engine._runner.store is None
    with pytest.raises(EngineUnavailable):
        start(engine, "b", PROMPT)
    with pytest.raises(EngineUnavailable):
        engine.load_weights(model_dirs["qwen3-new"], version=4)
    with pytest.raises(WeightsRefused):
        engine.load(broken_weights(weights_of(model_dirs["qwen3-new"]), "nan"), version=5)
    engine.load(model_dirs["qwen3-new"], version=5)
    again = start(engine, "c", PROMPT, max_tokens=8, seed=1).wait()
    assert close_to(plain["qwen3-new"], PROMPT, again)
    assert set(again.joined("versions")) == {5}


@pytest.mark.parametrize("slots", [1, 4])
def test_many_calls_on_few_slots_are_admitted_in_the_order_they_came(make_engine, slots):
    """Field case ThunderAgent#46: calls of equal length end in order of arrival, up to those that share a step."""
    engine = make_engine(slots=slots)
    ended: list[int] = []
    last = threading.Event()

    def listener(i):
        def on_tokens(chunk):
            if chunk.finish_reason:
                ended.append(i)
                if len(ended) == 40:
                    last.set()

        return on_tokens

    for i in range(40):
        params = SamplingParams(max_tokens=3, seed=i)
        engine.submit(GenerateRequest(str(i), str(i % 5), PROMPT[: 3 + i % 7], params, chunk_tokens=9), listener(i))
    assert last.wait(30)
    assert all(abs(place - i) < slots for place, i in enumerate(ended))
    stats = engine.stats()
    assert stats.finished == {"length": 40}
    assert (stats.running, stats.waiting, stats.generated_tokens) == (0, 0, 120)


def test_many_sessions_over_several_calls_stay_exact_while_slots_are_evicted(make_engine, plain):
    """B1: 12 sessions of 3 calls on 3 slots; every slot changes hands many times."""
    engine = make_engine(slots=3)
    contexts = {s: PROMPT[: 5 + s] for s in range(12)}
    for turn in range(3):
        calls = {
            s: start(engine, f"{s}/{turn}", c, session=str(s), max_tokens=4, seed=s * 10 + turn)
            for s, c in contexts.items()
        }
        for s, call in calls.items():
            call.wait()
            assert close_to(plain["qwen3"], contexts[s], call)
            contexts[s] = contexts[s] + call.ids + [s, turn]


def test_a_call_id_in_use_is_refused(make_engine):
    """Field case AReaL#1498: a retry is the gateway's to recognise; two streams under one id are not possible."""
    engine = make_engine()
    call = start(engine, "a", PROMPT, max_tokens=200)
    with pytest.raises(CallExists):
        start(engine, "a", PROMPT)
    engine.abort("a")
    call.wait()
    assert start(engine, "a", PROMPT, max_tokens=2).wait().finish == FinishReason.LENGTH


def test_a_listener_that_raises_costs_only_its_own_call(make_engine):
    """A6: one broken stream must not stop the thread that serves all."""
    engine = make_engine()

    def broken(_chunk):
        raise OSError("gone")

    engine.submit(GenerateRequest("broken", "s", PROMPT), broken)
    assert start(engine, "fine", PROMPT, max_tokens=5).wait().finish == FinishReason.LENGTH
    assert engine.stats().running == 0


def test_a_failed_forward_ends_its_calls_with_error_and_the_engine_goes_on(make_engine, monkeypatch, plain):
    """B4: an error is an ending of its own; what the failed step may have half written is not reused."""
    engine = make_engine()
    start(engine, "1", PROMPT, session="s", max_tokens=5, seed=1).wait()
    forward = engine._runner.model.forward
    monkeypatch.setattr(engine._runner.model, "forward", lambda **_: (_ for _ in ()).throw(MemoryError("full")))
    failed = start(engine, "2", PROMPT, session="s", max_tokens=5).wait()
    assert failed.finish == FinishReason.ERROR and "MemoryError" in failed.chunks[-1].detail
    monkeypatch.setattr(engine._runner.model, "forward", forward)
    reused = engine.stats().prefill_reused_tokens
    call = start(engine, "3", PROMPT, session="s", max_tokens=5, seed=1).wait()
    assert engine.stats().prefill_reused_tokens == reused
    assert close_to(plain["qwen3"], PROMPT, call)


def test_whatever_fails_between_two_steps_ends_calls_with_error_and_the_engine_goes_on(make_engine, monkeypatch):
    """A6: a thread that ended would leave all calls, and every later command, waiting for ever behind a cell that says that it serves."""
    engine = make_engine()
    acquire = engine._runner.acquire
    monkeypatch.setattr(engine._runner, "acquire", lambda *_: (_ for _ in ()).throw(MemoryError("full")))
    failed = start(engine, "1", PROMPT, max_tokens=5).wait()
    assert failed.finish == FinishReason.ERROR and "MemoryError" in failed.chunks[-1].detail
    monkeypatch.setattr(engine._runner, "acquire", acquire)
    assert start(engine, "2", PROMPT, max_tokens=5).wait().finish == FinishReason.LENGTH
    assert engine.drain() == 0


def test_resuming_what_was_already_complete_ends_at_once(make_engine):
    """A6: drained between its last token and its ending: nothing more is sampled."""
    engine = make_engine()
    assert start(engine, "a", PROMPT, resume=[1, 2, 3], max_tokens=3).wait().finish == FinishReason.LENGTH
    stopped = start(engine, "b", PROMPT, resume=[1, 9], max_tokens=8, stop_token_ids=(9,)).wait()
    assert (stopped.finish, stopped.ids) == (FinishReason.STOP, [])


def test_models_with_other_than_full_attention_are_refused(model_dirs, tmp_path):
    """B8's rule: silently wrong is not an option."""
    config = Qwen3Config(**SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(NotImplementedError, match="full attention"):
        Engine(str(tmp_path), slots=1, context_max=32)


def test_closing_ends_what_is_left_and_refuses_more(make_engine):
    """A6: no caller waits for ever."""
    engine = make_engine()
    call = start(engine, "a", PROMPT, max_tokens=220)
    engine.close()
    assert call.wait().finish == FinishReason.ABORTED
    with pytest.raises(EngineUnavailable):
        start(engine, "b", PROMPT)
    with pytest.raises(EngineUnavailable):
        engine.drain()


def test_a_context_beyond_the_models_positions_is_refused(make_engine):
    """B1: the tiny models have 1024 positions; rotary angles never seen in training would not fail, only mislead."""
    with pytest.raises(ConfigError, match="1024"):
        make_engine(context_max=1025)


def test_logits_that_are_not_finite_end_the_call_with_error(make_engine):
    """B4: weights that overflow in the forward pass the finiteness check on load; their tokens must not be recorded."""
    engine = make_engine()
    with torch.inference_mode():
        engine._runner.model.model.norm.weight.fill_(float("nan"))
    call = start(engine, "a", PROMPT, max_tokens=3).wait()
    assert (call.finish, call.ids) == (FinishReason.ERROR, [])
    assert "not finite" in call.chunks[-1].detail
