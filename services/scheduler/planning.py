"""elastic_plus: a plan is asked for at boundaries and made in a process of its own, while the run goes on (A9).

BurstOpened ─▶ Planner.due(state) ─▶ python -m services.scheduler.planning ─▶ PlanChosen, in force from the next boundary
"""

import asyncio
import logging
import sys

import msgspec

from gyre.clock import Clock
from gyre.config import Config
from gyre.errors import Unavailable
from services.scheduler.bus import Feed
from services.scheduler.child import begin, lines_of
from services.scheduler.planner import Answer, Planner, Question, answer
from services.scheduler.planner.planner import chosen

log = logging.getLogger(__name__)

LOOK_S = 0.5
LIMIT_S = 120.0
"""A plan takes seconds; one that takes this long is given up, and what is in force stays."""


async def plan_for_ever(feed: Feed, clock: Clock, config: Config) -> None:
    """Asks once at every burst that opens while this process lives. A plan that fails changes nothing."""
    planner = Planner(config.scheduler, config.run.seed, config.trajproc.age_steps_max)
    asked = feed.state.burst
    while True:
        await asyncio.sleep(LOOK_S)
        if feed.state.burst == asked:
            continue
        asked = feed.state.burst
        question = planner.due(feed.state)
        if question is None:
            continue
        try:
            found = await lines_of("services.scheduler.planning", msgspec.msgpack.encode(question), LIMIT_S)
        except Unavailable as error:
            log.warning("no plan in burst %d: %s", asked, error)
            continue
        if not found:
            log.warning("no plan in burst %d: not done within %g s", asked, LIMIT_S)
            continue
        plan = chosen(feed.state, msgspec.json.decode(found[0], type=Answer), clock.now_s())
        if plan is not None:
            log.info("plan %d: %s", plan.plan, plan.reason)
            await feed.tell([plan])


def main() -> None:
    """The child: one question in, one answer out."""
    begin()
    question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Question)
    print(msgspec.json.encode(answer(question)).decode(), flush=True)


if __name__ == "__main__":
    main()
