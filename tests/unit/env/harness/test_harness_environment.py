"""A program as an agent: how it ends, and how what it left is judged (B1, B4)."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from gyre.env import Environment, Score, Task
from gyre.env.driving import Access
from gyre.env.ends import Limits
from gyre.env.harness import Bounds, HarnessEnvironment, Program
from gyre.env.harness.programs import fill, shipped
from gyre.env.harness.settings import load
from gyre.env.scoring import judge
from gyre.env.wall import WallClock
from gyre.env.worker import Threads, Worker
from gyre.errors import ConfigError, InvalidInput
from tests.support import until
from tests.unit.env.doubles import ChatDouble

AGENT = Program(
    command=[sys.executable, str(Path(__file__).with_name("agent.py")), "{prompt}"],
    environment={"MODEL_URL": "{api}", "MODEL_KEY": "{key}"},
    files={"{home}/.agent/settings": "model = {model}, window = {context}"},
)
TASK = Task(task_id="t", task_type="t", seed=3)
WALL_S = 300.0


class Write(HarnessEnvironment):
    name = "write"
    program = AGENT

    def prepare(self, workspace: Path) -> str:
        (workspace / "given").write_text(f"{self.task.seed}")
        return "Write."

    async def evaluate(self, workspace: Path, ended) -> Score:
        done = await self.check(["{python}", "-c", "assert open('written').read() == 'well\\n'"])
        return Score(outcome=float(done.code == 0), evidence={"code": done.code})


def say(*texts: str):
    """The model's replies, in order."""
    return lambda _body, n: {"role": "assistant", "content": texts[n - 1]}


async def drive(answer, kind=Write, wall: WallClock | None = None, **changes):
    """(how it ended, the environment, the model's double); the environment is not closed."""
    environment = type("Changed", (kind,), changes)(TASK)
    environment.reset()
    wall = wall or WallClock()
    wall.start(WALL_S)
    limits = Limits(wall_s=WALL_S, turns_max=9, observation_bytes_max=1000, context_tokens_max=5000)
    async with ChatDouble(answer) as model:
        over = await environment.drive(Access(lambda: model.base, "attempts-key"), limits, wall)
    return over, environment, model


async def test_an_agent_does_its_task_and_what_it_left_is_judged():
    over, environment, model = await drive(say("do echo well > written", "Done."))
    assert (over.ending, over.reason) == ("completed", "stopped")
    score = await environment.score()
    assert score.outcome == 1.0 and score.evidence["harness"]["code"] == 0
    assert environment.exit.tail == "said: do echo well > written\nsaid: Done.\n"
    keys = {value for headers in model.headers for name, value in headers.items() if name.lower() == "authorization"}
    assert keys == {"Bearer attempts-key"}, "which the agent never saw"
    assert (environment.sandbox.home / ".agent/settings").read_text() == "model = policy, window = 5000"
    environment.close()
    assert not environment.sandbox.work.exists()


async def test_without_a_relay_it_is_given_the_gateways_address_and_the_attempts_key():
    over, environment, model = await drive(say("do echo $MODEL_URL $MODEL_KEY > written", "Done."), is_relayed=False)
    assert over.reason == "stopped"
    assert (environment.sandbox.work / "written").read_text() == f"{model.base} attempts-key\n"
    environment.close()


@pytest.mark.parametrize("is_relayed", [True, False])
async def test_an_agent_that_has_a_key_of_its_own_is_told_its_key_in_the_url(is_relayed):
    """And what it says of its URL is kept without the key."""
    told = Program(
        command=AGENT.command,
        environment={"MODEL_URL": "{api_with_key}", "MODEL_KEY": "sk-own", "BASE": "{base_with_key}"},
    )
    over, environment, model = await drive(
        say("do echo $MODEL_URL $BASE; exit 3", "Done."), is_relayed=is_relayed, program=told
    )
    assert over.reason == "stopped" and len(model.requests) == 2
    base = r"http://127\.0\.0\.1:[0-9]+/key/…"
    assert re.search(f"^{base}/v1 {base}$", environment.exit.tail, re.MULTILINE)
    environment.close()


