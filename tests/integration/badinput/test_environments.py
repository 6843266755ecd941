"""Environments written with gyre.env that go wrong, each in a way of its own, all in one process at once (B4, C6).

Whatever one does: exactly one ending on record, with its reason; never a reward; and its neighbours go on.
"""

import asyncio

import pytest
import pytest_asyncio

from tests.support import WAIT_S

pytestmark = pytest.mark.asyncio(loop_scope="package")

MB = 1024 * 1024
WALL_S = {
    "reset hangs": 12.0, "step hangs": 12.0, "step hangs, then score fails": 12.0, "score hangs": 12.0, "async step blocks its loop": 12.0,
    "async step waits for ever": 12.0, "step never ends its observation": 12.0,
}  # fmt: skip
"""Long enough for a busy machine to come to the step; everything else ends by itself."""

FAILED = {
    "init raises": ("environment_error", "no world could be made"),
    "reset raises": ("environment_error", "the world would not start"),
    "reset hangs": ("environment_hung", "reset did not return within"),
    "reset is text": ("environment_invalid", "reset() must return a list of messages"),
    "reset holds bytes": ("environment_invalid", "must hold JSON values only"),
    "reset is huge": ("environment_invalid", "leave no room for an answer"),
    "reset has no role": ("environment_error", "known roles: system"),
    "tools are sets": ("environment_invalid", "tools() must hold JSON values only"),
    "evidence is huge": ("environment_invalid", "give digests, not contents"),
    "evidence holds numbers": ("environment_invalid", "must hold texts only, not int"),
    "many milestones": ("environment_invalid", "at most 64 names, not 100000"),
    "milestone weighs text": ("environment_invalid", "a number from 0 to 1, not 'much'"),
    "step raises": ("environment_error", "RuntimeError: the tool broke"),
    "step raises undecodable text": ("environment_error", "RuntimeError: no file ?"),
    "step exits": ("environment_error", "SystemExit(3)"),
    "async step exits": ("environment_error", "SystemExit(3)"),
    "async step cancels itself": ("environment_error", "CancelledError()"),
    "step recurses": ("environment_error", "maximum recursion depth"),
    "step is text": ("environment_invalid", "no StepResult with text: str"),
    "step holds bytes": ("environment_invalid", "no StepResult with text"),
    "step hangs, then score fails": ("environment_hung", "a step hung, and score() then failed"),
    "score hangs": ("environment_hung", "no word of its end within"),
    "score is a number": ("environment_invalid", "score() must return gyre.env.Score, not float"),
    "outcome is not a number": ("environment_invalid", "a number from 0 to 1, not 'nan'"),
    "outcome is 7": ("environment_invalid", "a number from 0 to 1, not '7'"),
    "outcome is text": ("environment_invalid", "a number from 0 to 1, not '1'"),
    "milestone is unknown": ("environment_invalid", "does not declare: flew"),
    "findings are objects": ("environment_invalid", "must hold JSON values only"),
    "findings are infinite": ("environment_invalid", "must hold JSON values only"),
    "findings are huge numbers": ("environment_invalid", "numbers of 64 bits"),
}
"""Mode → (reason, what the detail says); the ending is `failed` and nothing is evaluated."""

SCORED = {
    "": ("completed", "submitted", 1.0),
    "step is huge": ("timed_out", "context", 1.0),
    "step hangs": ("timed_out", "wall", 1.0),
    "step never ends its observation": ("timed_out", "wall", 1.0),
    "async step blocks its loop": ("timed_out", "wall", 1.0),
    "async step waits for ever": ("timed_out", "wall", 1.0),
    "async step leaves tasks": ("completed", "submitted", 1.0),
    "step prints without end": ("completed", "submitted", 1.0),
    "step changes its process": ("completed", "submitted", 1.0),
    "findings are huge": ("completed", "submitted", 1.0),
    "close raises": ("completed", "submitted", 1.0),
}
"""Mode → (ending, reason, outcome): what harms nobody, or happened before the work was judged."""

UNSCORED = {"score raises": "nothing to look at", "evaluation is invalid": "looked"}
"""Evaluations that failed three times: completed, marked invalid, no reward."""


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def executions(system):
    """Mode → execution, all under way at once; good ones before and behind them."""
    process = await system.start_environment()
    modes = ["", *FAILED, *SCORED, *UNSCORED, "good too"]
    names = {mode: await system.submit(mode, wall_s=WALL_S.get(mode, 600.0)) for mode in modes}
    yield names
    assert process.returncode is None, "the process outlives all of it"
    process.terminate()
    assert await asyncio.wait_for(process.wait(), WAIT_S) == 0


