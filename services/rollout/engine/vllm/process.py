"""vLLM's processes: one group, whose end is the end of all of them; on a unix socket in a folder that is this user's alone.

vLLM's control routes (pause, new weights, calls into its workers) ask for no key: so it never listens on a port.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from pathlib import Path

from gyre.config.sections import VllmConfig
from gyre.supervisor.child import die_with_parent, last_words
from services.rollout.engine.vllm.belongings import Belongings, remove_orphaned
from services.rollout.engine.vllm.client import Silent, VllmClient

log = logging.getLogger(__name__)

PLUGIN = Path(__file__).parent / "plugin"
HEALTH_EVERY_S = 0.5
SAY_EVERY_S = 15.0


class VllmProcess:
    """Start, watch and end one server. All methods run on the loop of the thread that lives as long as the engine: the kernel kills the
    server when the thread that started it is gone."""

    def __init__(
        self, model_dir: Path, slots: int, context_max: int, config: VllmConfig, device: str, threads: int, log_file: Path,
        plugins: tuple[Path, ...] = (), extension: str = "gyre_vllm.extension.Extension",
    ) -> None:  # fmt: skip
        self._config = config
        self.log_file = log_file
        remove_orphaned()
        self.belongings = Belongings()
        self.socket = str(self.belongings.folder / "socket")
        self._command = command(model_dir, slots, context_max, config, device, self.socket, extension)
        self._variables = variables(config, device, threads, (PLUGIN, *plugins))
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Of the server while it lives."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self, client: VllmClient) -> None:
        """A new process, healthy. Raises Silent with its last words when it dies or does not come up in time."""
        await self.stop()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        with self.log_file.open("ab") as file:
            try:
                self._process = process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file, cwd=self.belongings.folder,
                    env=os.environ | self._variables | self.belongings.variables, start_new_session=True, preexec_fn=die_with_parent,
                )  # fmt: skip
            except OSError as error:
                raise Silent(
                    f"{self._command[0]}: {error.strerror}; `make setup-vllm` makes vLLM's environment"
                ) from None
        began_s = said_s = time.monotonic()
        while not await client.healthy():
            now_s = time.monotonic()
            if process.returncode is not None:
                raise Silent(f"vLLM ended with {process.returncode}: {self.last_words()}")
            if now_s - began_s > self._config.start_s:
                await self.stop()
                raise Silent(f"vLLM was not up after {self._config.start_s:g} s: {self.last_words()}")
            if now_s - said_s > SAY_EVERY_S:
                said_s = now_s
                log.info("vLLM starts since %.0f s: %s", now_s - began_s, self.last_words())
            await asyncio.sleep(HEALTH_EVERY_S)
        log.info("vLLM is up after %.1f s, process %d", time.monotonic() - began_s, process.pid)

    async def died(self) -> None:
        """Returns when the process that runs now is gone."""
        if self._process is not None:
            await self._process.wait()

    def last_words(self) -> str:
        return f"{last_words(self.log_file)} (log: {self.log_file})"

    async def stop(self) -> None:
        """SIGKILL to the whole group: vLLM has nothing to save, takes seconds to end by itself, and what it would tidy up is tidied up here."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if self._process is process:
            self._process = None
            self.belongings.clear()

    def forget(self) -> None:
        """Nothing is left of it but the log; the process has ended."""
        self.belongings.remove()


def command(
    model_dir: Path, slots: int, context_max: int, config: VllmConfig, device: str, socket: str, extension: str
) -> list[str]:
    """Weights come by transfer only, version 0's too, so that none ever serves whose digest was not compared."""
    python = config.python
    if "/" in python:
        # not resolved: a virtual environment is known by the path of its link
        python = os.path.abspath(python)
    words = [
        python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model_dir.resolve()), "--served-model-name", "policy",
        "--uds", socket, "--tokens-only", "--load-format", "dummy", "--dtype", config.dtype, "--max-model-len", str(context_max),
        "--max-num-seqs", str(slots), "--logprobs-mode", "processed_logprobs", "--stream-interval", str(config.stream_tokens),
        "--generation-config", "vllm", "--enable-prompt-tokens-details", "--worker-extension-cls", extension,
        "--weight-transfer-config", '{"backend": "gyre"}', "--disable-uvicorn-access-log",
    ]  # fmt: skip
    if config.is_eager:
        words.append("--enforce-eager")
    if not device.startswith("cpu"):
        words += ["--gpu-memory-utilization", str(config.gpu_memory_share)]
    return words + config.arguments


def variables(config: VllmConfig, device: str, threads: int, plugins: tuple[Path, ...]) -> dict[str, str]:
    found = {
        "PYTHONPATH": os.pathsep.join(str(path.resolve()) for path in plugins), "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_HOST_IP": "127.0.0.1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    if device.startswith("cpu"):
        found |= {
            "VLLM_CPU_KVCACHE_SPACE": str(config.kv_cache_gib), "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE",
        }  # fmt: skip
    if config.is_eager:
        # A function of the sampler is compiled all the same: the first call would wait 45 s for a C++ compiler.
        found["TORCH_COMPILE_DISABLE"] = "1"
    return found | config.variables
