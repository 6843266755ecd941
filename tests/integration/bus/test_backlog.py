"""What a server that stands still does not take (A3)."""

import os
import signal

from gyre import records as r
from gyre.bus.subjects import subject_of
from tests.support import TestRun, until

RECORD = b"x" * 1_000_000


async def test_what_a_server_that_stands_still_does_not_take_waits_in_the_client_which_bounds_it(tmp_path):
    """Each try again would lie in the transport once more, whose buffer has no end."""
    async with TestRun(tmp_path) as run:
        trainer = await run.bus("trainer")
        subject = subject_of(trainer.run, r.StepOpened(step=1, burst=0, at_s=0.0))
        await trainer.publish(r.StepOpened(step=0, burst=0, at_s=0.0))
        transport = trainer.client._transport._io_writer.transport
        os.kill(run.nats.process.pid, signal.SIGSTOP)
        try:
            answers = [await trainer.publishing.give(subject, RECORD, {}, 60.0) for _ in range(12)]
            await until(lambda: trainer.client.pending_data_size == 0 and transport.get_write_buffer_size() > 0)
            stuck = transport.get_write_buffer_size()
            answers += [await trainer.publishing.give(subject, RECORD, {}, 60.0) for _ in range(3)]
            assert transport.get_write_buffer_size() <= stuck and trainer.client.pending_data_size > 3 * len(RECORD)
        finally:
            os.kill(run.nats.process.pid, signal.SIGCONT)
        places = [await answer for answer in answers]
        assert places == list(range(places[0], places[0] + 15)), "all of them, in their order"
