"""The processor as a process, with evaluators: one learned over HTTP, one rule as a process over gRPC; killed in the middle (B4, D4)."""

import asyncio
import contextlib
from collections import Counter

from aiohttp import web
from tokenizers import Tokenizer, models, pre_tokenizers

from gyre import ids
from gyre import records as r
from gyre.bus.subjects import natural_key
from tests.integration.trajproc.moody import moody
from tests.integration.trajproc.others import watching
from tests.support import TestRun
from tests.unit.trajproc.builders import dispatched, execution, opened, started, submitted

WORDS = [f"w{index}" for index in range(60)]


class RewardModel:
    """Answers by plan: sample → scores or failures (None), one a question; a plan's last is repeated. `held` waits."""

    def __init__(self, plan: dict[str, list[float | None]]) -> None:
        self.plan, self.asked, self.shown = {name: list(steps) for name, steps in plan.items()}, Counter(), {}
        self.held: set[str] = set()
        self.released = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        sample = body["sample_id"]
        self.asked[sample] += 1
        self.shown[sample] = body
        if sample in self.held:
            await self.released.wait()
        steps = self.plan.get(sample, [0.5])
        score = steps.pop(0) if len(steps) > 1 else steps[0]
        return web.Response(status=503) if score is None else web.json_response({"score": score, "looked_at": ["text"]})

    @contextlib.asynccontextmanager
    async def serving(self):
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_post("/score", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/score"
        finally:
            await runner.cleanup()


def make_tokenizer(folder) -> None:
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


KINDS = (r.RewardScored, r.SampleReady, r.SampleDropped, r.BatchClosed)
"""Answers of evaluators, and what comes of them."""


async def test_answers_are_facts_a_kill_asks_again_only_what_is_not_on_record(tmp_path):
    """B4: four executions that all failed, in two groups. The reward model fails twice on the first, then says .8; the second is
    answered .2; the third never (required: evaluation_failed, never a zero); the fourth is held while the process is killed (kill -9).
    The rule over gRPC says .5 of each. After the restart nothing that was answered is asked again, the fourth is; each fact stands once.
    Rewards are .2·.5 = .1 by the rule and .4 of the rest by the model: .1 + .9·.4·.8 = .388 and .1 + .9·.4·.2 = .172."""
    first, second = ids.group_id(0), ids.group_id(1)
    samples = [ids.sample_id(ids.execution_id(group, member), 1) for group in (first, second) for member in (0, 1)]
    model = RewardModel({samples[0]: [None, None, 0.8], samples[1]: [0.2], samples[2]: [None], samples[3]: [0.6]})
    model.held.add(samples[3])
    make_tokenizer(tmp_path / "model")
    async with model.serving() as url, moody("fine") as (_, port):
        taste = {"name": "taste", "kind": "learned", "url": url, "weight": 0.4, "tries": 3, "timeout_s": 100.0}
        mine = {"name": "mine", "kind": "rule", "transport": "grpc", "address": f"127.0.0.1:{port}", "weight": 0.2}
        settings = {"trajproc": {"turns_per_step": 8, "milestone_share": 0.0}, "evaluators": [taste, mine]}
        async with TestRun(tmp_path, settings) as run, watching(run, KINDS) as others:
            process = await run.start("services.trajproc", endpoint="trajproc")
            await others.say(
                started(), submitted(first), submitted(second), dispatched(first), dispatched(second), opened(0)
            )
            for group in (first, second):
                for member in (0, 1):
                    ending = "timed_out" if group == first and member else "completed"
                    await others.say(*execution(group, member, 0.0, turns=2, ending=ending))
            # seven answers are on record: four rules, two of the model, and that the third could not be had
            await others.until(lambda: len(others.of(r.RewardScored)) == 7 and model.asked[samples[3]] == 1)
            await others.until(lambda: len(others.of(r.SampleReady)) == 2)
            assert {fact.group_id for fact in others.of(r.SampleReady)} == {first}, "the second group waits"

            process.kill()
            await process.wait()
            asked = Counter(model.asked)
            model.released.set()
            process = await run.start("services.trajproc", endpoint="trajproc")
            await others.until(lambda: others.of(r.BatchClosed))
            process.terminate()
            assert await process.wait() == 0

    assert model.asked - asked == {samples[3]: 1}, "asked again: what was not on record, once"
    keys = [natural_key(fact) for fact in others.facts]
    assert len(keys) == len(set(keys)), "nothing is said twice"
    scores = {(fact.sample_id, fact.evaluator): fact for fact in others.of(r.RewardScored)}
    assert len(scores) == 8
    assert (scores[samples[0], "taste"].tries, scores[samples[0], "taste"].value) == (3, 0.8)
    assert scores[samples[1], "taste"].partial and not scores[samples[0], "taste"].partial
    failed = scores[samples[2], "taste"]
    assert (failed.valid, failed.value, failed.tries) == (False, None, 3) and "503" in failed.detail
    assert scores[samples[3], "mine"].evidence == {"turns": 2}
    rewards = {fact.sample_id: round(fact.reward, 6) for fact in others.of(r.SampleReady)}
    assert rewards == {samples[0]: 0.388, samples[1]: 0.172, samples[3]: round(0.1 + 0.9 * 0.4 * 0.6, 6)}
    drops = {fact.sample_id: fact for fact in others.of(r.SampleDropped)}
    assert drops[samples[2]].reason == "evaluation_failed" and "taste" in drops[samples[2]].detail
    shown = model.shown[samples[0]]
    assert shown["paths"][0]["text"] == "w1 w2 w3 w20 w21 w11 w22 w23", "prompt and outputs, decoded"
    assert (shown["ending"], model.shown[samples[1]]["partial"]) == ("completed", True)
    assert shown["payload"] == {}


async def test_a_group_does_not_wait_longer_than_the_budget_of_an_optional_evaluator_that_hangs(tmp_path):
    """B4: one second of budget; then the component is left out for both, the outcomes decide, and it is counted."""
    group = ids.group_id(0)
    model = RewardModel({})
    model.held |= {ids.sample_id(ids.execution_id(group, member), 1) for member in (0, 1)}
    make_tokenizer(tmp_path / "model")
    async with model.serving() as url:
        slow = {"name": "slow", "kind": "dense", "url": url, "required": False, "timeout_s": 0.5, "budget_s": 1.0}
        settings = {"trajproc": {"turns_per_step": 2, "milestone_share": 0.0}, "evaluators": [slow]}
        async with TestRun(tmp_path, settings) as run, watching(run, KINDS) as others:
            await run.start("services.trajproc", endpoint="trajproc")
            await others.say(started(), submitted(group), dispatched(group), opened(0))
            await others.say(*execution(group, 0, 1.0), *execution(group, 1, 0.0))
            await others.until(lambda: others.of(r.BatchClosed))
    answers = others.of(r.RewardScored)
    assert [fact.valid for fact in answers] == [False, False] and all(fact.took_s < 60.0 for fact in answers), (
        "held for ever"
    )
    assert [fact.rewards for fact in others.of(r.SampleReady)] == [{"outcome": 1.0}, {"outcome": 0.0}]
