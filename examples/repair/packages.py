"""Generated packages: small real Python modules with their tests, and one fault planted in them.

    seed ──▶ level ──▶ modules ──▶ functions, names ──▶ tests computed from the right code ──▶ one fault

`make_package` is a pure function of the seed. A package belongs to the training or to the held-out split by a digest of
its modules as the agent finds them (`split_of`), so no seed and no faulty source can ever be in both, not even with
different tests.
"""

import hashlib
import re
from dataclasses import dataclass
from random import Random

from examples.repair.functions import IMPORTS, MODULES, NAMES, Fault, Function

TEST_FILE = "test_all.py"
"""The one test module; it must be unchanged for an attempt to count."""

HELDOUT_SHARE = 0.25
"""Share of all packages, by digest, that training never sees."""

IMPORT_SHARE = 0.12
"""Share of packages whose fault is a broken import."""

LEVELS = {1: (1, 2), 2: (2, 2), 3: (3, 3)}
"""Level → (number of modules, functions in each)."""

TOP = "top"
"""Names the part of a module that comes before its functions."""

CASES_PER_TEST = 2
_DRAWS_MAX = 50
"""How often arguments are drawn anew until the planted fault shows."""


@dataclass(frozen=True)
class Package:
    """A package with its one fault.

    `files` maps paths to text as the agent finds them; `solution` is the right text of `fault_path`. The repair is: in
    the body of function `fault_name` of `fault_path` (`TOP`: in what comes before the functions) replace the first `wrong`
    by `right`.
    """

    seed: int
    level: int
    kind: str
    files: dict[str, str]
    solution: str
    fault_path: str
    fault_name: str
    wrong: str
    right: str

    @property
    def digest(self) -> str:
        return digest_of(self.files)


def digest_of(files: dict[str, str]) -> str:
    """sha256 over paths and texts, in order of path."""
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(f"{path}\0{len(files[path])}\0{files[path]}".encode())
    return whole.hexdigest()


def split_of(package: Package) -> str:
    """`train` or `heldout`, decided by the text of the package's modules alone."""
    modules = {path: text for path, text in package.files.items() if path != TEST_FILE}
    return "heldout" if int(digest_of(modules)[:8], 16) < HELDOUT_SHARE * 2**32 else "train"


def make_package(seed: int) -> Package:
    """The package of this seed. Its tests fail as it is, and pass after the one repair."""
    rng = Random(f"repair/{seed}")
    level = rng.choice(sorted(LEVELS))
    module_count, function_count = LEVELS[level]
    names = {placeholder: rng.choice(choices) for placeholder, choices in NAMES.items()}
    modules = {
        name: [_named(function, names) for function in rng.sample(MODULES[name], function_count)]
        for name in rng.sample(sorted(MODULES), module_count)
    }
    fault_module = rng.choice(sorted(modules))
    heads = {name: "" for name in modules}
    if rng.random() < IMPORT_SHARE:
        head, right, wrong, source, arguments = rng.choice(IMPORTS)
        lines = tuple(source.split("\n"))
        importer = Function(lines[0][4 : lines[0].index("(")], lines, (), arguments)
        modules[fault_module][rng.randrange(function_count)] = importer
        heads[fault_module] = head
        faulty, fault = importer, Fault("import", 0, right, wrong)
    else:
        faulty = rng.choice(modules[fault_module])
        fault = rng.choice(faulty.faults)
    tests = _tests(modules, heads, faulty, fault, rng)
    files = {f"{name}.py": _module_text(heads[name], functions) for name, functions in modules.items()}
    fault_path = f"{fault_module}.py"
    solution = files[fault_path]
    files[fault_path] = _with_fault(solution, faulty, fault)
    files[TEST_FILE] = tests
    name = TOP if fault.kind == "import" else faulty.name
    return Package(seed, level, fault.kind, files, solution, fault_path, name, fault.wrong, fault.right)


def _named(function: Function, names: dict[str, str]) -> Function:
    """The function with its placeholders filled in."""

    def fill(text: str) -> str:
        for placeholder, name in names.items():
            text = text.replace("{" + placeholder + "}", name)
        return text

    faults = tuple(Fault(f.kind, f.line, fill(f.right), fill(f.wrong)) for f in function.faults)
    return Function(function.name, tuple(map(fill, function.lines)), faults, function.arguments)


def _module_text(head: str, functions: list[Function]) -> str:
    blocks = ([head] if head else []) + ["\n".join(f.lines) for f in functions]
    return "\n\n".join(blocks) + "\n"


def _with_fault(text: str, faulty: Function, fault: Fault) -> str:
    lines = text.split("\n")
    at = 0 if fault.kind == "import" else lines.index(faulty.lines[0]) + fault.line
    lines[at] = lines[at].replace(fault.right, fault.wrong, 1)
    return "\n".join(lines)


def body_of(text: str, name: str) -> tuple[int, int]:
    """Start and end, in characters of the module's text, of the body of function `name` or of its TOP.

    Raises KeyError where there is no such function.
    """
    starts = [
        (m.group(1), m.start(), m.end()) for m in re.finditer(r"^def ([A-Za-z_0-9]+)[^\n]*\n", text, re.MULTILINE)
    ]
    if name == TOP:
        return 0, starts[0][1] if starts else len(text)
    for index, (found, _, start) in enumerate(starts):
        if found == name:
            return start, starts[index + 1][1] if index + 1 < len(starts) else len(text)
    raise KeyError(name)


def _tests(
    modules: dict[str, list[Function]], heads: dict[str, str], faulty: Function, fault: Fault, rng: Random
) -> str:
    """A unittest module with one class for each module and one method for each function."""
    blocks = ["import unittest\n\n" + "\n".join(f"import {name}" for name in sorted(modules))]
    for name, functions in modules.items():
        methods = []
        for function in functions:
            cases = _cases(heads[name], function, fault if function is faulty else None, rng)
            checks = [f"        self.assertEqual({name}.{call}, {expected})" for call, expected in cases]
            methods.append(f"    def test_{function.name}(self):\n" + "\n".join(checks))
        blocks.append(f"class {name.capitalize()}(unittest.TestCase):\n" + "\n\n".join(methods))
    return "\n\n\n".join(blocks) + "\n"


def _cases(head: str, function: Function, fault: Fault | None, rng: Random) -> list[tuple[str, str]]:
    """(call, expected value) as source text; with a fault in the function at least one case shows it."""
    right = _load(head, function.lines, function.name)
    wrong = None
    if fault is not None and fault.kind != "import":
        lines = list(function.lines)
        lines[fault.line] = lines[fault.line].replace(fault.right, fault.wrong, 1)
        wrong = _load(head, tuple(lines), function.name)
    for _ in range(_DRAWS_MAX):
        draws = [function.arguments(rng) for _ in range(CASES_PER_TEST)]
        if wrong is None or any(_differs(right, wrong, arguments) for arguments in draws):
            break
    else:
        raise ValueError(f"no arguments of {function.name} show the fault {fault}")
    return [(f"{function.name}({', '.join(map(repr, args))})", repr(right(*args))) for args in draws]


def _load(head: str, lines: tuple[str, ...], name: str):
    scope: dict = {}
    exec(head + "\n" + "\n".join(lines), scope)  # our own text above, never an agent's
    return scope[name]


def _differs(right, wrong, arguments: tuple) -> bool:
    try:
        return right(*arguments) != wrong(*arguments)
    except Exception:  # a fault may as well raise
        return True
