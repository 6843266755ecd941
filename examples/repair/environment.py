"""The job "repair": find and mend the one fault of a small generated Python package.

    Task(seed) ──▶ make_package ──▶ Workspace ◀── list_files, read_file, replace, run_tests, submit
                                        └──▶ score: run the tests of what is there, compare the test file

Success is a fact about the tree, whether the agent submitted or ran out of time: every test passes and the test file is
as it was. Run `python -m examples.repair.environment` to attach this environment to a rollout service.
"""

import argparse
import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from random import Random
from typing import Any

from examples.repair import workspace
from examples.repair.packages import TEST_FILE, digest_of, make_package, split_of
from examples.repair.sandbox import APART, Report, Sandbox, SandboxError
from gyre.env import Environment, Evidence, Rollback, Score, StepResult, Task, ToolCall

NAME = "repair"
SYSTEM = "Repair the package."
SEEN = "(seen)"
"""What is left of a tool result in a compacted context."""
REQUEST = "The tests fail. Find the fault, mend it, submit."

_EVIDENCE_SOURCES = ("functions.py", "packages.py", "workspace.py", "sandbox.py", "forkserver.py", "environment.py")


class RepairEnvironment(Environment):
    """One attempt. A shared `sandbox` saves starting a fork server for each; without one it brings its own.

    `results_kept`: the model sees that many newest tool results in full, older ones as a note; 0: all in full.
    """

    name = NAME
    milestones = {"fault_file_opened": 0.05, "tests_import": 0.05, "some_tests_pass": 0.05, "all_tests_pass": 0.05}

    def __init__(self, task: Task, sandbox: Sandbox | None = None, results_kept: int = 0) -> None:
        super().__init__(task)
        self._results_kept = results_kept
        self._package = make_package(task.seed)
        self._sandbox = sandbox or Sandbox()
        self._sandbox_is_own = sandbox is None
        self._workspace: workspace.Workspace | None = None
        self._at_start: Report | None = None

    def tools(self) -> list[dict[str, Any]]:
        return workspace.tools()

    def reset(self) -> list[dict[str, Any]]:
        """The first messages. Raises SandboxError if tests cannot be run at all: a world that never came up."""
        self._workspace = workspace.Workspace(self._package.files, self._sandbox)
        self._at_start = self._workspace.test()
        self.workspace = self._workspace.tree
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": REQUEST}]

    def step(self, call: ToolCall) -> StepResult:
        try:
            reply = self._workspace.call(call.name, call.arguments)
        except SandboxError as error:  # nothing that the agent did: go back, and on with another fork server
            raise Rollback(str(error)) from error
        return StepResult(content=reply.text, done=call.name == "submit" and not reply.refused, error=reply.refused)

    def snapshot(self) -> bytes:
        return json.dumps(sorted(self._workspace.opened)).encode()

    def restore(self, state: bytes) -> None:
        self._workspace.opened = set(json.loads(state))

    def compact(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        results = [message for message in messages if message["role"] == "tool"]
        for message in results[: -self._results_kept] if self._results_kept else []:
            message["content"] = SEEN
        return messages

    def score(self) -> Score:
        if self._workspace is None or self._at_start is None:
            return Score(outcome=0.0, valid=False, evidence={"error": "nothing to evaluate"})
        try:
            files = self._workspace.files()
            report = self._workspace.test()
        except (SandboxError, OSError, workspace.Refusal) as error:
            return Score(outcome=0.0, valid=False, evidence={"error": str(error)})
        tests_unchanged = files.get(TEST_FILE) == self._package.files[TEST_FILE]
        return Score(
            outcome=float(report.all_passed and tests_unchanged),
            milestones=self._reached(report, tests_unchanged),
            evidence={
                "status": report.status,
                "tests_passed": len(report.passed),
                "tests_failed": len(report.failed),
                "tests_unchanged": tests_unchanged,
                "tree_digest": digest_of(files),
            },
        )

    def verified(self) -> set[str]:
        """The tests run again only where a file was changed (the sandbox keeps reports by the files' digest)."""
        files = self._workspace.files()
        tests_unchanged = files.get(TEST_FILE) == self._package.files[TEST_FILE]
        reached = self._reached(self._workspace.test(), tests_unchanged)
        return {name for name, is_reached in reached.items() if is_reached}

    def _reached(self, report: Report, tests_unchanged: bool) -> dict[str, bool]:
        start = self._at_start
        return {
            "fault_file_opened": self._package.fault_path in self._workspace.opened,
            # Where the tests could be imported from the start, importing them is no progress.
            "tests_import": start.status == "import_error" and report.status == "ok" and tests_unchanged,
            "some_tests_pass": tests_unchanged and len(report.passed) > len(start.passed),
            "all_tests_pass": report.all_passed and tests_unchanged,
        }

    def evidence(self) -> Evidence:
        source = hashlib.sha256()
        for name in _EVIDENCE_SOURCES:
            source.update(resources.files("examples.repair").joinpath(name).read_bytes())
        with open(APART, "rb") as file:
            source.update(file.read())
        source.update(platform.python_version().encode())
        return Evidence(
            image_digest=f"sha256:{source.hexdigest()}",
            tool_versions={"python": platform.python_version(), "platform": sys.platform},
        )

    def close(self) -> None:
        if self._workspace is not None:
            self._workspace.close()
        if self._sandbox_is_own:
            self._sandbox.close()


def tasks(split: str, count: int, seed: int) -> Iterator[Task]:
    """`count` different tasks of `split` (`train` or `heldout`), the same for the same seed.

    Seeds are drawn and those whose package belongs to the other split are left out (packages.split_of).
    """
    if split not in ("train", "heldout"):
        raise ValueError(f"split must be train or heldout, not {split!r}")
    rng = Random(f"repair-tasks/{split}/{seed}")
    taken: set[int] = set()
    while len(taken) < count:
        package_seed = rng.randrange(2**31)
        package = make_package(package_seed)
        if package_seed in taken or split_of(package) != split:
            continue
        taken.add(package_seed)
        yield Task(
            task_id=f"repair-{split}-{package_seed}",
            task_type=f"repair.{package.kind}",
            seed=package_seed,
            payload={"split": split, "level": package.level},
        )


def main() -> None:
    from gyre.env import serve

    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--results-kept", type=int, default=0, help="tool results shown in full; 0: all")
    results_kept = max(0, parser.parse_known_args()[0].results_kept)
    sandbox = Sandbox()
    # Trees of a few kilobytes: in memory a snapshot of one costs a tenth of what a disk takes for it.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    try:
        with tempfile.TemporaryDirectory(prefix="repair-snapshots-", dir=memory) as state:
            serve(lambda task: RepairEnvironment(task, sandbox, results_kept), name=NAME, state=state)
    finally:
        sandbox.close()


if __name__ == "__main__":
    main()
