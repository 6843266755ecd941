"""The loop that every training cell runs: claim one micro-step, ask the core, compute, report (A7)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gyre.errors import InvalidInput, NotFound
from gyre.records import MicroStep
from services.trainer.begun import DEATHS_MAX, Begun
from services.trainer.claims import Claims
from services.trainer.compute import Compute
from services.trainer.core.events import Verdict
from services.trainer.gradient import SampleSeen, refused_whole

log = logging.getLogger(__name__)

PASS_SHARE = 0.25
"""A micro-step that another living cell has comes again after this share of the claim time: soon enough if that cell dies."""

Report = Callable[[str, dict[str, SampleSeen], float], Awaitable[None]]


class Claimant:
    """`ask(micro)` gives the core's verdict; `report(micro_id, seen, compute_s)` tells it that a gradient is in the accumulators."""

    def __init__(
        self,
        claims: Claims,
        compute: Compute,
        begun: Begun,
        claim_s: float,
        ask: Callable[[MicroStep], Awaitable[Verdict]],
        report: Report,
    ) -> None:
        self._claims = claims
        self._compute = compute
        self._begun = begun
        self._pass_s = claim_s * PASS_SHARE
        self._ask = ask
        self._report = report
        self.may_claim = asyncio.Event()
        """Set while a step is in hand and its weights are loaded."""
        self._at_work = asyncio.Lock()

    async def run(self) -> None:
        """For ever. Cancelling it between two awaits leaves only claims, which the owner of `claims` hands back."""
        while True:
            await self.may_claim.wait()
            async with self._at_work:
                micro = await self._claims.take()
                if micro is not None:
                    await self._settle(micro)

    async def rest(self) -> None:
        """Claim nothing more; returns when what is in hand is computed and reported, or given back."""
        self.may_claim.clear()
        async with self._at_work:
            pass

    async def _settle(self, micro: MicroStep) -> None:
        verdict = await self._ask(micro)
        if verdict is Verdict.COMPUTE:
            await self._report(micro.micro_id, *await self._computed(micro))
        elif verdict is Verdict.PASS:
            await self._claims.hand_back(micro.micro_id, self._pass_s)
        else:
            await self._claims.discard(micro.micro_id)

    async def _computed(self, micro: MicroStep) -> tuple[dict[str, SampleSeen], float]:
        """What was seen of its samples, and the seconds it took. Rows that are lost or damaged will not come back, and of what killed whoever
        computed it the next would die too: their samples are refused."""
        if (deaths := self._begun.deaths(micro.micro_id)) >= DEATHS_MAX:
            reason = f"{deaths} training processes died while they computed it: more memory than the machine has, most likely"
            log.error("%s: set aside: %s", micro.micro_id, reason)
            return refused_whole(micro, reason), 0.0
        try:
            whole = self._claims.with_rows(micro)
        except (NotFound, InvalidInput) as error:
            log.error("%s: its rows cannot be had: %s", micro.micro_id, error)
            return refused_whole(micro, str(error)), 0.0
        with self._begun.computing(micro.micro_id):
            return await self._compute.micro_step(whole)
