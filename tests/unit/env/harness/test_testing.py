"""Hidden tests over what an agent left: nothing that it leaves passes for a pass (B4)."""

import pytest

from gyre.env.harness import Exit
from gyre.env.harness.sandbox import Bounds, Subprocess
from gyre.env.harness.testing import heard, run_tests
from tests.support import ROOT
from tests.unit.env.harness.test_harness_environment import drive, say

HIDDEN = ROOT / "examples" / "harness" / "tests"
SUM = "def total(prices, discount_percent=0):\n    return sum(prices) * (100 - discount_percent) // 100\n"
WRONG = SUM.replace("100 -", "100 +")
SKIPPING = SUM.replace("    return", "    if discount_percent:\n        raise unittest.SkipTest('no')\n    return")
REWRITING = "import glob, sys\nfor name in glob.glob(sys.path[0] + '/*.py'):\n    open(name, 'w').close()\n"
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
    "tests-rewritten": {"calc.py": REWRITING + SUM},
    "words-gone": {"calc.py": f"import json\njson.dumps = lambda *a, **k: '[], \"passed\": 9, \"failed\": 0'\n{WRONG}"},
    "encoder-gone": {"calc.py": f"import json\njson.JSONEncoder.encode = lambda *a: '[], \"passed\": 9, \"failed\": 0'\n{WRONG}"},
    "encoder-ends-it": {"calc.py": f"import json\njson.JSONEncoder.encode = lambda *a: '[], \"passed\": 9, \"failed\": 0}}'\n{WRONG}"},
    "nothing": {},
}  # fmt: skip


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