@pytest.mark.parametrize("mode", FAILED)
async def test_what_breaks_the_contract_fails_and_says_what_would_be_right(system, executions, mode):
    """An error is never a reward: no evaluation, or the placeholder of a world that never came up."""
    ending = await system.ending(executions[mode])
    reason, words = FAILED[mode]
    assert (ending.ending, ending.reason) == ("failed", reason), ending
    assert words in ending.detail and len(ending.detail) <= 2000
    assert ending.evaluation is None or (ending.evaluation.placeholder and not ending.evaluation.valid)


@pytest.mark.parametrize("mode", SCORED)
async def test_what_harms_nobody_is_judged_as_ever(system, executions, mode):
    """B4: a hung step is left behind and the work scored; a huge observation is cut; a broken close comes too late to matter."""
    ending = await system.ending(executions[mode])
    assert (ending.ending, ending.reason, ending.evaluation.outcome) == SCORED[mode], ending
    assert ending.evaluation.valid and ending.evaluation.milestones == {"acted": True}


@pytest.mark.parametrize("mode", UNSCORED)
async def test_an_evaluation_that_cannot_be_made_is_invalid_and_never_a_zero(system, executions, mode):
    """B4: three tries, then `valid` is False."""
    ending = await system.ending(executions[mode])
    assert (ending.ending, ending.evaluation.valid, ending.evaluation.tries) == ("completed", False, 3)
    assert UNSCORED[mode] in str(ending.evaluation.evidence)


async def test_neighbours_went_on_and_nothing_is_left_over(system, executions):
    """One ending each; every lease acknowledged; 100 MB twice over never reached the gateway's memory."""
    assert (await system.ending(executions["good too"])).evaluation.outcome == 1.0
    await asyncio.gather(*(system.ending(name) for name in executions.values()))
    await system.run.heard_all()
    endings = [ending for ending in system.endings() if ending.execution_id in executions.values()]
    assert len(endings) == len(executions) and {ending.attempt for ending in endings} == {1}
    await system.no_lease_left()
    assert system.memory_bytes() < 400 * MB
    assert "a defect" not in system.log("services.rollout")


async def test_a_gymnasium_world_is_judged_by_its_rewards_whatever_the_model_does(system):
    """The example, served as its documentation says. This model calls act without an action: an answer with the names that exist, a turn
    each, and after the last one a score of what was reached, nothing."""
    process = await system.start_module("examples.gymnasium_env.environment")
    ending = await system.ending(await system.submit("", "frozen-lake", turns_max=2))
    assert (ending.ending, ending.reason, ending.external_calls) == ("timed_out", "turns", 2)
    assert ending.evaluation.valid and ending.evaluation.evidence == {"reward": 0.0, "over": False}
    process.terminate()
    await process.wait()


async def test_a_process_that_was_silent_too_long_is_taken_back_when_it_speaks_again(system):
    """What holds the interpreter stops heartbeats too, for longer than the lease. The process attaches anew, its execution
    goes on as the same attempt (nobody else took it), and the next one is served as ever."""
    process = await system.start_environment("--blocking")
    late = await system.ending(await system.submit("blocks", "blocking"))
    assert "its environment is gone" in system.log("services.rollout")
    assert (late.ending, late.attempt, late.evaluation and late.evaluation.outcome) == ("completed", 1, 1.0), late
    after = await system.ending(await system.submit("", "blocking"))
    assert after.evaluation.outcome == 1.0 and process.returncode is None
    process.terminate()
    await process.wait()


async def test_a_process_of_its_own_is_all_that_an_execution_can_kill(system):
    """Three processes of one slot each: what kills its process does so at each of its two attempts and is then failed, with what happened; beside it
    one that does nothing wrong ends at its first attempt."""
    processes = [await system.start_environment("--deadly", "--slots", "1") for _ in range(3)]
    deadly = await system.submit("step kills its process", "deadly")
    harmless = await system.ending(await system.submit("", "deadly"))
    assert (harmless.ending, harmless.attempt, harmless.evaluation.outcome) == ("completed", 1, 1.0)
    ending = await system.ending(deadly)
    assert (ending.ending, ending.reason) == (
        "failed",
        "attempts_exhausted",
    ) and "2 attempts were lost" in ending.detail
    assert sorted(process.returncode or 0 for process in processes) == [-9, -9, 0]
    for process in processes:
        if process.returncode is None:
            process.terminate()
            await process.wait()
