"""Batches and optimizer steps."""

from services.ledger.core.schema import table

BATCH_GROUPS = table("batch_groups", "BatchExtended and BatchClosed: groups of a batch", "step int, group_id text", """
turns int
turns_total int # accumulated turns after this group (C5)
samples int
at_s real
""")  # fmt: skip

BATCH_SAMPLES = table("batch_samples", "BatchClosed: executions in the divisor", "step int, sample_id text", """
position int
""")  # fmt: skip

OVERDUE = table("overdue", "BatchOverdue: what had not arrived when a batch's wait was over (C5)", "step int, ordinal int", """
policy text # trajproc.missing: later, wait, truncate, drop
executions int # that had not arrived
execution_ids_json text
turns int # that had
turns_target int
waited_s real # since the batch took its first group
at_s real
""")  # fmt: skip

BATCHES = table("batches", "BatchClosed: the batch completion rule and what it did", "step int", """
cause text # turns, wait, exhausted (C5)
turns int
turns_target int
groups int
samples int
micros int # of the batch's own samples; each replay of the elite store has one more
divisor int
truncated_share real # against trajproc.truncated_share_max (C5)
failed_share_json text # task type: share of failed samples kept (C10)
no_gradient bool # no-gradient interruption (C10)
staleness_mean real
staleness_max int
at_s real
origins_json text # executions of the divisor by origin (C3)
""")  # fmt: skip

ELITE_REPLAYS = table("elite_replays", "BatchClosed: samples of the elite store that were trained again (D9)",
                       "step int, sample_id text", """
position int
targets int # StepUpdated: target tokens
compute_s real # its share of the step's training seconds
""")  # fmt: skip

STEPS = table("steps", "StepOpened and StepUpdated", "step int", """
burst int
opened_at_s real
version int # policy version after the update
samples int # trained
targets int # target tokens in the gradient
compute_s real # training seconds of all cells
metrics_json text
updated_at_s real
""")  # fmt: skip

STEP_SAMPLES = table("step_samples", "StepUpdated: exactly the samples in its gradient", "step int, sample_id text", """
metrics_json text # mean ratio, clipped share, loss share as the trainer saw them
targets int # target tokens
compute_s real # its share of the step's training seconds, by tokens of its rows
""")  # fmt: skip

REFUSED = table("refused", "StepUpdated: samples of the batch, or replays, that could not be trained", "step int, sample_id text", """
reason text # as the trainer says it; SampleDropped follows
""")  # fmt: skip

MICRO = table("micro", "BatchExtended and StepUpdated: micro-steps", "micro_id text", """
step int
group_id text
cell text # that computed it
""")  # fmt: skip

JOINS = table("joins", "StepJoined (A8)", "step int, cell text, at_s real", """
mid_batch bool
version int
checksum text
""")  # fmt: skip

WEIGHTS = table("weights", "WeightsPublished (A4)", "version int", """
path text
checksum text
bytes int
at_s real
""")  # fmt: skip
