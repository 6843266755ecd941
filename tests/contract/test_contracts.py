"""proto/ and what is generated from it; commands that the documentation names."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gyre.cli.main import COMMANDS, gyre

ROOT = Path(__file__).resolve().parents[2]


def test_protos_pass_buf_lint():
    buf = Path(sys.executable).parent / "buf"
    done = subprocess.run(
        [str(buf) if buf.exists() else shutil.which("buf"), "lint"], cwd=ROOT / "proto", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_generated_code_is_current():
    done = subprocess.run([sys.executable, "tools/gen_protos.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_commands_in_the_documentation_exist(document):
    """`gyre X` must be a command, `make X` a target, and a named path a file."""
    text = document.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    fenced = re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL)
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    code = "\n".join([*fenced, *re.findall(r"`([^`\n]+)`", plain)])
    assert set(re.findall(r"\bgyre ([a-z-]+)\b", code)) <= set(COMMANDS)
    assert set(re.findall(r"\bmake ([a-z-]+)", code)) <= targets
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (document.parent / link).exists(), f"{document.name} links to {link}"


def test_the_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert "make train" in text and "make test" in text


def test_the_makefile_and_the_check_run_the_tests():
    makefile, check = (ROOT / "Makefile").read_text(), (ROOT / ".ci" / "run").read_text()
    assert "gyre train examples/repair/train.toml" in makefile
    assert "make test\n" in check and "set -euo pipefail" in check


def test_constraints_resolve_for_a_newcomer():
    """Exact public versions only: no paths, no local version labels."""
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*", line), line


def test_every_subcommand_has_a_json_form():
    for name in COMMANDS:
        arguments = [name, *{"config": ["check"], "executions": ["void"]}.get(name, []), "--help"]
        assert "--json" in CliRunner().invoke(gyre, arguments).output
