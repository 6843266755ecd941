"""Runs hidden unittest tests over what an agent left: `python -I -S judge.py SPEC` (started by testing.py; standard library only).

    SPEC ──read, removed──▶ path: hidden tests, standard library, what the agent left, other packages ──▶ tests ──▶ `SECRET {"passed": …}` on stdout

Nothing that the agent left is imported instead of the library or of the tests, whatever its name. Code that ends the process (`os._exit(0)`) has said
nothing, for only the line that begins with SPEC's secret counts, and it is written last; what skips itself or changes what judges it has failed.
It is one interpreter all the same: code that searches its memory can find the secret. testing.py says what to do about that.
"""

import builtins
import json
import os
import site
import sys
import unittest
from collections.abc import Iterator
from types import FunctionType, ModuleType

SAID_CHARS = 300
FAILURES_MAX = 5


class Results(unittest.TestResult):
    """Counts. What skips itself while it runs has not passed: only marks that stand on a test excuse it."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = self.excused = 0
        self.failed: list[str] = []

    def addSuccess(self, test) -> None:
        self.passed += 1

    def addError(self, test, err) -> None:
        self.failed.append(f"{test.id()}: {err[0].__name__}: {err[1]}")

    addFailure = addError

    def addSkip(self, test, reason) -> None:
        method = getattr(test, getattr(test, "_testMethodName", ""), None)
        marked = getattr(type(test), "__unittest_skip__", False) or getattr(method, "__unittest_skip__", False)
        if marked and type(test).__module__ != "unittest.loader":
            self.excused += 1
        else:
            self.failed.append(f"{test.id()}: skipped itself: {reason}")

    def addExpectedFailure(self, test, err) -> None:
        self.excused += 1

    def addUnexpectedSuccess(self, test) -> None:
        self.failed.append(f"{test.id()}: succeeded unexpectedly")

    def addSubTest(self, test, subtest, err) -> None:
        if err is not None:
            self.addError(subtest, err)


def judges() -> dict[tuple[str, ...], object]:
    """Everything that has a say in what passes, by name."""
    modules = [sys.modules[name] for name in sorted(sys.modules) if name.split(".")[0] == "unittest"]
    found = dict(_parts(builtins))
    for module in (*modules, sys.modules[__name__]):
        found |= dict(_parts(module))
    return found


def _parts(module: ModuleType) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, value in list(vars(module).items()):
        if isinstance(value, type | FunctionType) or module is builtins:
            yield (module.__name__, name), value
        if isinstance(value, type) and value.__module__ == module.__name__:
            for inner, part in list(vars(value).items()):
                if isinstance(part, FunctionType | classmethod | staticmethod | property):
                    yield (module.__name__, name, inner), part


def changed(before: dict[tuple[str, ...], object], now: dict[tuple[str, ...], object]) -> list[str]:
    return [".".join(name) for name, value in before.items() if now.get(name) is not value]


def contents(folder: str) -> dict[str, bytes]:
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                found[os.path.join(place, name)] = file.read()
    return found


def judged(hidden: str, pattern: str) -> Results:
    results, before, files, ours = Results(), judges(), contents(hidden), dict(vars(builtins))
    try:
        unittest.TestLoader().discover(hidden, pattern, hidden).run(results)
    except BaseException as error:  # also SystemExit, of a module that is imported
        results.failed.append(f"{type(error).__name__}: {error}")
    results.failed += [f"{name} was changed" for name in ours if builtins.__dict__.get(name) is not ours[name]]
    builtins.__dict__.update(ours)  # what follows needs them
    results.failed += [f"{name} was changed" for name in changed(before, judges())]
    results.failed += [f"{name} was changed" for name in files if contents(hidden).get(name) != files[name]]
    return results


def main() -> None:
    with open(sys.argv.pop()) as file:
        spec = json.load(file)
        os.unlink(file.name)
    library = list(sys.path)
    site.main()
    others = [path for path in sys.path if path not in library]
    sys.path[:] = [spec["hidden"], *library, spec["work"], *others]
    sys.dont_write_bytecode = True
    say, leave, in_words = os.write, os._exit, json.dumps  # as they are now
    found = judged(spec["hidden"], spec["pattern"])
    shown = in_words([text[:SAID_CHARS] for text in found.failed[:FAILURES_MAX]])
    # The counts last: of two values of one name the last one counts.
    counts = f'"passed": {found.passed:d}, "failed": {len(found.failed):d}, "excused": {found.excused:d}'
    say(1, f'\n{spec["secret"]} {{"failures": {shown}, {counts}}}\n'.encode())
    leave(0)  # what the agent's code left to be done at the end is not done


if __name__ == "__main__":
    main()
