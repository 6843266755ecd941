"""Demonstrations of mixed quality for the warm start: people's logs, not an answer key.

Every line holds one attempt on a training task, made by one of several demonstrators with the real tools:

    careful      tests, reads the failing file, mends the fault, tests again, submits
    persistent   the same, but the first edit is wrong or refused; seeing that, a second edit mends the fault
    sloppy       finds the place, edits it wrongly, submits without testing
    hasty        opens some file, changes something in it, submits
    quitter      looks around and submits

A policy that imitates them solves less than a third of the tasks. What it needs to solve nearly all is in there too: which
habits lead to success is what reinforcement learning has to find out.

`python -m examples.repair.demonstrations --out FILE --count N --seed N`
"""

import argparse
import json
import os
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.util import Finalize
from random import Random

from examples.repair.environment import RepairEnvironment, tasks
from examples.repair.functions import MODULES
from examples.repair.packages import TEST_FILE, TOP, Package, body_of, make_package
from examples.repair.sandbox import Sandbox
from gyre.env import Task, ToolCall

SAY_EVERY = 500
"""Demonstrations between two lines of progress."""

GLANCE_SHARE = 0.15
"""How often a demonstrator lists the files first though the tests name the place."""

WRONG = {
    "comparison": ("<", ">", "<=", ">=", "==", "!="),
    "operator": ("+", "-", "*", "//", "%", "+=", "-="),
    "constant": ("0", "1", "-1", "2", "3", "7", "12", "60"),
}
"""What a careless repairer may write instead, by the kind of fault."""


