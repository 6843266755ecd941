"""The model directory a run starts from: the one configured, or one made by the recipe and warm-started on demonstrations (D12).

recipe ──▶ model-fresh/ ──┐
demonstrations ──▶ .jsonl ┴─▶ warm start ──▶ model/        all inside the run's folder; what is there already is not made again
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from gyre.config import Config
from gyre.errors import ConfigError, GyreError
from gyre.run_folder import RunFolder
from gyre.supervisor.child import die_with_parent, last_words
from gyre.supervisor.plan import thread_variables

SAY_EVERY_S = 5.0
_PLACES = re.compile(r"\{(?:out|seed|python)\}")


class PreparationFailed(GyreError):
    """A command that makes the model ended with an error."""

    code = "preparation"


def check_model(path: Path, what: str = "model.path") -> None:
    """Raises ConfigError when `path`, which is `what`, is no Hugging Face directory that Gyre can serve."""
    if not path.is_dir():
        raise ConfigError(f"{what} {path} is no directory")
    if not (path / "config.json").exists():
        raise ConfigError(f"{what} {path} has no config.json: a Hugging Face model directory is needed")
    if not any((path / name).exists() for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")):
        raise ConfigError(
            f"{what} {path} has no tokenizer (tokenizer.json): save the model's own tokenizer beside its weights"
        )
    if not any(path.glob("*.safetensors")):
        raise ConfigError(f"{what} {path} has no weights (*.safetensors)")


async def prepare(config: Config, folder: RunFolder, say: Callable[[str], None]) -> Path:
    """The directory to train from. Raises ConfigError, PreparationFailed."""
    if config.model.path:
        return _given(config.model.path)
    if folder.model.exists():
        return folder.model
    seed, threads = config.run.seed, config.trainer.threads
    fresh, data = folder.root / "model-fresh", folder.root / "demonstrations.jsonl"
    target = fresh if config.model.demonstrations else folder.model
    if not target.exists():
        await _command("model", config.model.recipe, target, seed, folder, say, threads)
        check_model(target, "what model.recipe made,")
    if config.model.demonstrations:
        if not data.exists():
            await _command("demonstrations", config.model.demonstrations, data, seed, folder, say, threads)
        await _warm_start(config, fresh, data, folder, say)
    return folder.model


def _given(path: str) -> Path:
    found = Path(path).expanduser().resolve()
    check_model(found)
    return found


async def _command(
    name: str, command: list[str], out: Path, seed: int, folder: RunFolder, say: Callable[[str], None], threads: int
) -> None:
    # Not str.format: a command may hold braces of its own.
    filled = {"{out}": str(out), "{seed}": str(seed), "{python}": sys.executable}
    words = [_PLACES.sub(lambda place: filled[place[0]], word) for word in command]
    await _run(name, words, folder, say, threads)


async def _warm_start(config: Config, fresh: Path, data: Path, folder: RunFolder, say: Callable[[str], None]) -> None:
    given = config.model
    words = [
        sys.executable, "-m", "services.trainer.warmstart", "--model", str(fresh), "--data", str(data), "--out", str(folder.model),
        "--epochs", str(given.warmstart_epochs), "--lr", str(given.warmstart_lr), "--seed", str(config.run.seed),
        "--tokens-per-batch", str(given.warmstart_tokens), "--seconds-max", str(given.warmstart_s),
        "--threads", str(config.trainer.threads),
    ]  # fmt: skip
    await _run("warmstart", words, folder, say, config.trainer.threads)


async def _run(name: str, words: list[str], folder: RunFolder, say: Callable[[str], None], threads: int) -> None:
    """Run one command, its output in logs/<name>.log and its last line said. Raises PreparationFailed with the last thing it said."""
    log = folder.logs / f"{name}.log"
    say(name)
    with log.open("ab") as file:
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
                env=os.environ | thread_variables(threads), preexec_fn=die_with_parent,
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(f"the command for {name} cannot be started: {error}") from error
    said = ""
    try:
        while process.returncode is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAY_EVERY_S):
                    await process.wait()
            if process.returncode is None and (words := last_words(log, "")) != said:
                say(f"{name}: {words}")
                said = words
    finally:
        # Its whole group: a command may have started others.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode != 0:
        raise PreparationFailed(f"{name} ended with exit code {process.returncode}: {last_words(log)} (log: {log})")
