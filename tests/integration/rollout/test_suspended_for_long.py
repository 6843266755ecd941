"""An execution that is suspended for long, every cell gone meanwhile, goes on where it was (C2)."""

import asyncio

import pytest

from gyre.records import CellReported, ExecutionResumed, ExecutionSuspended, array

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(900)]

LONG_S = 30.0
"""Stands for the hour: longer than the wall clock and the lease of these tests, which are all that an hour would be held against."""


async def test_a_suspended_execution_goes_on_after_its_cells_are_gone_and_others_are_there(driver):
    """One call is made and one waits. Both cells are killed and found lost, LONG_S pass, cells without any of its tokens come up;
    resumed, the call that waited is answered, as the same attempt and session: it hangs from the whole of the first call, prompt and
    output."""
    key, attempt = await driver.begin(wall_s=20)
    client = driver.client(key, retries=50)
    messages = [{"role": "user", "content": "go"}]
    first = await client.chat.completions.create(model="policy", messages=messages)
    (record,) = await driver.recorded(1)
    await driver.command(1, "suspend")
    await driver.fact(lambda f: isinstance(f, ExecutionSuspended) and f.execution_id == driver.execution)
    messages += [first.choices[0].message.to_dict(), {"role": "user", "content": "and on"}]
    waiting = asyncio.ensure_future(client.chat.completions.create(model="policy", messages=messages))
    for index in range(2):
        await driver.kill_cell(index)
    for cell in ("cell-0", "cell-1"):
        await driver.fact(lambda f, cell=cell: isinstance(f, CellReported) and (f.cell, f.capacity) == (cell, 0))
    await asyncio.sleep(LONG_S)
    assert not waiting.done()
    for index in range(2):
        await driver.start_cell(index)
    await driver.command(2, "resume")
    await driver.fact(lambda f: isinstance(f, ExecutionResumed) and f.execution_id == driver.execution)
    assert (await asyncio.wait_for(waiting, 300)).choices
    old, new = await driver.recorded(2)
    assert (old.call_id, new.attempt, new.execution_id) == (record.call_id, attempt, driver.execution)
    assert (new.parent, new.parent_tokens) == (old.call_id, old.prompt_tokens + len(array(old.output_ids, "int32")))