class Attempt:
    """One demonstrator's work on one task, with the real environment answering."""

    def __init__(self, task: Task, sandbox: Sandbox, rng: Random) -> None:
        self.package: Package = make_package(task.seed)
        self.rng = rng
        self.environment = RepairEnvironment(task, sandbox)
        self.messages = self.environment.reset()

    def call(self, tool: str, /, **arguments: object) -> str:
        """Make a tool call; returns what the tool said."""
        call_id = f"call_{len(self.messages)}"
        function = {"name": tool, "arguments": arguments}
        self.messages.append({
            "role": "assistant", "content": "", "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        })  # fmt: skip
        result = self.environment.step(ToolCall(call_id=call_id, name=tool, arguments=arguments))
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": result.content})
        return result.content

    def look(self) -> None:
        """Find the failing file and read it."""
        self.call("run_tests")
        if self.rng.random() < GLANCE_SHARE:
            self.call("list_files")
        self.call("read_file", path=self.package.fault_path)

    def edit(self, path: str, name: str, old: str, new: str) -> None:
        self.call("replace", path=path, name=name, old=old, new=new)

    def mend(self, old: str | None = None) -> None:
        package = self.package
        self.edit(package.fault_path, package.fault_name, old or package.wrong, package.right)

    def botch(self) -> str:
        """Edit the faulty place wrongly; returns what was written in place of the fault."""
        package = self.package
        new = self.rng.choice([w for w in self._wrong_forms() if w not in (package.right, package.wrong)])
        self.edit(package.fault_path, package.fault_name, package.wrong, new)
        return new

    def misfire(self) -> None:
        """Try an edit that the tool refuses: a fragment that is not there."""
        package = self.package
        body = package.files[package.fault_path][slice(*body_of(package.files[package.fault_path], package.fault_name))]
        fragments = [w for forms in WRONG.values() for w in forms if w not in body]
        self.edit(package.fault_path, package.fault_name, self.rng.choice(fragments), package.right)

    def meddle(self, path: str) -> None:
        """Change something that was right in `path`."""
        text = self.package.files[path]
        edits = [
            (function.name, fault.right, fault.wrong)
            for function in MODULES[path.removesuffix(".py")]
            if f"def {function.name}(" in text
            for fault in function.faults
            if fault.right in text[slice(*body_of(text, function.name))]
        ]
        self.edit(path, *self.rng.choice(edits or [(TOP, "import", "from")]))

    def _wrong_forms(self) -> tuple[str, ...]:
        package = self.package
        if package.kind in WRONG:
            return WRONG[package.kind]
        if package.kind == "import":
            return ("os", "sys", "re")
        return ("return x", "not " + package.wrong, "low", "x")


def careful(attempt: Attempt) -> None:
    attempt.look()
    attempt.mend()
    attempt.call("run_tests")
    attempt.call("submit")


def persistent(attempt: Attempt) -> None:
    attempt.look()
    if attempt.rng.random() < 0.5:
        written = attempt.botch()
        if attempt.call("run_tests") != "OK":
            attempt.mend(old=written)
    else:
        attempt.misfire()
        attempt.mend()
    attempt.call("run_tests")
    attempt.call("submit")


def sloppy(attempt: Attempt) -> None:
    attempt.look()
    attempt.botch() if attempt.rng.random() < 0.5 else attempt.meddle(attempt.package.fault_path)
    attempt.call("submit")


def hasty(attempt: Attempt) -> None:
    attempt.call("list_files")
    path = attempt.rng.choice(sorted(set(attempt.package.files) - {TEST_FILE}))
    attempt.call("read_file", path=path)
    if path == attempt.package.fault_path and attempt.rng.random() < 0.3:
        attempt.mend()
    else:
        attempt.meddle(path)
    attempt.call("submit")


def quitter(attempt: Attempt) -> None:
    attempt.call("run_tests")
    if attempt.rng.random() < 0.7:
        attempt.call("read_file", path=attempt.package.fault_path)
    attempt.call("submit")


Demonstrator = Callable[[Attempt], None]
Mixture = tuple[tuple[Demonstrator, float], ...]
MIXTURE: Mixture = (
    (careful, 0.28), (persistent, 0.09), (sloppy, 0.06), (hasty, 0.09), (quitter, 0.48),
)  # fmt: skip
"""Demonstrator → share of the attempts."""


def demonstrate(task: Task, seed: int, sandbox: Sandbox, mixture: Mixture = MIXTURE) -> dict:
    """One attempt: {"messages", "tools", "demonstrator", "outcome"}. Depends on the task and the seed alone."""
    rng = Random(f"repair-demonstrations/{seed}/{task.seed}")
    kinds, shares = zip(*mixture, strict=True)
    attempt = Attempt(task, sandbox, rng)
    demonstrator = rng.choices(kinds, shares)[0]
    demonstrator(attempt)
    outcome = attempt.environment.score().outcome
    attempt.environment.close()
    return {
        "messages": attempt.messages, "tools": attempt.environment.tools(),
        "demonstrator": demonstrator.__name__, "outcome": outcome,
    }  # fmt: skip


def demonstrations(count: int, seed: int, processes: int = 1) -> Iterator[dict]:
    """`count` attempts on different training tasks, the same whatever the number of processes."""
    given = ((task, seed) for task in tasks("train", count, seed))
    with get_context("spawn").Pool(processes, initializer=_begin) as pool:
        yield from pool.imap(_demonstrate, given, chunksize=32)


_sandbox: Sandbox | None = None


def _begin() -> None:
    """Each process runs tests through a fork server of its own."""
    global _sandbox
    _sandbox = Sandbox()
    Finalize(_sandbox, _sandbox.close, exitpriority=1)


def _demonstrate(given: tuple[Task, int]) -> dict:
    assert _sandbox is not None
    return demonstrate(*given, _sandbox)


def write(out: str, count: int, seed: int) -> dict[str, float]:
    """Write the demonstrations as JSON lines, whole or not at all; returns the success rate of each demonstrator."""
    outcomes: dict[str, list[float]] = {}
    temporary = f"{out}.part"
    with open(temporary, "w") as file:
        for index, row in enumerate(demonstrations(count, seed, processes=os.cpu_count() or 1), 1):
            if index % SAY_EVERY == 0:
                print(f"{index} of {count}", flush=True)
            outcomes.setdefault(row["demonstrator"], []).append(row["outcome"])
            file.write(json.dumps(row) + "\n")
    os.replace(temporary, out)
    return {name: sum(values) / len(values) for name, values in sorted(outcomes.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name, rate in write(options.out, options.count, options.seed).items():
        print(f"{name:12} solved {rate:.0%}")


if __name__ == "__main__":
    main()
