"""`gyre train` and `gyre up` given what cannot work: exit code, one sentence, nothing left running (E).

Each is a real command in a process of its own, started from an empty working directory.
"""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from gyre.cli.training import tasks
from gyre.config.load import parse
from gyre.errors import ConfigError, InvalidInput
from tests.support import WAIT_S, taken_port, until, until_gone

SOURCE = """
from gyre.env import Task

def good(split, count, seed):
    for index in range(count):
        yield Task(task_id=f"{split}-{index}", task_type="t", seed=seed + index)

def raises(split, count, seed):
    raise KeyError("no data here")

def raises_late(split, count, seed):
    yield Task(task_id="a", task_type="t", seed=1)
    raise OSError("disk gone")

def raises_for_heldout(split, count, seed):
    return good(split, count, seed) if split == "train" else raises(split, count, seed)

def nothing(split, count, seed):
    return []

def none(split, count, seed):
    return None

def no_heldout(split, count, seed):
    return good(split, count, seed) if split == "train" else []

def texts(split, count, seed):
    return ["task"] * count

def payload(split, count, seed):
    yield Task(task_id="a", task_type="t", seed=1, payload={"world": object()})

def infinite_payload(split, count, seed):
    yield Task(task_id="a", task_type="t", seed=1, payload={"x": float("inf")})

def payload_is_text(split, count, seed):
    yield Task(task_id="a", task_type="t", seed=1, payload="{}")

def seed_is_huge(split, count, seed):
    yield Task(task_id="a", task_type="t", seed=2**80)

def two_arguments(split, count):
    return good(split, count, 1)

number = 7
"""

SOURCES = {
    "source": "must read `package.module:function`",
    "absent:tasks": "No module named 'absent'",
    "broken:tasks": "SyntaxError",
    "divides:tasks": "ZeroDivisionError",
    "source:absent": "has no attribute 'absent'",
    "source:number": "is a int, not a function",
    "source:raises": "failed when asked for train tasks: KeyError: 'no data here'",
    "source:raises_for_heldout": "failed when asked for heldout tasks: KeyError",
    "source:two_arguments": "takes 2 positional arguments but 3 were given",
    "source:nothing": "yields no training tasks",
    "source:none": "'NoneType' object is not iterable",
    "source:no_heldout": "yields no held-out tasks",
    "source:texts": "must yield gyre.env.Task, not str",
    "source:payload": "JSON values: TypeError: Object of type object",
    "source:infinite_payload": "JSON values: ValueError",
    "source:payload_is_text": "payload is a str, not a dict",
    "source:seed_is_huge": "seed of 64 bits",
}


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / "source.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def tasks(:")
    (tmp_path / "divides.py").write_text("1 / 0")
    return tmp_path


def configure(here: Path, text: str = "", model: Path | str = "m", source: str = "source:good") -> Path:
    """A configuration with one cell; `text` is further TOML."""
    file = here / "c.toml"
    head = f'[run]\nname = "t"\n[model]\npath = "{model}"\n[scheduler]\ncells = 1\n[ledger]\ntraces = false\n[tasks]\nsource = "{source}"\n'
    file.write_text(head + textwrap.dedent(text))
    return file


def gyre(here: Path, *words: str, timeout_s: float = 300.0, **options) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [sys.executable, "-m", "gyre.cli.main", *words], cwd=here, capture_output=True, text=True, timeout=timeout_s, **options
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    until_gone(lambda: running(here))
    return done


