"""What code under test may do to the sandbox: anything, to no effect."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from examples.repair.sandbox import Report, Sandbox
from tests.support import until_gone

HEADER = "import os, sys, time, shutil, unittest\nclass Case(unittest.TestCase):\n    def test_it(self):\n        "


def suite(body: str) -> dict[str, str]:
    return {"test_all.py": HEADER + body + "\n"}


@contextlib.contextmanager
def wall(sandbox: Sandbox, wall_s: float):
    """Its runs have this wall clock: a short one, so that a test of a time-out is short, or one that no busy machine uses up."""
    before = sandbox.limits
    sandbox.limits = replace(before, wall_s=wall_s)
    yield
    sandbox.limits = before


def test_a_report_follows_from_the_files_alone():
    """Same seed, same samples (E): what the agent reads holds no address, no directory and no order that differs from run to run."""
    body = (
        "words = set('one two three four five six seven'.split())\n"
        "        self.assertEqual((object(), words, __file__), 0)"
    )
    files, reports = {**suite(body), "broken.py": "from test_all import nothing"}, []
    for _ in range(2):
        sandbox = Sandbox()  # a fork server of its own, as in another run
        reports.append((sandbox.run(files, "test_all"), sandbox.run(files, "broken")))
        sandbox.close()
    assert reports[0] == reports[1]
    assert reports[0][1].error == "broken.py:1: ImportError: cannot import name 'nothing' from 'test_all' (test_all.py)"


def test_an_endless_loop_runs_out_of_time_by_its_own_clock_first(sandbox):
    """Same seed, same samples (E): CPU time and wall clock are told in the same words, and CPU time does not depend on other processes."""
    files = suite("while True: pass")
    with wall(sandbox, 600.0):
        assert sandbox.run(files, "test_all") == Report("timeout")
    runs = sandbox.runs
    assert sandbox.run(files, "test_all") == Report("timeout") and sandbox.runs == runs, (
        "known of these files: not run again"
    )


def test_passing_and_failing_tests_are_told_apart(sandbox):
    assert sandbox.run(suite("self.assertEqual(1, 1)"), "test_all") == Report("ok", passed=("case.it",))
    failed = sandbox.run(suite("self.assertEqual(1, 2)"), "test_all")
    assert failed.failed == (("case.it", "1 != 2"),) and not failed.all_passed


def test_a_suite_without_any_test_has_not_passed(sandbox):
    """D5: deleting all tests is no success."""
    assert not sandbox.run({"test_all.py": ""}, "test_all").all_passed


def test_a_module_that_cannot_be_imported_names_the_place(sandbox):
    report = sandbox.run({"a.py": "\nimport nowhere", "test_all.py": "import a"}, "test_all")
    assert (report.status, report.error) == ("import_error", "a.py:2: ModuleNotFoundError: No module named 'nowhere'")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("while True: pass", "timeout"),
        ("time.sleep(600)", "timeout"),
        ("print('x' * 10**8)", "output"),
        ("os._exit(0)", "crash"),
        ("os.kill(os.getpid(), 9)", "crash"),
        ("os.fork() or (os.setsid(), os.fork(), time.sleep(600)); time.sleep(600)", "timeout"),
    ],
)
def test_a_run_that_breaks_out_ends_soon_and_never_passes(sandbox, body, status):
    """B4: bad code is a fact about the attempt, not a failure of the evaluation."""
    with wall(sandbox, 2.0 if status == "timeout" else sandbox.limits.wall_s):
        assert sandbox.run(suite(body), "test_all") == Report(status)
    assert sandbox.run(suite(f"len({body!r})"), "test_all").all_passed  # and the next run is none the worse for it


FORGED = '{"imported": true, "rows": [["test_all.Case.test_it", true, ""]], "error": ""}'
WALK = """
    import sys
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if hasattr(value, "rows"):
                value.rows[:], value.addFailure = [["a.b.c", True, ""]], print
        frame = frame.f_back"""


@pytest.mark.parametrize(
    "deceit",
    [
        f"\n    import os\n    for fd in range(3, 64):\n        try: os.write(fd, b'{FORGED}\\n')\n        except OSError: pass\n    os._exit(0)",
        f"\n    import os\n    for fd in range(3, 64):\n        try: os.write(fd, b'{FORGED}\\n')\n        except OSError: pass\n    os._exit(7)",
        WALK,
        "\n    import unittest\n    unittest.TestCase.assertEqual = lambda *a: None",
        "\n    import sys\n    sys.modules['test_all'].Case.__unittest_skip__ = True",
        "\n    class Yes(int):\n        __eq__ = lambda *a: True\n    return Yes()",
        "\n    import unittest\n    raise unittest.SkipTest('no')",
        "\n    import os, signal\n    os.kill(os.getppid(), signal.SIGKILL)",
        "\n    import os\n    open(f'/proc/{os.getppid()}/mem', 'r+b').close()\n    return 42",
    ],
)
def test_the_package_forges_no_report(sandbox, deceit):
    """D5: what passed is said by a process in which nothing of the package runs."""
    tests = "import unittest, work\nclass Case(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(work.answer(), 42)\n"
    assert sandbox.run({"work.py": "def answer():\n    return 42", "test_all.py": tests}, "test_all").all_passed
    report = sandbox.run({"work.py": f"def answer():{deceit}", "test_all.py": tests}, "test_all")
    assert report.passed == () and not report.all_passed, report


@pytest.mark.parametrize(
    ("body", "status"),
    [("while True: pass", "timeout"), ("print('x' * 10**8)", "output"), ("import os; os._exit(0)", "crash")],
)
def test_a_package_that_breaks_out_ends_as_its_tests_would(sandbox, body, status):
    """B4: called or imported."""
    called = {"work.py": f"def answer():\n    {body}\n", **suite("import work; work.answer()")}
    assert sandbox.run(called, "test_all").status == status
    assert sandbox.run({"work.py": body, "test_all.py": "import work"}, "test_all").status == status


def test_an_error_of_the_package_is_told_as_it_was(sandbox):
    """As if tests and package were one process: the agent reads it."""
    files = {"work.py": "def answer():\n    return {}['a']\n", **suite("import work; work.answer()")}
    assert sandbox.run(files, "test_all").failed == (("case.it", "KeyError: 'a'"),)
    files = {"work.py": "def answer(:\n", "test_all.py": "import work"}
    assert sandbox.run(files, "test_all").error.startswith("work.py:1: SyntaxError: invalid syntax")


def test_eating_memory_is_a_failing_test(sandbox):
    report = sandbox.run(suite("x = bytearray(10**9)"), "test_all")  # over the limit of 256 MiB
    assert report.failed[0][1].startswith("MemoryError")


def test_writing_a_large_file_is_a_failing_test(sandbox):
    report = sandbox.run(
        suite("open('/dev/shm/big' if os.getuid() else '/tmp/big', 'w').write('x' * 10**7)"), "test_all"
    )
    assert not report.all_passed


def test_deleting_the_working_directory_harms_nothing(sandbox):
    files = suite("shutil.rmtree(os.getcwd(), ignore_errors=True)")
    sandbox.run(files, "test_all")
    assert sandbox.run(suite("self.assertTrue(True)"), "test_all").all_passed


def test_nothing_is_left_behind(sandbox):
    """No process of a run and no directory survives it."""
    with wall(sandbox, 2.0):
        sandbox.run(suite("os.fork() or os.setsid(); time.sleep(600)"), "test_all")
    assert [name for name in os.listdir(sandbox._scratch) if name.startswith("run-")] == []
    children = Path(f"/proc/{sandbox._server.pid}/task/{sandbox._server.pid}/children")
    until_gone(lambda: children.read_text().split())  # the warden answers first and exits right after


def test_a_dead_fork_server_is_started_again(sandbox):
    sandbox.run(suite("a = 1"), "test_all")
    sandbox._server.kill()
    assert sandbox.run(suite("a = 2"), "test_all").all_passed


def test_a_server_that_refuses_is_replaced_before_the_system_calls_it_dead(sandbox, monkeypatch):
    """Between a SIGKILL and the end of the process poll() still says that it lives, while its socket may be gone."""
    sandbox.run(suite("a = 3"), "test_all")
    dying = sandbox._server
    dying.kill()
    dying.wait()
    monkeypatch.setattr(dying, "poll", lambda: None)
    assert sandbox.run(suite("a = 4"), "test_all").all_passed and sandbox._server is not dying


def test_a_tree_is_tested_once(sandbox):
    files = suite("self.assertEqual(41 + 1, 42)")
    sandbox.run(files, "test_all")
    runs = sandbox.runs
    assert sandbox.run(files, "test_all").all_passed and sandbox.runs == runs


def test_threads_share_one_sandbox(sandbox):
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda i: sandbox.run(suite(f"self.assertEqual({i} % 2, 0)"), "test_all"), range(24)))
    assert [r.all_passed for r in reports] == [i % 2 == 0 for i in range(24)]
