"""A cell that dies is capacity that is not there, and is there again when it serves (A3)."""

import signal

import pytest

from gyre.records import CellReported

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_dead_cell_is_reported_and_reported_back_also_by_the_next_gateway_process(driver):
    """64 is the cells' configured capacity; the gateway that says `back` is not the one that said `lost`."""
    await driver.kill_cell(1)
    lost = await driver.fact(lambda f: isinstance(f, CellReported) and (f.cell, f.capacity) == ("cell-1", 0))
    assert "did not answer" in lost.reason
    await driver.environment.detach()
    await driver.restart_gateway(signal.SIGKILL)
    await driver.environment.attach()
    await driver.start_cell(1)
    back = await driver.fact(lambda f: isinstance(f, CellReported) and f.cell == "cell-1" and f.capacity > 0)
    assert back.capacity == driver.run.config.scheduler.cell_capacity and back.at_s > lost.at_s
    assert driver.run.of(CellReported, cell="cell-1") == [lost, back]