def running(here: Path) -> list[list[str]]:
    """Command lines of living processes that name this folder or stand in it."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        try:
            if process.info["status"] != psutil.STATUS_ZOMBIE and (
                str(here) in " ".join(words) or process.cwd() == str(here)
            ):
                found.append(words)
        except psutil.Error:
            continue
    return found


def last_line(done: subprocess.CompletedProcess) -> str:
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_of_tasks_that_is_none_says_why(here, monkeypatch, name):
    """What `gyre train` does with the source before anything is started."""
    monkeypatch.chdir(here)
    config = parse({"model": {"path": "m"}, "tasks": {"source": name}}, "test")
    with pytest.raises((ConfigError, InvalidInput)) as error:
        tasks.check_source(tasks.load_source(config), config)
    assert SOURCES[name] in str(error.value)
    for module in ("source", "broken", "divides"):
        sys.modules.pop(module, None)
    with contextlib.suppress(ValueError):
        sys.path.remove(str(here))


def test_a_source_of_tasks_that_is_none_leaves_nothing_behind(here):
    """The same as a command: exit code 2, a sentence, no run folder."""
    file = configure(here)
    for name in ("divides:tasks", "source:raises"):
        done = gyre(here, "train", file.name, "--set", f"tasks.source={name}", "--run-dir", "run")
        assert done.returncode == 2 and SOURCES[name] in last_line(done)
    assert not (here / "run").exists()


def test_configurations_that_cannot_be_read_are_user_errors(here):
    """An unknown field names the nearest one; a folder, a picture, a directory in place of a file."""
    (here / "folder").mkdir()
    (here / "picture.toml").write_bytes(b"\x89PNG\xff\xfe")
    configure(here, "[rollout]\ncontext_mx = 5\n")
    for command in (["config", "check"], ["up"]):
        done = gyre(here, *command, "c.toml")
        assert done.returncode == 2 and "did you mean `rollout.context_max`?" in last_line(done)
    for name, words in (("folder", "Is a directory"), ("picture.toml", "not TOML"), ("absent.toml", "no such file")):
        done = gyre(here, "config", "check", name)
        assert done.returncode == 2 and words in last_line(done)


def test_a_model_without_tokenizer_and_recipes_that_fail(here, model_dir):
    """The recipe's own last words are the error; one that makes nothing, or something that is no model, is told so."""
    bare = here / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((model_dir / name).read_bytes())
    done = gyre(here, "up", configure(here, model=bare).name, "--run-dir", "run")
    assert done.returncode == 2 and "has no tokenizer" in last_line(done)
    recipes = [
        (
            ["sh", "-c", "sleep 300 & echo {} no such disk >&2; exit 3"],
            1,
            "model ended with exit code 3: {} no such disk",
        ),
        (["true"], 2, "what model.recipe made, "),
        (["mkdir", "{out}"], 2, "has no config.json"),
        (["no-such-command"], 2, "the command for model cannot be started"),
    ]
    for index, (recipe, code, words) in enumerate(recipes):
        file = configure(here, '[[environments]]\ncommand = ["true"]\n', model="")
        file.write_text(file.read_text().replace('path = ""', f"recipe = {recipe!r}"))
        done = gyre(here, "up", file.name, "--run-dir", f"run-{index}")
        assert done.returncode == code and words in last_line(done), done.stderr


def test_a_port_in_use_is_named_with_its_purpose(here, model_dir):
    with taken_port(before=1) as port:
        file = configure(here, f"[network]\nbase_port = {port - 1}\n", model_dir)
        done = gyre(here, "up", file.name, "--run-dir", "run")
    assert done.returncode == 2
    assert f"127.0.0.1:{port}, which network.base_port {port - 1} gives to the scheduler" in last_line(done)


def test_a_run_folder_that_cannot_be_written_is_named(here, model_dir):
    """A file in its place, a file system without folders of ours, and a full disk (here: no file may grow)."""
    file = configure(here, model=model_dir)
    (here / "file").write_text("")
    for folder, words in ((here / "file" / "run", "Not a directory"), (Path("/proc/run"), "/proc/run")):
        for command in ("train", "up"):
            done = gyre(here, command, file.name, "--run-dir", str(folder))
            assert done.returncode == 2 and words in last_line(done)

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))

    done = gyre(here, "up", file.name, "--run-dir", "run", preexec_fn=full)
    assert done.returncode == 2 and "File too large" in last_line(done)


@pytest.mark.parametrize(
    "command, code, words",
    [
        (["no-such-environment"], 2, "environment-e-0 cannot be started: "),
        (["{python}", "-c", "import sys; sys.exit('no licence found')"], 1, "no licence found"),
    ],
)
def test_an_environment_that_cannot_run_fails_the_run_with_its_last_words(here, model_dir, command, code, words):
    """Restarted five times within a minute, then given up; not waited for."""
    text = f'environment = "e"\n[[environments]]\nname = "e"\ncommand = {command!r}\n'
    done = gyre(here, "up", configure(here, text, model_dir).name, "--run-dir", "run")
    assert done.returncode == code and words in last_line(done), done.stderr


async def test_a_command_told_to_stop_while_its_recipe_runs_leaves_nothing(here):
    """SIGTERM in the middle of making the model: exit code 143, the recipe and what it started are gone."""
    file = configure(here, model="")
    file.write_text(file.read_text().replace('path = ""', 'recipe = ["sh", "-c", "sleep 300 & sleep 300"]'))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gyre.cli.main", "up", file.name, "--run-dir", "run", cwd=here,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    await until(lambda: sum("sleep" in words for words in running(here)) == 2)
    os.kill(process.pid, signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), WAIT_S) == 143
    await until(lambda: not running(here))
