"""Real harnesses, unmodified, against the gateway's HTTP side with a scripted engine (B1, B2, B5).

GYRE_HARNESSES names folders (as PATH does) with their programs; harnesses that are not there are skipped:

    npm install --prefix DIR @anthropic-ai/claude-code@2.1.197 @openai/codex@0.171.0 @qwen-code/qwen-code@0.15.10 opencode-ai@1.18.33
    python -m venv DIR/mini && DIR/mini/bin/pip install mini-swe-agent==2.4.6
    GYRE_HARNESSES=DIR/node_modules/.bin:DIR/mini/bin python -m pytest tests/slow/test_harnesses.py -m slow

The script plays given outputs as tokens through the real tokenizer and parser; tools, files and sub-agents are the harness's own.
"""

import asyncio
import itertools
import json
import os
import shutil
from pathlib import Path

import pytest

from examples.repair.model import make_tokenizer
from gyre.bus.server import free_port
from gyre.clock import SystemClock
from gyre.config import Config, RolloutConfig
from gyre.records import CallRecorded
from services.rollout.core.keys import Claims, sign
from services.rollout.core.leases import Attempts
from services.rollout.core.session import Model
from services.rollout.core.template import ChatTemplate
from services.rollout.gateway.callroles import CallRoles
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.http import HttpGateway
from tests.unit.rollout.builders import tool_text
from tests.unit.rollout.test_calls import BusDouble, PoolDouble

CALLS = Path(__file__).parents[1] / "data" / "harness_calls"
SECRET, CONTEXT_MAX, WALL_S = b"s" * 32, 1_000_000, 120
WRITE, READ, TASK = "echo hello > hello.txt", "cat hello.txt", "Write hello.txt"


def tool(name: str, **arguments) -> str:
    return tool_text(name, json.dumps(arguments))


def agent(name: str, kind: str) -> str:
    return tool(name, description="check", prompt="check hello.txt", subagent_type=kind)


SCRIPTS = {
    "claude": {
        "main": ["I write." + tool("Bash", command=WRITE, description="w"), agent("Agent", "general-purpose"), "Done."],
        "sub-agent": [tool("Bash", command=READ, description="r"), "It says hello."],
        "side": ['{"title": "Greeting"}'],
    },
    "codex": {
        "main": [
            "I write." + tool("exec_command", cmd=WRITE), tool("multi_agent_v1__spawn_agent", message="check hello.txt"),
            tool("exec_command", cmd="sleep 2; " + READ), "Done.",
        ],
        "sub-agent": [tool("exec_command", cmd=READ), "It says hello."],
    },
    "qwen": {
        "main": ["I write." + tool("run_shell_command", command=WRITE, is_background=False), agent("agent", "general-purpose"), "Done."],
        "sub-agent": [tool("run_shell_command", command=READ, is_background=False), "It says hello."],
        "side": ["Nothing to remember."],
    },
    "opencode": {
        "main": ["I write." + tool("bash", command=WRITE, description="w"), agent("task", "general"), "Done."],
        "sub-agent": [tool("bash", command=READ, description="r"), "It says hello."],
        "side": ["Greeting"],
    },
    "mini": {"main": ["I write." + tool("bash", command=WRITE), tool("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")]},
}  # fmt: skip
"""Harness → role → outputs in order; the last one again and again."""

CODEX = 'model = "policy"\nmodel_provider = "gyre"\n[model_providers.gyre]\nname = "gyre"\nbase_url = "{base}/v1"\n' + (
    'wire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
)
OPENCODE = {
    "npm": "@ai-sdk/openai-compatible",
    "name": "gyre",
    "models": {"policy": {"limit": {"context": 900_000, "output": 900}}},
}
COMMANDS = {
    "claude": ["-p", TASK, "--output-format", "json", "--dangerously-skip-permissions", "--model", "policy"],
    "codex": ["exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", TASK],
    "qwen": ["-p", TASK, "--yolo"],
    "opencode": ["run", TASK],
    "mini": ["-t", TASK, "-m", "openai/policy", "-y", "--exit-immediately"],
}


