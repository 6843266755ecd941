"""Carries out what core/weight_update.py decides, one phase at a time."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from gyre.config.sections import VllmConfig
from services.rollout.core.weight_update import Outcome, Phase, Update, after
from services.rollout.engine.vllm.client import Refused, Silent, VllmClient
from services.rollout.engine.vllm.process import VllmProcess
from services.rollout.engine.vllm.published import Published
from services.rollout.engine.vllm.sending import meeting_file, send

log = logging.getLogger(__name__)


class Updater:
    """`on_down` is told before a process is started in place of another; `on_live` which version's tokens come from now on."""

    def __init__(
        self, process: VllmProcess, client: VllmClient, config: VllmConfig, on_down: Callable[[], None], on_live: Callable[[int], None]
    ) -> None:  # fmt: skip
        self._process, self._client, self._config = process, client, config
        self._on_down, self._on_live = on_down, on_live
        self.troubles: list[str] = []
        """What went wrong in the last run, in order."""
        self.phases: list[Phase] = []
        """Phases of the last run, in order."""

    async def run(self, update: Update, weights: Mapping[int, Published]) -> Update:
        """Until it is over. `weights` by version: the target's and the good one's."""
        self.troubles, self.phases = [], []
        while not update.is_over:
            phase, outcome = update.phase, Outcome.DONE
            self.phases.append(phase)
            try:
                await self._do(phase, weights[update.target])
            except (Refused, Silent) as error:
                outcome = Outcome.FAILED if isinstance(error, Refused) else Outcome.SILENT
                self.troubles.append(f"{phase}: {error}")
                log.error("version %d, %s: %s", update.target, phase, error)
            update = after(update, outcome)
        return update

    async def _do(self, phase: Phase, weights: Published) -> None:
        client = self._client
        match phase:
            case Phase.STARTING:
                self._on_down()
                await self._process.start(client)
            case Phase.PAUSING:
                await client.pause()
            case Phase.OPENING:
                await client.open_update()
            case Phase.SENDING:
                await self._send(weights)
            case Phase.CLOSING:
                await client.close_update(weights.version)
            case Phase.CHECKING:
                if (found := await client.digest()) != weights.digest:
                    raise Refused(f"version {weights.version} has digest {weights.digest}, what is loaded {found}")
            case Phase.CLEARING:
                await client.clear_cache()
            case Phase.RESUMING:
                self._on_live(weights.version)
                await client.resume()

    async def _send(self, weights: Published) -> None:
        way, timeout_s = self._config.transfer, self._config.update_s
        info = {"files": weights.listed(), "way": way, "timeout_s": timeout_s}
        if way == "file":
            await self._client.send_update(info)
            return
        store = meeting_file()
        try:
            received = asyncio.create_task(self._client.send_update(info | {"store": store}))
            sent = asyncio.create_task(asyncio.to_thread(send, weights.files, store, timeout_s))
            _, problem = await asyncio.gather(received, sent, return_exceptions=True)
            await received  # what the worker says comes first
            if isinstance(problem, BaseException):
                raise Refused(f"gloo: {problem}")
        finally:
            shutil.rmtree(Path(store).parent, ignore_errors=True)