@pytest.mark.parametrize(
    ("answer", "changes", "ending", "reason", "detail"),
    [
        (say("do kill -9 $PPID", ""), {}, "completed", "exited", "exit code -9"),
        (say("do setsid sleep 60 & kill -9 $(ps -o ppid= -p $PPID)", ""), {}, "failed", "environment_error", "warden"),
        (lambda *_: (400, {}, {"error": {"code": "turns_exceeded", "message": "made"}}), {}, "failed", "environment_error", "HTTP Error 400"),
        (
            lambda _, n: {"content": "do true"} if n < 3 else (400, {}, {"error": {"code": "turns_exceeded", "message": "made"}}),
            {}, "timed_out", "turns", "",
        ),
        (
            lambda _, n: {"content": "do true"} if n < 3 else (400, {}, {"error": {"code": "context_length_exceeded", "message": "long"}}),
            {}, "timed_out", "context", "HTTP Error 400",
        ),
        (say(""), {"program": Program(command=["true"])}, "failed", "environment_error", "without a single call"),
        (say("do yes"), {"bounds": Bounds(output_bytes=100_000)}, "timed_out", "output", ""),
        (say("do sleep 60"), {"stall_s": 0.3}, "timed_out", "stalled", ""),
    ],
    ids=["killed", "warden-killed", "refused-at-once", "turns", "context", "never-asked", "output", "stalled"],
)  # fmt: skip
async def test_every_way_to_end_has_its_word(answer, changes, ending, reason, detail):
    over, environment, _ = await drive(answer, **changes)
    assert (over.ending, over.reason) == (ending, reason)
    assert detail in over.detail
    assert environment.exit.left == 0
    environment.close()


ESCAPES = {
    "closed": "mkdir x && touch x/y && chmod 000 x",
    "deep": f"{sys.executable} -c \"import os\nfor _ in range(1100): os.mkdir('x'); os.chdir('x')\"",
    "pipe": "mkfifo pipe",
}


@pytest.mark.parametrize("escape", ESCAPES)
async def test_nothing_that_an_agent_leaves_keeps_it_from_being_judged(escape):
    """An evaluation that cannot be carried out is no reward, so an agent that breaks it would take its failures out of training."""
    over, environment, _ = await drive(say(f"do echo well > written; {ESCAPES[escape]}", "Done."))
    assert (over.ending, over.reason) == ("completed", "stopped")
    evaluated = await judge(environment, Worker(Threads()), {})
    assert (evaluated.outcome, evaluated.valid, evaluated.tries) == (1.0, True, 1)
    environment.close()
    assert not environment.sandbox.work.parent.exists()


async def test_a_working_folder_that_was_put_elsewhere_is_judged_as_an_empty_one():
    _, environment, _ = await drive(say("do echo well > written; mv ../work ../kept; ln -s / ../work", "Done."))
    evaluated = await judge(environment, Worker(Threads()), {})
    assert (evaluated.outcome, evaluated.valid) == (0.0, True)
    assert json.loads(evaluated.evidence_json)["harness"]["left_out"] == {"replaced": 1}
    environment.close()


async def test_what_never_ends_when_it_is_checked_is_a_failure_and_no_failed_evaluation(monkeypatch):
    """The bound of the check comes before that of the evaluation, whatever the author has set."""
    monkeypatch.setattr(Environment, "score_s", 0.1)
    _, environment, _ = await drive(
        say("do echo well > written", "Done."), check_bounds=Bounds(wall_s=0.5), evaluate=endless
    )
    evaluated = await judge(environment, Worker(Threads()), {})
    assert (evaluated.outcome, evaluated.valid, json.loads(evaluated.evidence_json)["how"]) == (0.0, True, "wall")
    environment.close()


async def endless(environment: HarnessEnvironment, _workspace: Path, _ended) -> Score:
    done = await environment.check(["{python}", "-c", "while True: pass"])
    return Score(outcome=float(done.how == "exited" and done.code == 0), evidence={"how": done.how})


@pytest.mark.parametrize("reason", ["wall", "truncated"])
async def test_the_end_of_its_time_ends_it_and_what_is_there_is_judged(reason):
    """B4, C5."""
    wall = WallClock()

    async def never(_body, n):
        if n == 1:
            return {"content": "do echo well > written"}
        wall.expire(reason)
        await asyncio.Event().wait()

    over, environment, _ = await drive(lambda body, n: never(body, n), wall=wall)
    assert (over.ending, over.reason, environment.exit.how) == ("timed_out", reason, "stopped")
    assert (await environment.score()).outcome == 1.0
    environment.close()


