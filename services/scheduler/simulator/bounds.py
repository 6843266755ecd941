"""Within which numbers a simulation means something, and ends: every field of a specification has one of these types or a bound of its own."""

from typing import Annotated

from msgspec import Meta

YEAR_H = 8766.0
DAY_S = 86_400.0

HOURS_MIN = 1e-9
SPREAD_MAX = 5.0

Hours = Annotated[float, Meta(ge=HOURS_MIN, le=YEAR_H)]
"""From what a clock resolves to a year, some two thousand times the longest work known. Rules that wait are asked four times a virtual minute,
so the longest wait decides how long a simulation takes."""
NodeHours = Annotated[float, Meta(ge=HOURS_MIN, le=1e6)]
"""To a million: a year on more than a hundred nodes."""
Seconds = Annotated[float, Meta(ge=0.0, le=DAY_S)]
"""What a change costs: of more than a day it is no change of role, but another run."""
Failures = Annotated[float, Meta(ge=0.0, le=1e9)]
"""Hours."""
Factor = Annotated[float, Meta(ge=1e-3, le=1e3)]
Slowdown = Annotated[float, Meta(ge=0.0, le=1e3)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Spread = Annotated[float, Meta(ge=0.0, le=SPREAD_MAX)]
"""ln-σ: real agents' runs have .55 to 1.32; at 5 one execution in six has 150 times the median."""
Nodes = Annotated[int, Meta(ge=1, le=10_000)]
Slots = Annotated[int, Meta(ge=1, le=1_000_000)]
SLOTS_PER_NODE_MAX = 100_000.0
SlotsPerNode = Annotated[float, Meta(gt=0.0, le=SLOTS_PER_NODE_MAX)]
Tasks = Annotated[int, Meta(ge=1, le=100_000)]
"""Each is drawn before the first group."""
Steps = Annotated[int, Meta(ge=0, le=100_000)]
"""The longest run published has 48."""
StepsAtLeastOne = Annotated[int, Meta(ge=1, le=100_000)]

FAILURE_EVERY_H_MIN = 0.01
"""Cells that fail more often than twice a minute serve nobody, and the failures never end."""
NAME_CHARACTERS_MAX = 200
SLOTS_MAX = 1_000_000
"""Of all cells together: each cell has a table of its pace by load."""
OUTSTANDING_MAX = 1_000_000
"""Executions dispatched ahead: all of them are in memory (about 1 KB each)."""
EXECUTIONS_MAX = 10_000_000
"""Of one run: some ten minutes of simulation."""
