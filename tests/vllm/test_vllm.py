"""vLLM as a cell's engine, on a CPU with the repair example's model in float32 (A4, A6)."""

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest

from services.rollout.engine import Engine, FinishReason, WeightsRefused
from services.rollout.engine.vllm.plugin.gyre_vllm.digest import digest_of
from tests.vllm.conftest import CONTEXT_MAX, SLOTS
from tests.vllm.reference import PROMPT, WAIT_S, load_in_traffic, logprobs, start, wait_until

TOLERANCE = 1e-4
"""Between the sampler's and the trainer's log-probability of one token, both in float32; about 1e-6 is usual."""
KILLS_MAX = 5
"""On a busy machine a call may be over by the time that we hear of its first token; then the next one is killed."""


def assert_labels_are_right(call, policies, prompt=PROMPT, before=(), temperature: float = 1.0) -> None:
    """Each token's log-probability is that of the version it is labelled with, and not another's."""
    sampled, found = np.array(call.joined("versions")), np.array(call.joined("logprobs"))
    for version in set(sampled.tolist()):
        own = logprobs(policies[version], prompt, [*before, *call.ids], temperature)[len(before) :]
        at = sampled == version
        assert np.abs(own[at] - found[at]).max() < TOLERANCE
        for other in set(range(len(policies))) - {version}:
            theirs = logprobs(policies[other], prompt, [*before, *call.ids], temperature)[len(before) :]
            assert np.abs(theirs[at] - found[at]).max() > 100 * TOLERANCE


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_and_trainer_log_probabilities_agree(engine, policies, temperature):
    """B8: the correction of off-policy gradients divides one by the other."""
    prompts = [PROMPT[: 4 + i] for i in range(6)]
    calls = [start(engine, f"{temperature}-{i}", prompt, temperature=temperature) for i, prompt in enumerate(prompts)]
    for prompt, call in zip(prompts, calls, strict=True):
        call.wait(WAIT_S)
        assert call.finish is FinishReason.LENGTH
        assert len(call.ids) == 100
        assert_labels_are_right(call, policies, prompt, temperature=temperature)


def test_greedy_log_probabilities_are_those_at_temperature_one(engine, policies):
    """B8: as the embedded engine says them; with temperature 0 nothing is drawn."""
    call = start(engine, "greedy", tokens=30, temperature=0.0).wait(WAIT_S)
    assert_labels_are_right(call, policies)


def test_a_stop_token_ends_the_call_and_is_its_last_token(engine, policies):
    """A6: the policy sampled it."""
    free = start(engine, "free", tokens=30, temperature=0.0).wait(WAIT_S)
    stop = free.ids[10]
    call = start(engine, "stopped", tokens=30, temperature=0.0, stop_token_ids=(stop,)).wait(WAIT_S)
    assert call.finish is FinishReason.STOP
    assert call.ids == free.ids[: free.ids.index(stop) + 1]


def test_the_same_seed_draws_the_same_tokens(engine):
    """C2: seeds by execution, as far as vLLM has them."""
    first, second = (start(engine, f"seed-{i}", tokens=30).wait(WAIT_S) for i in range(2))
    assert first.ids == second.ids


def test_a_prompt_seen_before_counts_as_reused(engine, policies):
    """A6: the usage that a harness is told: whole blocks of the prompt, none the first time, and never the output."""
    prompt = [1, *(100 + position % 200 for position in range(300))]
    first, again = (start(engine, f"reused-{i}", prompt, tokens=5).wait(WAIT_S) for i in range(2))
    assert first.chunks[-1].reused_tokens == 0
    assert 0 < again.chunks[-1].reused_tokens < len(prompt)
    assert_labels_are_right(again, policies, prompt)


@pytest.mark.parametrize("chunk_tokens", [1, 1 << 30])
def test_running_calls_go_on_over_an_update_with_tokens_of_both_versions(engine, models, policies, chunk_tokens):
    """A4: labelled right, which the trainer's log-probabilities under each version tell."""
    names = (f"flight-{chunk_tokens}-{serial}" for serial in itertools.count())
    calls = load_in_traffic(
        engine, models[1], 1, lambda: start(engine, next(names), tokens=500, chunk_tokens=chunk_tokens)
    )
    for call in calls:
        assert call.finish is FinishReason.LENGTH
        assert_labels_are_right(call, policies)
    assert any(set(call.joined("versions")) == {0, 1} for call in calls)


def test_an_update_by_gloo_loads_the_same_weights(by_gloo, models, policies):
    """A4: the cell broadcasts the file's bytes to vLLM's worker; the digest is compared all the same."""
    by_gloo.load(models[1], 1)
    assert_labels_are_right(start(by_gloo, "gloo", tokens=30).wait(WAIT_S), policies)


@pytest.mark.parametrize("kind", ["half", "lossy"])
def test_a_failed_update_is_repaired_and_the_digest_proves_it(engine, models, policies, fault, kind):
    """A4: half of the weights were loaded, or all but some with success reported; then version 0 is whole again, in the same process."""
    pid = engine._process.pid
    running = start(engine, f"{kind}-running", tokens=300)
    assert running.first.wait(WAIT_S)
    fault.write_text(kind)
    with pytest.raises(WeightsRefused, match="version 0 serves again"):
        engine.load(models[1], 1)
    assert not fault.exists()
    assert engine._process.pid == pid
    published = engine._shape.publish(models[0], 0, None)
    assert engine._ask(engine._client.digest()) == published.digest
    for call in (running, start(engine, f"{kind}-after", tokens=30)):
        call.wait(WAIT_S)
        assert set(call.joined("versions")) == {0}
        assert_labels_are_right(call, policies)
    engine.load(models[1], 1)
    assert_labels_are_right(start(engine, f"{kind}-new", tokens=30).wait(WAIT_S), policies)


