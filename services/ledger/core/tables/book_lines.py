"""Running totals that `gyre books` adds up (C6): one row a purpose; and the lines of groups that have settled.

What became of an execution depends on facts of many kinds, so lines cannot be added to fact by fact. Like those of bills (core/tables/costs.py) they
are made of a whole group at a time: a group's executions are either in these lines, or the group is in `unsettled` and books take it from its facts.
"""

from services.ledger.core.schema import table

BOOK_TOTALS = table("book_totals", "The three books, each fact added once", "purpose text", """
turns int # CallRecorded
tokens int # CallRecorded: sampled
external_calls int # ExecutionEnded
occupancy_s real # ExecutionEnded
""", sqlite_with_rowid=False)  # fmt: skip

FATE_LINES = table("fate_lines", "Settled groups: what became of their executions",
                    "group_id text, purpose text, dispatched int, trained int, dropped text, version int", """
executions int
ended int
timed_out int # of those that ended, as all that follows
scored int # with an outcome
succeeded int # with an outcome of 1
""", sqlite_with_rowid=False)  # fmt: skip
"""`dispatched`, `trained`: 0 or 1; `dropped`: the reason, empty where it was not; `version`: that the ending names, −1 without one."""

STEP_LINES = table("step_lines", "Settled groups: what the step that used them up made of them", "group_id text, step int", """
executions int
age_sum int # of step - v_d over executions (A5)
age_max int
ended int
timed_out int # of those that ended, as all that follows
turns int
scored int # with an outcome
succeeded int # with an outcome of 1
samples int
rewarded int # samples with a reward
reward_sum real
""", sqlite_with_rowid=False)  # fmt: skip
