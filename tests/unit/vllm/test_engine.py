"""The vLLM engine over a server that speaks like vLLM's: calls, updates in flight, repairs, deaths (A4, A6)."""

import asyncio
import time
from pathlib import Path

import pytest
import safetensors.torch

from gyre.clock import ManualClock
from gyre.config.sections import VllmConfig
from services.rollout.engine import (
    ContextTooLong,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
    SamplingParams,
    UnknownToken,
    WeightsRefused,
)
from services.rollout.engine.vllm import engine as hanging
from services.rollout.engine.vllm.engine import EngineLost, VllmEngine
from tests.unit.vllm.conftest import CONTEXT_MAX
from tests.unit.vllm.recorder import Recorder

WHOLE = 1 << 30


class Looks(ManualClock):
    """Counts who looks at it."""

    looks = 0

    def monotonic_s(self) -> float:
        self.looks += 1
        return super().monotonic_s()


def start(
    engine: VllmEngine, tokens: int = 5, chunk_tokens: int = 1, call_id: str = "a", resume: tuple = ()
) -> Recorder:
    recorder = Recorder()
    params = SamplingParams(max_tokens=tokens, seed=7)
    engine.submit(GenerateRequest(call_id, "s", [1, 2, 3, 4], params, list(resume), chunk_tokens), recorder)
    return recorder