def test_the_digest_is_of_the_published_tensors(engine, models):
    """A4: computed here from the file alone, without vLLM: what serves is what was published, to the bit."""
    import safetensors.torch

    weights = safetensors.torch.load_file(models[0] / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    assert engine._ask(engine._client.digest()) == digest_of(weights)


def test_calls_move_from_vllm_to_the_embedded_engine_and_back(engine, models, policies):
    """A6: a cell that leaves for training gives its calls away with the tokens they have; both engines take them."""
    other = Engine(str(models[0]), SLOTS, CONTEXT_MAX)
    try:
        call = start(engine, "leaving", tokens=200)
        assert call.first.wait(WAIT_S)
        assert engine.unload() == 1
        assert call.wait(WAIT_S).finish is FinishReason.MIGRATED
        assert 0 < len(call.ids) < 200
        rest = start(other, "arriving", tokens=200, resume=call.ids).wait(WAIT_S)
        assert len(call.ids) + len(rest.ids) == 200
        assert_labels_are_right(rest, policies, before=call.ids)
        engine.load(models[1], 1)
        back = start(engine, "back", tokens=200, resume=call.ids).wait(WAIT_S)
        assert len(call.ids) + len(back.ids) == 200
        assert_labels_are_right(back, policies, before=call.ids)
    finally:
        other.close()


@pytest.mark.parametrize("which", ["server", "worker"])
def test_a_killed_vllm_is_replaced_and_its_calls_go_on(engine, policies, which):
    """A6: `kill -9` in mid-call: the call ends as `migrated` with its tokens, none of the group survives, a new process serves the same weights."""
    for serial in range(KILLS_MAX):
        call = start(engine, f"killed-{which}-{serial}", tokens=500)
        _kill(engine, which, call)
        if call.finish is FinishReason.MIGRATED:
            break
    assert call.finish is FinishReason.MIGRATED
    assert_labels_are_right(call, policies)
    rest = start(engine, f"resumed-{which}", tokens=500, resume=call.ids).wait(WAIT_S)
    assert len(call.ids) + len(rest.ids) == 500
    assert_labels_are_right(rest, policies, before=call.ids)


@pytest.mark.parametrize("which", ["server", "worker"])
def test_a_vllm_that_stands_still_is_replaced_and_its_calls_go_on(engine, policies, which, monkeypatch):
    """A6: stopped in mid-call, outside of any update; its calls get no token for `stall_s`, and nothing else tells."""
    monkeypatch.setattr(engine, "_config", msgspec.structs.replace(engine._config, stall_s=15.0))
    waiting = []  # the first one may be over before the signal is there
    _kill(
        engine, which, start(engine, f"stopped-{which}", tokens=500), signal.SIGSTOP,
        lambda: waiting.append(start(engine, f"waiting-{which}", tokens=500)),
    )  # fmt: skip
    call = waiting[0].wait(WAIT_S)
    assert call.finish is FinishReason.MIGRATED
    rest = start(engine, f"resumed-{which}", tokens=500, resume=call.ids).wait(WAIT_S)
    assert len(call.ids) + len(rest.ids) == 500
    assert_labels_are_right(rest, policies, before=call.ids)


def _kill(engine, which: str, call, number: int = signal.SIGKILL, then: Callable[[], object] = lambda: None) -> None:
    """Kills vLLM after the call's first token, does `then`, and sees that another one has taken its place."""
    server = psutil.Process(engine._process.pid)
    group = [server, *server.children(recursive=True)]
    shared = engine._process.belongings.segments()
    assert shared
    assert _shared_memory(group) <= set(shared), "all of it is told by its name"
    victim = server if which == "server" else _worker(group)
    assert call.first.wait(WAIT_S)
    os.kill(victim.pid, number)
    then()
    call.wait(WAIT_S)
    wait_until(lambda: engine.stats().loaded and engine._process.pid not in (None, server.pid))
    _, alive = psutil.wait_procs(group, timeout=60)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
    assert not any(path.exists() for path in shared), "vLLM's shared memory is still there"


def _shared_memory(group: list[psutil.Process]) -> set[Path]:
    """What processes of the group have mapped of it, and is still there by its name."""
    mapped = {Path(mapping.path) for process in group for mapping in process.memory_maps()}
    return {path for path in mapped if path.parent == Path("/dev/shm") and path.exists()}


def _worker(group: list[psutil.Process]) -> psutil.Process:
    return next(process for process in group if "Worker" in " ".join(process.cmdline()))


def test_a_vllm_that_hangs_in_an_update_is_replaced(engine, models, policies, fault):
    """A4: after `update_s` it is killed; a new process serves the good weights, and its digest was compared."""
    pid = engine._process.pid
    fault.write_text("hang")
    with pytest.raises(WeightsRefused, match="no answer in 60 s"):
        engine.load(models[1], 1)
    assert engine._process.pid != pid
    call = start(engine, "after-hang", tokens=30).wait(WAIT_S)
    assert set(call.joined("versions")) == {0}
    assert_labels_are_right(call, policies)
