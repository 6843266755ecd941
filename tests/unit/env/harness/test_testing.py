"""Hidden tests over what an agent left: nothing that it leaves passes for a pass (B4)."""

import importlib.util
import sys
from select import PIPE_BUF

import pytest

from gyre.env.harness import Exit
from gyre.env.harness.sandbox import Bounds, Subprocess
from gyre.env.harness.testing import JUDGE, heard, run_tests
from tests.support import ROOT
from tests.unit.env.harness.test_harness_environment import drive, say

HIDDEN = ROOT / "examples" / "harness" / "tests"
SUM = "def total(prices, discount_percent=0):\n    return sum(prices) * (100 - discount_percent) // 100\n"
WRONG = SUM.replace("100 -", "100 +")
SKIPPING = SUM.replace("    return", "    if discount_percent:\n        raise unittest.SkipTest('no')\n    return")
REWRITING = "import pathlib\nfor path in pathlib.Path.cwd().parent.rglob('test*.py'):\n    path.write_text('')\n"
READING = """import pathlib, re
def total(*asked):
    texts = [path.read_text() for path in pathlib.Path.cwd().parent.rglob('test*.py')]
    return int(re.search(re.escape(f"({', '.join(map(repr, asked))}), ") + "([0-9]+)", texts[0])[1])
"""
WALKING = """import sys
def total(*args):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if hasattr(value, "addFailure"):
                value.failed, value.addFailure, value.addError = [], print, print
        frame = frame.f_back
    return 350
"""
LOOKING = """import os
try:
    open(f"/proc/{os.getppid()}/mem", "rb").close()
except PermissionError:
    def total(prices, discount_percent=0):
        return sum(prices) * (100 - discount_percent) // 100
"""
RIGHT = {"calc.py": SUM}
DECEITS = {
    "library-shadowed": {"unittest.py": "import sys; sys.exit(0)", "calc.py": WRONG},
    "library-as-package": {"unittest/__init__.py": "", "unittest/__main__.py": "", "calc.py": WRONG},
    "site": {"sitecustomize.py": "import os; os._exit(0)", "usercustomize.py": "import os; os._exit(0)", "calc.py": WRONG},
    "what-the-library-imports": {"difflib.py": "import os; os._exit(0)", "calc.py": WRONG},
    "tests-of-its-own": {"test_calc.py": "", "calc.py": WRONG},
    "exit-at-import": {"calc.py": "import os; os._exit(0)"},
    "exit-by-exception": {"calc.py": "raise SystemExit(0)"},
    "exit-at-the-end": {"calc.py": f"import atexit, os; atexit.register(os._exit, 0)\n{WRONG}"},
    "exit-in-the-call": {"calc.py": "import os\ndef total(*args):\n    os._exit(0)"},
    "skipped-at-import": {"calc.py": "import unittest; raise unittest.SkipTest('no')"},
    "skipped-in-the-call": {"calc.py": "import unittest\ndef total(*args):\n    raise unittest.SkipTest('no')"},
    "one-skipped": {"calc.py": f"import unittest\n{SKIPPING}"},
    "assertions-gone": {"calc.py": f"import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n{WRONG}"},
    "results-gone": {"calc.py": f"import __main__\n__main__.Results.addFailure = lambda *a: None\n{WRONG}"},
    "builtins-gone": {"calc.py": f"import builtins\nbuiltins.len = lambda x: 0\n{WRONG}"},
    "report-forged": {"calc.py": 'import os\nos.write(1, b\'\\njudge {"passed": 9}\\n\'); os._exit(0)'},
    "tests-rewritten": {"calc.py": REWRITING + WRONG},
    "tests-read": {"calc.py": READING},
    "words-gone": {"calc.py": f"import json\njson.dumps = lambda *a, **k: '[], \"passed\": 9, \"failed\": 0'\n{WRONG}"},
    "encoder-gone": {"calc.py": f"import json\njson.JSONEncoder.encode = lambda *a: '[], \"passed\": 9, \"failed\": 0'\n{WRONG}"},
    "encoder-ends-it": {"calc.py": f"import json\njson.JSONEncoder.encode = lambda *a: '[], \"passed\": 9, \"failed\": 0}}'\n{WRONG}"},
    "encoder-ends-the-line": {"calc.py": f"import json\njson.JSONEncoder.encode = lambda *a: '[], \"passed\": 9, \"failed\": 0}}\\n'\n{WRONG}"},
    "tests-replaced": {"calc.py": "import sys\ndef total(*args):\n    sys.modules['test_calc'].Total = None\n    return 350"},
    "tests-marked": {"calc.py": f"import sys\nfor m in list(sys.modules.values()):\n    m.__unittest_skip__ = True\n{WRONG}"},
    "tests-loaded": {"calc.py": f"import sys, unittest\nfor m in list(sys.modules.values()):\n    m.load_tests = unittest.TestSuite\n{WRONG}"},
    "tests-faked": {"calc.py": f"import sys, types\nsys.modules['test_calc'] = types.ModuleType('test_calc')\n{WRONG}"},
    "frames-walked": {"calc.py": WALKING},
    "equal-to-all": {"calc.py": "class Yes(int):\n    __eq__ = lambda *a: True\n    __hash__ = int.__hash__\ndef total(*a):\n    return Yes(0)"},
    "equal-by-a-base": {"calc.py": "class int(int):\n    __eq__ = lambda *a: True\ndef total(*a):\n    return int(0)"},
    "answers-forged": {"calc.py": "import os, threading\nfor fd in range(3, 9):\n    try: os.write(fd, b'{\"value\": true, \"passed\": 2}\\n' * 99)\n"
                       f"    except OSError: pass\n{WRONG}"},
    "judge-ended": {"calc.py": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"},
    "nothing": {},
}  # fmt: skip


def judge_module():
    """The judge's script, as a module."""
    sys.path.insert(0, str(JUDGE))
    try:
        spec = importlib.util.spec_from_file_location("judge_script", JUDGE / "__main__.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(JUDGE))
        del sys.modules["apart"]


async def found(files: dict[str, str], hidden=HIDDEN, **bounds):
    sandbox = Subprocess()
    try:
        for name, text in files.items():
            place = sandbox.work / name
            place.parent.mkdir(exist_ok=True)
            place.write_text(text)
        limits = Bounds(wall_s=60.0, output_bytes=2**20, **bounds)
        return await run_tests(sandbox, hidden, "test*.py", {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, limits)
    finally:
        sandbox.close()


async def test_what_is_right_passes_and_what_is_wrong_is_named():
    right, wrong = await found(RIGHT), await found({"calc.py": WRONG})
    assert right.all_passed and (right.passed, right.failed, right.exit.code) == (2, 0, 0), right
    assert (wrong.all_passed, wrong.passed, wrong.failed) == (False, 1, 1)
    assert "test_a_discount_makes_it_less" in wrong.failures[0] and "420" in wrong.failures[0]


@pytest.mark.parametrize("deceit", DECEITS)
async def test_what_it_leaves_does_not_decide_what_passed(deceit):
    said = await found(DECEITS[deceit])
    assert not said.all_passed, said


@pytest.mark.parametrize("deceit", ["library-shadowed", "library-as-package", "site", "what-the-library-imports"])
async def test_names_of_the_librarys_modules_do_no_harm_to_work_that_is_right(deceit):
    assert (await found(DECEITS[deceit] | RIGHT)).all_passed


async def test_the_judges_memory_is_closed_to_what_it_judges():
    """Also to root's: who could look there would find the secret and the tests."""
    assert (await found({"calc.py": LOOKING})).all_passed
    started = """import subprocess, sys, unittest
class T(unittest.TestCase):
    def test_it(self): subprocess.run([sys.executable, "calc.py"], check=True)
"""
    assert (await found({"calc.py": LOOKING + "total([1])\n"}, {"test_it.py": started})).all_passed


async def test_no_name_of_the_tests_is_given_another_meaning():
    """Neither that of an installed package nor, by `import *`, that of anything else."""
    tests = """import unittest
import msgspec
from calc import *
class T(unittest.TestCase):
    def test_it(self): self.assertEqual(len(msgspec.json.decode("[1]")), 1)
"""
    assert (await found({"calc.py": "__all__ = ['len']\ndef len(x): return 2\n"}, {"test_it.py": tests})).all_passed
    for name in ("msgspec.py", "msgspec/__init__.py"):
        said = await found({"calc.py": "", name: ""}, {"test_it.py": tests})
        assert not said.all_passed and "msgspec is installed, and among what was left too" in said.failures[0]
    assert (await found({"calc.py": "", "msgspec/data": ""}, {"test_it.py": tests})).all_passed  # no module


async def test_however_long_the_failures_the_line_goes_out_at_once():
    """A pipe takes so much whole; of a longer line a part could be overwritten by what was left."""
    judge = judge_module()
    results = judge.Results()
    results.failed = ["\U0001f600" * 1000] * 9
    line = judge.line_of(results, "secret")
    said = heard(Exit(how="exited", tail=line.decode()), "secret")
    assert len(line) <= PIPE_BUF and (said.passed, said.failed, len(said.failures)) == (0, 9, 1)


async def test_threads_of_a_test_may_ask_together():
    tests = """import unittest, calc
from concurrent.futures import ThreadPoolExecutor
class T(unittest.TestCase):
    def test_it(self):
        with ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(calc.twice, range(200))), [2 * i for i in range(200)])
"""
    assert (await found({"calc.py": "def twice(x): return 2 * x\n"}, {"test_it.py": tests})).all_passed


async def test_what_is_plain_comes_across_as_it_is():
    """Types, constants, exceptions, packages, text that is printed, code that ends."""
    tests = """import os, unittest
import pkg, pkg.deep
from pkg import echo, Shape
from pkg.deep import twice
class Echo(unittest.TestCase):
    def test_values(self):
        for value in (None, True, 3, 2.5, "\\ud800é", b"\\0a", [1, (2, {3})], frozenset({"a"}), {(1, "2"): [None]}):
            self.assertEqual(repr(echo(value)), repr(value))
        self.assertEqual((pkg.LIMIT, pkg.deep.LIMIT, twice(x=4), Shape.sides("cube"), pkg.deep.twice(2)), (7, 8, 8, 6, 4))
    def test_raised(self):
        self.assertRaisesRegex(KeyError, "gone", pkg.raises)
        with self.assertRaises(AttributeError):
            pkg.nothing
    def test_state_is_kept_until_it_ends(self):
        self.assertEqual([pkg.count(), pkg.count()], [1, 2])
"""
    work = {"pkg/__init__.py": """from . import deep
LIMIT, counted = 7, []
class Own(KeyError): pass
class Shape:
    sides = staticmethod(lambda name: len(name) + 2)
def echo(value):
    print(value.__class__)
    return value
def raises(): raise Own("gone")
def count():
    counted.append(1)
    return len(counted)
""", "pkg/deep.py": "LIMIT = 8\ntwice = lambda x: 2 * x\n"}  # fmt: skip
    said = await found(work, {"test_echo.py": tests})
    assert said.all_passed and said.passed == 3, said


async def test_what_is_not_plain_is_told_and_cannot_be_expected():
    """No test passes because what it was given could not be carried across."""
    tests = """import calc, unittest
class T(unittest.TestCase):
    def test_given(self):
        self.assertRaises(Exception, calc.total, object())
    def test_returned(self):
        self.assertRaises(Exception, calc.total)
    def test_ended(self):
        self.assertRaises(Exception, calc.leave)
    def test_then(self):
        self.assertEqual(calc.right(), 1)
"""
    code = "import os\ntotal = object\ndef leave(): os._exit(0)\ndef right(): return 1\n"
    said = await found({"calc.py": code}, {"test_calc.py": tests})
    assert (said.passed, said.failed) == (1, 3), said
    assert sum("object is no plain value" in text for text in said.failures) == 2


async def test_objects_are_looked_at_beside_the_work():
    """What needs the agent's classes runs with them and says plainly what it saw."""
    hidden = {
        "beside/drive.py": "import shapes\ndef area(side):\n    return shapes.Square(side).area()\n",
        "test_area.py": "import drive, unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(drive.area(3), 9)\n",
    }
    shapes = (
        "class Square:\n    def __init__(self, side): self.side = side\n    def area(self): return self.side {} 2\n"
    )
    own = {"drive.py": "def area(side): return 9"}  # what the agent left in its place does not stand
    assert (await found({"shapes.py": shapes.format("**")}, hidden)).all_passed
    assert not (await found({"shapes.py": shapes.format("*")} | own, hidden)).all_passed


async def test_marks_that_stand_on_a_test_excuse_it_and_files_beside_the_work_are_found():
    tests = """import unittest
class Data(unittest.TestCase):
    def test_read(self):
        self.assertEqual(open("data").read(), "x")
    @unittest.skip("elsewhere")
    def test_skipped(self):
        pass
    @unittest.expectedFailure
    def test_fails(self):
        self.fail()
"""
    said = await found({"data": "x"}, {"deep/__init__.py": "", "deep/test_data.py": tests})
    assert said.all_passed and (said.passed, said.excused) == (1, 2), said


async def test_a_line_without_the_secret_is_not_heard():
    forged = Exit(how="exited", tail='\nother {"passed": 3}\n {"passed": 3}\n{"passed": 3}\n')
    assert heard(forged, "secret").passed == 0
    true = Exit(
        how="exited", tail=forged.tail + 'secret {"passed": 3, "failed": 0, "excused": 0, "failures": []}\nmore'
    )
    assert heard(true, "secret").all_passed and "secret" not in heard(true, "secret").exit.tail


async def test_a_check_takes_no_module_of_the_agents_for_one_of_pythons():
    """A command of the author's own, which is judged by its exit code."""
    _, environment, _ = await drive(say("do echo 'raise SystemExit(0)' > unittest.py", "Done."))
    done = await environment.check(["{python}", "-m", "unittest", "discover"], {"test_it.py": "raise ValueError"})
    assert done.code != 0 and "ValueError" in done.tail
    environment.close()


async def test_a_line_that_the_judged_code_broke_is_not_heard():
    for said in ("[]", "nothing", '{"passed": "many"}', '{"passed": 9'):
        assert not heard(Exit(how="exited", tail=f"\nsecret {said}\n"), "secret").all_passed