def wait_until(is_so, timeout_s: float = 180.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_a_call_gives_tokens_with_log_probabilities_and_versions(engine, versions):
    """A6: the fake's tokens are 10, 11, …, each with the same log-probability, of version 0."""
    engine.load(versions[0], 0)
    done = start(engine).wait()
    assert done.ids == [10, 11, 12, 13, 14]
    assert done.joined("logprobs") == [-0.5] * 5
    assert done.joined("versions") == [0] * 5
    assert done.finish is FinishReason.LENGTH
    # the fake says of every call: 4 prompt tokens, 1 of them cached
    stats = engine.stats()
    assert (stats.generated_tokens, stats.prefill_computed_tokens, stats.prefill_reused_tokens) == (5, 3, 1)
    assert done.chunks[-1].reused_tokens == 1


def test_tokens_of_the_output_are_no_reused_prompt_tokens(engine, fake, versions):
    """A6: a call that moved sends what it has sampled along, and vLLM counts that among the prompt."""
    fake.cached_tokens = 6
    engine.load(versions[0], 0)
    done = start(engine, resume=(10, 11, 12)).wait()
    assert done.chunks[-1].reused_tokens == 4


def test_an_unloaded_engine_refuses_calls(engine, versions):
    """A6: as the embedded one does; the cell answers with a conflict and the gateway goes elsewhere."""
    with pytest.raises(EngineUnavailable):
        start(engine)
    engine.load(versions[0], 0)
    engine.unload()
    with pytest.raises(EngineUnavailable):
        start(engine)


def test_bad_prompts_are_refused_before_vllm_sees_them(engine, versions):
    """A6."""
    engine.load(versions[0], 0)
    with pytest.raises(UnknownToken):
        engine.submit(GenerateRequest("a", "s", [160]), Recorder())
    with pytest.raises(ContextTooLong):
        engine.submit(GenerateRequest("a", "s", [1] * CONTEXT_MAX), Recorder())


def test_weights_are_checked_before_anybody_is_paused(engine, fake, versions, tmp_path):
    """A4: a file that lacks a tensor, or is not the published one, is refused and vLLM never hears of it."""
    engine.load(versions[0], 0)
    weights = safetensors.torch.load_file(versions[1] / "model.safetensors")
    del weights["model.norm.weight"]
    safetensors.torch.save_file(weights, tmp_path / "lacking.safetensors")
    asked = len(fake.asked)
    with pytest.raises(WeightsRefused, match=r"missing: model\.norm\.weight"):
        engine.load(tmp_path / "lacking.safetensors", 1)
    with pytest.raises(WeightsRefused, match="published"):
        engine.load(versions[1] / "model.safetensors", 1, "0" * 64)
    assert fake.asked[asked:] == []
    assert start(engine).wait().joined("versions") == [0] * 5


def test_a_running_call_goes_on_over_an_update_with_tokens_of_both_versions(engine, fake, versions):
    """A4: the first token came before the update, the rest after it."""
    engine.load(versions[0], 0)
    fake.held = True
    call = start(engine)
    assert call.first.wait(180)
    engine.load(versions[1], 1)
    fake.held = False
    assert call.wait().joined("versions") == [0, 1, 1, 1, 1]
    assert call.ids == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("chunk_tokens", [1, WHOLE])
def test_a_version_that_vllm_contradicts_is_never_recorded(engine, fake, versions, chunk_tokens):
    """A4: what was given already makes the call an error; what was not is given as vLLM says."""
    engine.load(versions[0], 0)
    fake.lies = 1
    call = start(engine, chunk_tokens=chunk_tokens).wait()
    if chunk_tokens == WHOLE:
        assert call.joined("versions") == [1] * 5
    else:
        assert call.finish is FinishReason.ERROR
        assert "did not sample it" in call.chunks[-1].detail


@pytest.mark.parametrize("route", ["start_weight_update", "update_weights", "finish_weight_update", "collective_rpc"])
def test_a_failed_update_is_mended_in_place_and_the_old_weights_serve(engine, fake, versions, route):
    """A4: proven by the digest that the server shows afterwards, which is compared before it resumes."""
    engine.load(versions[0], 0)
    before = fake.digest
    fake.fails[route] = 1
    with pytest.raises(WeightsRefused, match="version 0 serves again"):
        engine.load(versions[1], 1)
    assert (fake.digest, fake.version, fake.starts) == (before, 0, 1)
    assert start(engine).wait().joined("versions") == [0] * 5
    engine.load(versions[2], 2)
    assert start(engine, call_id="b").wait().joined("versions") == [2] * 5


def test_an_update_that_reports_success_and_loads_nothing_is_found_out(engine, fake, versions):
    """A4: the digest still is version 0's, so version 1 is refused."""
    engine.load(versions[0], 0)
    fake.loses = True
    with pytest.raises(WeightsRefused, match="digest"):
        engine.load(versions[1], 1)
    assert start(engine).wait().joined("versions") == [0] * 5


def test_a_server_that_hangs_in_an_update_is_replaced_and_its_calls_move(versions, fake):
    """A4, A6: the call has its token and the reason `migrated`; a new process serves the old weights."""
    engine = VllmEngine(versions[0], 4, CONTEXT_MAX, VllmConfig(update_s=8.0), fake)
    try:
        engine.load(versions[0], 0)
        fake.held = True
        call = start(engine)
        assert call.first.wait(180)
        fake.hangs["update_weights"] = 1
        with pytest.raises(WeightsRefused, match="no answer"):
            engine.load(versions[1], 1)
        assert call.wait().finish is FinishReason.MIGRATED
        assert call.ids == [10]
        fake.held = False
        assert fake.starts == 2
        assert start(engine, call_id="b").wait().joined("versions") == [0] * 5
    finally:
        engine.close()


def test_a_server_that_dies_in_mid_call_is_replaced_and_the_call_goes_on_where_it_was(engine, fake, versions):
    """A6: tokens 10 and then, resumed with that one, the rest of the five."""
    engine.load(versions[0], 0)
    fake.held = True
    call = start(engine)
    assert call.first.wait(180)
    asyncio.run_coroutine_threadsafe(fake.stop(), engine._loop).result(180)
    assert call.wait().finish is FinishReason.MIGRATED
    fake.held = False
    wait_until(lambda: fake.starts == 2 and engine.stats().loaded)
    rest = start(engine, call_id="b", resume=call.ids).wait()
    assert len(call.ids) + len(rest.ids) == 5
    assert fake.bodies[-1]["token_ids"] == [1, 2, 3, 4, 10]
    # vLLM's generator begins anew: the same seed would draw the first call's numbers again
    assert fake.bodies[-1]["sampling_params"]["seed"] != fake.bodies[0]["sampling_params"]["seed"]


def test_a_core_that_dies_under_a_living_server_is_replaced_too(engine, fake, versions):
    """A6: the server says an error and is not healthy; its calls move, and a new one serves."""
    engine.load(versions[0], 0)
    fake.held = True
    call = start(engine)
    assert call.first.wait(180)
    fake.core_is_dead = True
    assert call.wait().finish is FinishReason.MIGRATED
    assert call.ids == [10]
    fake.held = False
    wait_until(lambda: fake.starts == 2 and engine.stats().loaded)
    assert start(engine, call_id="b").wait().ids == [10, 11, 12, 13, 14]


def test_an_engine_that_hangs_outside_of_an_update_is_replaced(versions, fake, monkeypatch):
    """A6: its server lives and is healthy; without tokens there would be no batch, and without a batch no update that finds it out. One that
    samples, or has nothing to do, is left alone however long that takes."""
    monkeypatch.setattr(hanging, "GUARD_EVERY_S", 0.005)
    clock = Looks(0.0)
    engine = VllmEngine(versions[0], 4, CONTEXT_MAX, VllmConfig(update_s=30.0, stall_s=100.0), fake, clock.monotonic_s)
    try:
        engine.load(versions[0], 0)
        clock.advance(1000.0)
        fake.held = True
        call = start(engine)
        assert call.first.wait(180)
        clock.advance(99.0)
        looked = clock.looks
        wait_until(lambda: clock.looks > looked + 5)
        assert fake.starts == 1
        clock.advance(2.0)
        assert call.wait().finish is FinishReason.MIGRATED
        assert call.ids == [10]
        fake.held = False
        wait_until(lambda: fake.starts == 2 and engine.stats().loaded)
        assert start(engine, call_id="b").wait().ids == [10, 11, 12, 13, 14]
    finally:
        engine.close()


def test_an_error_of_one_call_is_that_calls_alone(engine, fake, versions):
    """A6: the server is healthy, so nothing is replaced."""
    engine.load(versions[0], 0)
    fake.fails["inference/v1/generate"] = 1
    assert start(engine).wait().finish is FinishReason.ERROR
    assert start(engine, call_id="b").wait().finish is FinishReason.LENGTH
    assert fake.starts == 1


def test_an_engine_that_cannot_be_brought_up_says_so(engine, fake, versions):
    """A4: whoever supervises the cell starts it anew."""
    engine.load(versions[0], 0)
    fake.starts_fail = 10
    fake.fails["pause"] = 1
    with pytest.raises(EngineLost, match="did not come up"):
        engine.load(versions[1], 1)
    assert not engine.stats().loaded


def test_draining_moves_every_call_with_the_tokens_it_has(engine, fake, versions):
    """A6: the one with a token keeps it and its version."""
    engine.load(versions[0], 0)
    fake.held = True
    call = start(engine, chunk_tokens=WHOLE)
    wait_until(lambda: engine.stats().generated_tokens == 1)
    assert engine.drain() == 1
    assert call.finish is FinishReason.MIGRATED
    assert (call.ids, call.joined("versions")) == ([10], [0])


def test_an_aborted_call_keeps_its_tokens_and_the_reason(engine, fake, versions):
    """A6."""
    engine.load(versions[0], 0)
    fake.held = True
    call = start(engine)
    assert call.first.wait(180)
    engine.abort("a", "abandoned")
    engine.abort("unknown")
    assert call.wait().finish is FinishReason.ABORTED
    assert (call.ids, call.chunks[-1].detail) == ([10], "abandoned")


def test_closing_ends_calls_and_the_server(engine, fake, versions):
    """A6."""
    engine.load(versions[0], 0)
    fake.held = True
    call = start(engine)
    assert call.first.wait(180)
    engine.close()
    assert call.wait().finish is FinishReason.ABORTED
    assert fake.pid is None


def test_a_released_engine_stops_its_server_where_that_is_configured(versions, fake):
    """A1: `stop` gives the memory to the trainer; loading again starts a server anew."""
    engine = VllmEngine(versions[0], 4, CONTEXT_MAX, VllmConfig(on_release="stop"), fake)
    try:
        engine.load(versions[0], 0)
        engine.unload()
        assert fake.pid is None
        engine.load(versions[1], 1)
        assert start(engine).wait().joined("versions") == [1] * 5
    finally:
        engine.close()


def test_a_resumed_call_that_was_done_already_ends_without_a_token(engine, versions):
    """A6: five of five tokens were sampled elsewhere."""
    engine.load(versions[0], 0)
    call = start(engine, resume=(10, 11, 12, 13, 14)).wait()
    assert (call.ids, call.finish) == ([], FinishReason.LENGTH)


def test_a_checkpoint_file_is_what_vllm_is_told_to_read(engine, fake, versions):
    """A4: path and sha256 as published."""
    path = Path(versions[1] / "model.safetensors")
    engine.load(versions[0], 0)
    engine.load(path, 1)
    assert engine._good.files[0].path == str(path.resolve())
