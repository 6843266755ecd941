"""Readers of streams: bounded, told of what they were too slow for, never waited for."""

import asyncio

import pytest

from gyre.errors import Overloaded
from services.scheduler.watch import POINTS_MAX, READERS_MAX, Hub


async def take(reader, count: int) -> list:
    return [await asyncio.wait_for(anext(reader), 60) for _ in range(count)]


async def test_a_reader_gets_what_was_first_and_everything_after_it():
    hub = Hub()
    reader = hub.read(["now"])
    assert await take(reader, 1) == [("now", 0)]
    hub.push(1)
    hub.push(2)
    assert await take(reader, 2) == [(1, 0), (2, 0)]


async def test_a_slow_reader_loses_the_oldest_points_and_is_told_how_many():
    """Ten points more than it may hold: the first ten are gone, and the first that it reads says so."""
    hub = Hub()
    reader = hub.read([None])
    await take(reader, 1)
    for index in range(POINTS_MAX + 10):
        hub.push(index)
    assert await take(reader, 2) == [(10, 10), (11, 0)]


async def test_readers_are_bounded_and_those_that_leave_make_room():
    hub = Hub()
    readers = [hub.read([0]) for _ in range(READERS_MAX)]
    for reader in readers:
        await take(reader, 1)
    with pytest.raises(Overloaded):
        await take(hub.read([0]), 1)
    await readers[0].aclose()
    assert await take(hub.read([0]), 1) == [(0, 0)]
