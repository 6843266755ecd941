"""The repair environment under Gyre's snapshots (C4)."""

import json

from examples.repair.environment import RepairEnvironment
from examples.repair.sandbox import SandboxError
from gyre.env.episode import Episode, Limits
from tests.unit.repair.test_environment import task_of


class Agent:
    """A model that opens the faulty file, mends it, runs the tests and submits."""

    def __init__(self, package) -> None:
        mend = {"path": package.fault_path, "name": package.fault_name, "old": package.wrong, "new": package.right}
        self.acts = [("read_file", {"path": package.fault_path}), ("replace", mend), ("run_tests", {}), ("submit", {})]
        self.asked = []

    async def complete(self, messages, tools, wall):
        self.asked.append(len(messages))
        name, arguments = self.acts[(len(messages) - 2) // 2]
        call = {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}


async def test_a_sandbox_that_fails_sets_the_attempt_back_and_the_repair_still_succeeds(sandbox, monkeypatch):
    """The first `run_tests` of the third turn finds no fork server: back to the snapshot of the start, whose tree is not mended, and through
    all turns again. The file counts as opened by the second reading: what was in memory went back, too."""
    environments = []

    def make(task):
        environments.append(RepairEnvironment(task, sandbox))
        return environments[-1]

    async def started(evidence):
        (environment,) = environments
        broken = [SandboxError("no connection to the fork server")]
        real = environment._workspace._run_tests
        monkeypatch.setattr(environment._workspace, "_run_tests", lambda: _raise(broken.pop()) if broken else real())

    task = task_of("operator")
    agent = Agent(RepairEnvironment(task, sandbox)._package)
    ending = await Episode(make, task, Limits(wall_s=60, turns_max=8, observation_bytes_max=1000), agent, started).run()
    assert (ending.reason, ending.evaluation.outcome) == ("submitted", 1.0)
    assert ending.snapshots >= 1 and ending.rollback_turns >= 1 and len(agent.asked) == 4
    assert ending.evaluation.milestones["fault_file_opened"]


def _raise(error):
    raise error
