"""Running totals that bills add up (C12): one row an attempt, one row an attempt and weight version.

On SQLite both are kept in the order of their keys (no rowid), which is the order in which a bill reads them.
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