async def test_a_cancelled_execution_leaves_nothing_running():
    asked = asyncio.Event()

    async def never(_body, _n):
        asked.set()
        await asyncio.Event().wait()

    environment = Write(TASK)
    environment.reset()
    wall = WallClock()
    wall.start(WALL_S)
    async with ChatDouble(never) as model:
        limits = Limits(wall_s=WALL_S, turns_max=9, observation_bytes_max=1000)
        driving = asyncio.create_task(environment.drive(Access(lambda: model.base, "k"), limits, wall))
        await asked.wait()
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)
    await until(lambda: environment.exit is not None)
    assert (environment.exit.how, environment.exit.left) == ("stopped", 0)
    environment.close()


def test_an_unknown_harness_and_a_program_that_is_not_there_are_said_so(monkeypatch):
    with pytest.raises(InvalidInput, match=r"'nobodys' has no row; known: claude-code, codex"):
        type("Unknown", (Write,), {"program": None, "harness": "nobodys"})(TASK)
    missing = type("Missing", (Write,), {"program": Program(command=["no-such-program"])})(TASK)
    with pytest.raises(InvalidInput, match="no program `no-such-program`"):
        missing.reset()
    missing.close()


async def test_hidden_tests_are_laid_over_a_copy_and_never_through_a_link(tmp_path):
    """An agent that puts a link where the tests go gets nothing written elsewhere, and its own tests do not count."""
    (hidden := tmp_path / "hidden" / "tests").mkdir(parents=True)
    (hidden / "check.py").write_text("print('hidden')")
    (elsewhere := tmp_path / "elsewhere").mkdir()
    environment = Write(TASK)
    environment.reset()
    (environment.sandbox.work / "tests").symlink_to(elsewhere)
    done = await environment.check(["{python}", "tests/check.py"], hidden.parent)
    assert done.tail == "hidden\n" and not list(elsewhere.iterdir())
    assert (environment.sandbox.work / "tests").is_symlink(), "what was left is as it was"
    environment.close()


def test_every_shipped_row_says_where_the_model_is_and_which_key_opens_it():
    for name, program in shipped().items():
        texts = [*program.command, *program.environment.values(), *program.files.values()]
        assert any("{prompt}" in text for text in program.command), name
        assert any("{api}" in text or "{base}" in text for text in texts) and any("{key}" in text for text in texts), (
            name
        )


def test_places_are_filled_and_values_are_never_read_as_places():
    assert fill("{{a}} {prompt}", {"prompt": "{key}"}) == "{a} {key}"
    for wrong in ("{nope}", "{", "{prompt.__class__}"):
        with pytest.raises(ValueError, match="is none of"):
            fill(wrong, {"prompt": ""})


FILE = """
name = "written"
prompt = "Write {what}."
files = "files"
hidden = "hidden"
check = ["{python}", "check.py"]

[program]
command = ["%s", "%s", "{prompt}"]
environment = { MODEL_URL = "{api}", MODEL_KEY = "{key}" }
"""


async def test_a_file_describes_an_environment_without_any_code(tmp_path):
    for name in ("files", "hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "files" / "begin").write_text("begun")
    (tmp_path / "hidden" / "check.py").write_text("assert open('begin').read() == open('end').read() == 'begun'")
    (tmp_path / "it.toml").write_text(FILE % (sys.executable, Path(__file__).with_name("agent.py")))
    kind = load(tmp_path / "it.toml")
    environment = kind(Task(task_id="t", task_type="t", seed=1, payload={"what": "it"}))
    assert environment.reset() == [{"role": "user", "content": "Write it."}]
    environment.close()
    over, environment, _ = await drive(
        say("do cp begin end", "Done."), kind, prepare=lambda self, folder: prepared(folder)
    )
    assert over.reason == "stopped"
    assert (await environment.score()).outcome == 1.0
    environment.close()


def prepared(folder: Path) -> str:
    (folder / "begin").write_text("begun")
    return "Write."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "x"', "missing required field `prompt`"),
        (FILE.replace('files = "files"', 'files = "nowhere"'), "no folder"),
        (FILE.replace("[program]", "[programme]"), "unknown field `programme`"),
        (FILE.replace("{prompt}", "{promt}"), "is none of"),
        ("name =", "Invalid value"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong(text, said, tmp_path):
    (tmp_path / "it.toml").write_text(text.replace("%s", "x"))
    with pytest.raises(ConfigError, match=said):
        load(tmp_path / "it.toml")


async def test_an_evaluation_that_is_async_behind_a_decorator_is_awaited():
    def evaluate(self, workspace, ended):
        return Write.evaluate(self, workspace, ended)

    _, environment, _ = await drive(say("do echo well > written", "Done."), evaluate=evaluate)
    assert (await environment.score()).outcome == 1.0
    environment.close()
