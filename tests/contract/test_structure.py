"""The shape of the repository (E): who imports whom, what cores may touch, where subjects are spelled, which settings are documented."""

import ast
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gyre.config import Config, field_docs

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("scheduler", "rollout", "trainer", "trajproc", "ledger")
FORBIDDEN_IN_CORES = {
    "grpc",
    "nats",
    "asyncio",
    "time",
    "random",
    "torch",
    "socket",
    "subprocess",
    "aiohttp",
}
CLOCK_CALLS = {"now", "utcnow", "today"}


def imports_of(file: Path) -> set[str]:
    """Dotted names of everything the file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_services_never_import_each_other(service):
    others = {f"services.{other}" for other in SERVICES if other != service}
    for file in (ROOT / "services" / service).rglob("*.py"):
        wrong = {name for name in imports_of(file) if any(name == o or name.startswith(o + ".") for o in others)}
        assert not wrong, f"{file.relative_to(ROOT)} imports {wrong}"


def test_gyre_never_imports_services_and_no_module_imports_tests():
    for folder, forbidden in (("gyre", ("services", "tests", "examples")), ("services", ("tests", "examples"))):
        for file in (ROOT / folder).rglob("*.py"):
            wrong = {name for name in imports_of(file) if name.split(".")[0] in forbidden}
            assert not wrong, f"{file.relative_to(ROOT)} imports {wrong}"


def core_files() -> list[Path]:
    return [file for service in SERVICES for file in (ROOT / "services" / service / "core").rglob("*.py")]


def test_cores_are_pure():
    """No clock, no chance, no network, no tensors: the same input gives the same decision in production, replay and tests."""
    files = core_files()
    assert files
    for file in files:
        wrong = {name for name in imports_of(file) if name.split(".")[0] in FORBIDDEN_IN_CORES}
        assert not wrong, f"{file.relative_to(ROOT)} imports {wrong}"
        for node in ast.walk(ast.parse(file.read_text())):
            is_clock = isinstance(node, ast.Attribute) and node.attr in CLOCK_CALLS
            assert not (is_clock and "datetime" in ast.unparse(node.value)), f"{file.relative_to(ROOT)} reads the clock"


def test_only_the_bus_spells_a_subject():
    for folder in ("gyre", "services", "examples"):
        for file in (ROOT / folder).rglob("*.py"):
            if ROOT / "gyre" / "bus" in file.parents:
                continue
            strings = [
                n.value
                for n in ast.walk(ast.parse(file.read_text()))
                if isinstance(n, ast.Constant) and isinstance(n.value, str)
            ]
            docs = {ast.get_docstring(ast.parse(file.read_text())) or ""}
            wrong = [text for text in strings if "gyre.v1" in text and text.strip() not in {d.strip() for d in docs}]
            assert not wrong, f"{file.relative_to(ROOT)} spells {wrong}"


def test_nobody_waits_in_a_way_that_forgets_a_cancellation():
    """`asyncio.wait_for` of Python 3.11 drops a cancellation that comes with its result (gyre.tasks); `asyncio.timeout` does not."""
    for folder in ("gyre", "services", "examples"):
        for file in (ROOT / folder).rglob("*.py"):
            used = [n.lineno for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Attribute) and n.attr == "wait_for"
                    and isinstance(n.value, ast.Name) and n.value.id == "asyncio"]  # fmt: skip
            assert not used, f"{file.relative_to(ROOT)} waits with asyncio.wait_for in lines {used}"


@pytest.mark.parametrize("module", ["scheduler", "trajproc", "ledger", "rollout"])
def test_the_control_plane_starts_without_torch(module):
    code = f"import sys, runpy; sys.argv = ['x']; import services.{module}.__main__; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.stdout.strip() == "False", done.stderr[-2000:]


def sections() -> list[type]:
    found, todo = [], [Config]
    while todo:
        section = todo.pop()
        found.append(section)
        for field in msgspec.structs.fields(section):
            kinds = [field.type, *getattr(field.type, "__args__", ())]
            todo += [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    return found


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.__name__)
def test_every_setting_is_documented(section):
    missing = {field.name for field in msgspec.structs.fields(section)} - {
        name for name, text in field_docs(section).items() if text.strip()
    }
    assert not missing
