"""The working tree of one attempt and the tools on it.

    tool call ──▶ Workspace.call(name, arguments) ──▶ (text, refused?)

A tool never raises for what the agent asked: bad names, bad arguments, paths that leave the tree and edits that do not fit
are refused with a message that says what would be right.
"""

import os
import re
import shutil
import stat
import tempfile
from dataclasses import dataclass
from typing import Any

from examples.repair.packages import TEST_FILE, TOP, body_of
from examples.repair.sandbox import Report, Sandbox

FILE_MAX_BYTES = 65_536
FAILURES_SHOWN_MAX = 2
MESSAGE_MAX_CHARS = 80
LINE_SHOWN_MAX_CHARS = 80

_TEST_MODULE = TEST_FILE.removesuffix(".py")

PARAMETERS: dict[str, dict[str, str]] = {
    "list_files": {},
    "read_file": {"path": "string"},
    "replace": {"path": "string", "name": "string", "old": "string", "new": "string"},
    "run_tests": {},
    "submit": {},
}
"""Tool → its parameters and their JSON types, all required."""

DESCRIPTIONS = {
    "list_files": "List the files.",
    "read_file": "Show a file.",
    "replace": f"In the body of function name ({TOP}: before the functions), replace the first old by new.",
    "run_tests": "Run the tests.",
    "submit": "Finish: the work is done.",
}


def tools() -> list[dict[str, Any]]:
    """The tools in OpenAI's function format."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": DESCRIPTIONS[name],
                "parameters": {
                    "type": "object",
                    "properties": {parameter: {"type": kind} for parameter, kind in parameters.items()},
                    "required": list(parameters),
                },
            },
        }
        for name, parameters in PARAMETERS.items()
    ]


@dataclass(frozen=True)
class Reply:
    text: str
    refused: bool = False


class Refusal(Exception):
    """What the agent asked for cannot be done; the text tells it why."""


class Workspace:
    """A package's files in a temporary directory, until `close`."""

    def __init__(self, files: dict[str, str], sandbox: Sandbox) -> None:
        self.opened: set[str] = set()
        """Files that were read successfully."""
        self._sandbox = sandbox
        self.tree = tempfile.mkdtemp(prefix="repair-")
        for path, text in files.items():
            with open(os.path.join(self.tree, path), "w") as file:
                file.write(text)

    def close(self) -> None:
        shutil.rmtree(self.tree, ignore_errors=True)

    def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        """Carry out a tool call; `submit` does nothing here."""
        try:
            checked = _checked(name, arguments)
            return Reply(getattr(self, f"_{name}")(**checked))
        except Refusal as refusal:
            return Reply(f"error: {refusal}", refused=True)

    def files(self) -> dict[str, str]:
        """Path → text of what the tree holds now."""
        return {path: self._read(path) for path in self._paths()}

    def test(self) -> Report:
        """Run the tests over the tree as it is; raises SandboxError if they could not be run."""
        return self._sandbox.run(self.files(), _TEST_MODULE)

    def _list_files(self) -> str:
        return "\n".join(self._paths())

    def _read_file(self, path: str) -> str:
        text = self._read(path)
        self.opened.add(path)
        return text.rstrip("\n")

    def _replace(self, path: str, name: str, old: str, new: str) -> str:
        text = self._read(path)
        try:
            start, end = body_of(text, name)
        except KeyError:
            raise Refusal(f"{path} has no function {name[:20]!r}") from None
        at = text.find(old, start, end)
        if not old or at < 0:
            raise Refusal(f"{name} does not hold {old[:20]!r}")
        text = text[:at] + new + text[at + len(old) :]
        if len(text.encode()) > FILE_MAX_BYTES:
            raise Refusal("the file would be too large")
        with open(os.path.join(self.tree, path), "w") as file:
            file.write(text)
        line_start = text.rfind("\n", 0, at) + 1
        return text[line_start : text.find("\n", at)].strip()[:LINE_SHOWN_MAX_CHARS]

    def _run_tests(self) -> str:
        return describe(self.test())

    def _submit(self) -> str:
        return "submitted"

    def _paths(self) -> list[str]:
        return sorted(entry.name for entry in os.scandir(self.tree) if entry.is_file(follow_symlinks=False))

    def _read(self, path: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_]+(\.[a-z]+)?", path):
            raise Refusal("paths are plain file names")
        try:
            fd = os.open(os.path.join(self.tree, path), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            raise Refusal(f"no file {path[:20]!r}") from None
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Refusal(f"{path} is not a file")
            return file.read(FILE_MAX_BYTES).decode(errors="replace")


def _checked(name: str, arguments: Any) -> dict[str, Any]:
    """The arguments, if they are exactly what the tool takes."""
    if name not in PARAMETERS:
        raise Refusal(f"no tool {str(name)[:20]!r}; there are {', '.join(PARAMETERS)}")
    wanted = PARAMETERS[name]
    if not isinstance(arguments, dict) or set(arguments) != set(wanted):
        raise Refusal(f"{name} takes {', '.join(wanted) or 'no arguments'}")
    for parameter, kind in wanted.items():
        if type(arguments[parameter]) is not {"string": str, "integer": int}[kind]:
            raise Refusal(f"{parameter} must be {'an' if kind == 'integer' else 'a'} {kind}")
    return arguments


def describe(report: Report) -> str:
    """A short account of a test run."""
    if report.status == "import_error":
        return f"ERROR {report.error[:MESSAGE_MAX_CHARS]}"
    if report.status != "ok":
        return {"timeout": "ERROR out of time", "output": "ERROR too much output"}.get(report.status, "ERROR crash")
    if report.all_passed:
        return "OK"
    shown = [
        f"FAIL {name.replace('.', '.py ')}: {_expectation(message)}"
        for name, message in report.failed[:FAILURES_SHOWN_MAX]
    ]
    return "\n".join([*shown, f"{len(report.failed)} of {len(report.failed) + len(report.passed)} failed"])


def _expectation(message: str) -> str:
    """unittest's `got != expected` in words, when it has that form."""
    got, found, expected = message.partition(" != ")
    text = f"got {got}, expected {expected}" if found else message
    return text[:MESSAGE_MAX_CHARS]
