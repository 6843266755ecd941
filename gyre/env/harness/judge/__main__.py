"""Hidden unittest tests over what an agent left: `python -I -S judge SPEC` (started by ../testing.py; standard library only).

    SPEC ──read, removed──▶ hidden tests, from memory ──▶ loaded, run, counted here ──▶ `SECRET {"passed": …}` on stdout
                                    │ import calc: a stand-in (apart.py)
                                    └──▶ another process, which alone imports what the agent left ──▶ plain values

Nothing that the agent left is imported here, so none of it can change a test, a count or what is told. Nor does it see the tests: they are on no disk
when its code first runs, and no rights that it has reach into this process's memory. It can answer wrongly, which is what the tests are for, or kill
this process, which then has said nothing.
"""

import ctypes
import fnmatch
import json
import os
import site
import subprocess
import sys
import unittest
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from select import PIPE_BUF
from typing import BinaryIO

import apart

SAID_CHARS = 300
FAILURES_MAX = 5
PR_SET_DUMPABLE, PR_CAPBSET_DROP = 4, 24
CAPABILITIES_MAX = 64

prctl = ctypes.CDLL(None).prctl


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
        if getattr(type(test), "__unittest_skip__", False) or getattr(method, "__unittest_skip__", False):
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


class Hidden(MetaPathFinder, InspectLoader):
    """The tests' modules, path → text; they believe that they lie in `folder`, where their other files are."""

    def __init__(self, folder: str, sources: dict[str, str]) -> None:
        self._folder, self._sources = folder, sources

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        stem = name.replace(".", "/")
        is_package = any(source.startswith(stem + "/") for source in self._sources)
        if not is_package and f"{stem}.py" not in self._sources:
            return None
        place = os.path.join(self._folder, stem)
        origin, inside = (os.path.join(place, "__init__.py"), [place]) if is_package else (place + ".py", None)
        return spec_from_file_location(name, origin, loader=self, submodule_search_locations=inside)

    def get_source(self, name: str) -> str:
        stem = name.replace(".", "/")
        return self._sources.get(f"{stem}/__init__.py", self._sources.get(f"{stem}.py", ""))


def suite_of(sources: dict[str, str], pattern: str, results: Results) -> unittest.TestSuite:
    """The tests of all modules whose file's name matches; one that cannot be loaded has failed."""
    suite = unittest.TestSuite()
    for path in sorted(sources):
        if fnmatch.fnmatch(os.path.basename(path), pattern):
            name = path.removesuffix(".py").replace("/", ".")
            try:
                suite.addTest(unittest.defaultTestLoader.loadTestsFromModule(import_module(name)))
            except BaseException as error:
                results.failed.append(f"{name}: {type(error).__name__}: {error}")
    return suite


def started() -> tuple[BinaryIO, BinaryIO]:
    """Another process for what the agent left."""
    command = [sys.executable, "-I", "-S", apart.__file__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return process.stdin, process.stdout


def close_memory() -> None:
    """Whatever is started from here, also as root and also by a test, may not look into this process."""
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    for capability in range(CAPABILITIES_MAX):
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def judged(spec: dict) -> Results:
    results, library = Results(), [path for path in sys.path if path != os.path.dirname(__file__)]
    sys.path[:] = list(library)
    site.main()
    others = [path for path in sys.path if path not in library]
    stand_ins = apart.StandIns(apart.Work(started), os.getcwd(), library, others)
    at = sys.meta_path.index(PathFinder)
    sys.meta_path[at:at] = [Hidden(spec["hidden"], spec["sources"]), stand_ins]
    del sys.modules["apart"]  # the name is free
    try:
        suite_of(spec["sources"], spec["pattern"], results).run(results)
    except BaseException as error:  # KeyboardInterrupt, which unittest lets through
        results.failed.append(f"{type(error).__name__}: {error}")
    return results


def line_of(found: Results, secret: str) -> bytes:
    """In words, as many as go out at once: whatever else writes to this pipe cannot come between."""
    counts = {"passed": found.passed, "failed": len(found.failed), "excused": found.excused}
    for shown in range(FAILURES_MAX, -1, -1):
        told = counts | {"failures": [text[:SAID_CHARS] for text in found.failed[:shown]]}
        line = f"\n{secret} {json.dumps(told)}\n".encode()
        if len(line) <= PIPE_BUF:
            break
    return line


def main() -> None:
    close_memory()
    with open(sys.argv.pop()) as file:
        spec = json.load(file)
        os.unlink(file.name)
    sys.dont_write_bytecode = True
    found = judged(spec)
    os.write(1, line_of(found, spec["secret"]))
    os._exit(0)


if __name__ == "__main__":
    main()
