"""Running totals that bills add up (C12): one row an attempt, one row an attempt and weight version; and the lines of groups that have settled.

On SQLite all are kept in the order of their keys (no rowid), which is the order in which a bill reads them.

How an attempt is shared out, and whether it was extra, depends on what else is told of its execution, so lines of bills cannot be added to fact by
fact. They are made of a whole group at a time, when nothing has been told of it for a while: a group's costs are either in `bill_lines`, or it is
in `unsettled` and bills take it from the other two.
"""

from services.ledger.core.schema import table

COSTS = table("costs", "What one attempt cost, as far as facts have told", "execution_id text, attempt int", """
group_id text
trained int # StepUpdated: optimizer steps that its sample was in, replays of the elite store aside
turns int # CallRecorded
tokens int # CallRecorded: sampled
external_calls int # ExecutionEnded
occupancy_s real # ExecutionEnded
targets int # StepUpdated: target tokens in gradients
compute_s real # StepUpdated: its share of the step's training seconds
""", sqlite_with_rowid=False)  # fmt: skip

USAGE = table("usage", "Which weights sampled an attempt, from each token's version (C7)", "execution_id text, attempt int, version int", """
turns real # a call that several versions sampled is shared by its tokens
tokens int # sampled by this version; -1 where the record does not say
""", sqlite_with_rowid=False)  # fmt: skip

BILL_LINES = table(
    "bill_lines", "Settled groups: costs and usage added up", "group_id text, version int, attempt int, retry int", """
share real # attempts, each counted by its share of this version
turns real
tokens int
targets real
compute_s real
occupancy_s real
external_calls real
""", sqlite_with_rowid=False)  # fmt: skip

UNSETTLED = table("unsettled", "Groups whose costs are not in bill_lines", "group_id text", """
sequence int # of the newest fact that told of its costs; settled in this order
""", sqlite_with_rowid=False)  # fmt: skip