class ScriptedEngine(PoolDouble):
    """Answers a call by its role: the next of that role's outputs."""

    def __init__(self, model: Model, script: dict[str, list[str]]) -> None:
        super().__init__(model)
        self._script = {role: list(outputs) for role, outputs in script.items()}
        self.roles: dict[str, str] = {}
        """Call id → role."""

    async def generate(self, work) -> None:
        outputs = self._script[self.roles[work.call_id]]
        self.text = outputs.pop(0) if len(outputs) > 1 else outputs[0]
        await super().generate(work)


class ScriptedCalls(ModelCalls):
    """Tells the engine which role each call has."""

    def begin(self, claims, request, role):
        running = super().begin(claims, request, role)
        self._pool.roles.setdefault(running.call_id, role.role)
        return running


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer((file.read_text() for file in sorted(CALLS.glob("*.json"))), 1000).save_pretrained(folder)
    return Model(ChatTemplate.load(folder))


@pytest.fixture
async def gateway(model, request):
    """(base URL, key, bus) of a gateway whose engine plays the script of the test's harness."""
    engine, bus, attempts = ScriptedEngine(model, SCRIPTS[request.param]), BusDouble(), Attempts()
    attempts.leased("g000001-e0", 1)
    config = Config(rollout=RolloutConfig(context_max=CONTEXT_MAX))
    calls = ScriptedCalls(config, model, engine, bus, SystemClock(), attempts)
    address = f"127.0.0.1:{free_port()}"
    served = HttpGateway(calls, CallRoles(config, bus, SystemClock()), SECRET, 64 * 1024 * 1024, CONTEXT_MAX)
    await served.start(address)
    claims = Claims(
        execution_id="g000001-e0", attempt=1, group_id="g000001", purpose="train", seed=1, temperature=1.0, top_p=1.0,
        turns_max=60, context_tokens_max=CONTEXT_MAX, output_tokens_max=4000, task_type="harness",
    )  # fmt: skip
    yield f"http://{address}", sign(claims, SECRET), bus
    await served.stop()


async def run(harness: str, base: str, key: str, folder: Path) -> tuple[int, str]:
    """Exit code and what it said, of the harness at work in `folder`."""
    program = shutil.which(harness, path=os.environ.get("GYRE_HARNESSES", ""))
    if program is None:
        pytest.skip(f"{harness} is in none of the folders of GYRE_HARNESSES")
    home = folder.parent / "home"
    (home / ".codex").mkdir(parents=True)
    (home / ".codex" / "config.toml").write_text(CODEX.format(base=base))
    provider = {"gyre": OPENCODE | {"options": {"baseURL": f"{base}/v1", "apiKey": key}}}
    settings = {"model": "gyre/policy", "autoupdate": False, "permission": "allow", "provider": provider}
    (folder / "opencode.json").write_text(json.dumps(settings))
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm", "IS_SANDBOX": "1",
        "ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": key, "OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_BASE": f"{base}/v1",
        "OPENAI_API_KEY": key, "OPENAI_MODEL": "policy", "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors",
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        program, *COMMANDS[harness], cwd=folder, env=environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = await asyncio.wait_for(process.communicate(), WALL_S)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, said.decode(errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gateway", "harness"), [(name, name) for name in SCRIPTS], indirect=["gateway"], ids=list(SCRIPTS)
)
async def test_a_harness_does_its_job_and_each_call_has_its_role(gateway, harness, tmp_path):
    """Its file is written; no call is unknown; of main and of the sub-agent each prompt begins with all tokens of the call before."""
    base, key, bus = gateway
    (folder := tmp_path / "work").mkdir()
    code, said = await run(harness, base, key, folder)
    assert code == 0, said[-2000:]
    assert (folder / "hello.txt").read_text() == "hello\n"
    records = [record for record in bus.records if isinstance(record, CallRecorded)]
    of_role = {role: [record for record in records if record.role == role] for role in SCRIPTS[harness]}
    assert sum(map(len, of_role.values())) == len(records), [(record.role, record.role_rule) for record in records]
    for role in set(SCRIPTS[harness]) - {"side"}:
        path = of_role[role]
        assert len(path) == len(SCRIPTS[harness][role]), (role, len(path))
        for before, after in itertools.pairwise(path):
            assert after.parent == before.call_id
            assert after.parent_tokens == before.prompt_tokens + len(before.output_ids) // 4
