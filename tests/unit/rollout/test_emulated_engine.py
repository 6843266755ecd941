"""The emulated engine: a clock of work, slots that bind, calls that move. No real time passes in the tests of `Decoding`."""

import pytest

from gyre.cli.dryrun.model import make
from gyre.config.sections import EmulationConfig
from gyre.errors import InvalidInput
from services.rollout.engine.emulated import TOKENS, Decoding, EmulatedEngine, speed_of
from services.rollout.engine.requests import EngineUnavailable, FinishReason, GenerateRequest, SamplingParams


def halved(load: float) -> float:
    return 1.0 / (1.0 + load)


def test_a_call_alone_takes_its_work_slowed_by_its_own_load():
    """Dry run: one call on one slot is a load of 1, so 1/(1+1): 10 s of work last 20 s."""
    cell = Decoding(1, halved)
    cell.add("a", 10.0, 0.0)
    assert cell.next_end_s() == pytest.approx(20.0)
    assert cell.advance(19.99) == [] and cell.advance(20.0) == [("a", 0.0)]


def test_calls_that_run_together_slow_each_other_down_and_speed_up_when_one_ends():
    """Dry run: on 2 slots, 2 calls run at 1/2 (until a's 5 s are done at 10), then b alone at 2/3: its last 5 s take 7.5."""
    cell = Decoding(2, halved)
    cell.add("a", 5.0, 0.0)
    cell.add("b", 10.0, 0.0)
    assert [name for name, _ in cell.advance(10.0)] == ["a"]
    assert cell.next_end_s() == pytest.approx(17.5)
    assert [name for name, _ in cell.advance(17.5)] == ["b"]


def test_slots_bind_and_waiting_calls_go_first_come_first_served():
    """Dry run: one slot, full speed: three calls of 1 s end at 1, 2 and 3 s, seen all at once when nobody looked before."""
    cell = Decoding(1, lambda load: 1.0)
    for name in "abc":
        cell.add(name, 1.0, 0.0)
    assert list(cell.began) == ["a"] and [name for name, _ in cell.waiting] == ["b", "c"]
    assert cell.advance(10.0) == [("a", 0.0), ("b", 1.0), ("c", 2.0)]


def test_a_call_that_is_taken_out_leaves_its_slot_and_is_never_said_to_end():
    """Dry run, A6"""
    cell = Decoding(1, lambda load: 1.0)
    cell.add("a", 5.0, 0.0)
    cell.add("b", 5.0, 0.0)
    assert cell.advance(2.0) == []
    assert cell.remove("a") == 0.0 and cell.remove("a") == cell.work_s == 2.0
    assert cell.advance(6.99) == [] and [name for name, _ in cell.advance(7.0)] == ["b"]


def test_the_load_curves_are_those_of_the_configuration():
    """Dry run: 1/(1 + .675 x) and min(1, (.624/x)^.795), the two fits of the published cluster."""
    assert speed_of(EmulationConfig(load_a=0.675))(1.0) == pytest.approx(1 / 1.675)
    power = speed_of(EmulationConfig(load_curve="power", load_a=0.624, load_p=0.795))
    assert power(0.5) == 1.0 and power(0.0) == 1.0 and power(1.248) == pytest.approx(0.5**0.795)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def engine(tmp_path):
    """Full speed on two slots, one workload second a second; its thread sleeps, the tests look by `stats`."""
    clock = Clock()
    given = EmulationConfig(time_scale=1.0, load_a=0.0, into_rollout_s=0.0, move_s=2.0)
    engine = EmulatedEngine(make(tmp_path / "model"), 2, given, clock)
    engine.clock = clock
    yield engine
    engine.close()


def request(engine, name: str, work_s: float, resume: int = 0) -> GenerateRequest:
    ids = engine._tokenizer.encode(
        f"<|im_start|>user\nwork=1.000s\nwork={work_s:.3f}s<|im_end|>", add_special_tokens=False
    ).ids
    stop = engine._tokenizer.token_to_id("<|im_end|>")
    return GenerateRequest(name, name, ids, SamplingParams(stop_token_ids=(stop,)), [1] * resume, 1 << 30)


def test_a_call_ends_after_the_work_its_prompt_names_last_with_a_tool_call_and_the_end_of_the_turn(engine):
    """Dry run: TOKENS tokens, the last two of them the reply; labelled by the version live when each was due."""
    engine.load(None, 3)
    chunks = []
    engine.submit(request(engine, "a", 1600.0), chunks.append)
    engine.clock.now_s += 850.0
    engine.load(None, 4)
    engine.clock.now_s += 750.0
    engine.stats()
    (chunk,) = chunks
    assert chunk.finish_reason is FinishReason.STOP and len(chunk.token_ids) == len(chunk.logprobs) == TOKENS
    assert chunk.versions == [3] * 8 + [4] * 8, "the ninth token is due after 900 s, the new weights came after 850"
    assert engine._tokenizer.decode(chunk.token_ids, skip_special_tokens=False).endswith("</tool_call><|im_end|>")


def test_a_drained_call_takes_along_what_it_has_and_costs_its_move_elsewhere(engine):
    """Dry run, A6: after half of 1600 s, 8 of 16 tokens; the rest takes 800 s and 2 s for the context."""
    engine.load(None, 0)
    chunks = []
    engine.submit(request(engine, "a", 1600.0), chunks.append)
    engine.clock.now_s += 800.0
    assert engine.drain() == 1
    assert chunks[0].finish_reason is FinishReason.MIGRATED and len(chunks[0].token_ids) == 8
    engine.submit(request(engine, "a", 1600.0, resume=8), chunks.append)
    engine.clock.now_s += 801.0
    assert engine.stats().running == 1
    engine.clock.now_s += 1.5
    assert engine.stats().running == 0 and len(chunks[1].token_ids) == 8


def test_an_unloaded_engine_refuses_calls_and_a_prompt_without_work_is_refused(engine):
    """Dry run: it serves emulated environments only."""
    with pytest.raises(EngineUnavailable):
        engine.submit(request(engine, "a", 1.0), print)
    engine.load(None, 0)
    with pytest.raises(InvalidInput, match="emulated environments only"):
        engine.submit(GenerateRequest("b", "b", [1, 2, 3]), print)
