"""The schema: one set of tables for SQLite and PostgreSQL. Column comments say where a value comes from and what it serves.

Every table is keyed by `run` and its fact's natural key, so that several runs may share a database and a repeated fact changes
nothing. Text columns named *_json hold JSON. Times end in `_at_s` (Unix seconds). NULL means: this part of the story has not been told yet.
Rows that several facts tell together (MERGED) are filled column by column; all other rows are written once.
"""

import sqlalchemy as sa

from services.ledger.core.schema import METADATA
from services.ledger.core.schema import table as _table

FACTS = _table(
    "facts", "Every fact that was taken in, by natural key", "key text", "sequence int # in the facts stream"
)

INTAKE = _table("intake", "How far the intake has come, kept in the same transactions", "", """
stream_sequence int # newest fact stored
facts int # facts stored, each counted once
spans int # spans stored, each counted once
""")  # fmt: skip

RUNS = _table("runs", "RunStarted", "steps int", """
fingerprint text # configuration fingerprint, on every sample of the run (C7)
at_s real
""")  # fmt: skip

GROUPS = _table("groups", "GroupSubmitted: what was to be done", "group_id text", """
task_id text # bill
task_type text # quotas, bill
tenant text # bill (C12)
environment text
purpose text # train or evaluation
seed int # of the task
group_size int # N
tier text # duration tier of the estimator at enqueue (C1)
temperature real
top_p real
limits_json text
payload_json text
at_s real # enqueued
""")  # fmt: skip

DISPATCHES = _table("dispatches", "GroupDispatched", "group_id text, attempt_base int", """
task_type text
tenant text
purpose text
tier text # tier caps, tail reservation (C1)
policy_version int # v_d, from which staleness runs (A5)
queue_wait_s real # starvation (C1)
promotions int # aging promotions while it waited (C1)
executions int # how many were handed to the work queue
fingerprint text # configuration that dispatched it, empty: the run's (C7)
at_s real
""")  # fmt: skip

EXECUTIONS = _table("executions", "Members of dispatched groups: what `dispatched` counts", "execution_id text", """
group_id text
member int
purpose text
""")  # fmt: skip

ATTEMPTS = _table("attempts", "One attempt of an execution: leased, started, ended", "execution_id text, attempt int", """
sample_id text # primary key of all evidence
group_id text
holder text # gateway that leased it
leased_at_s real
environment text
image_digest text # reproducibility four (C11), said by the environment when it is built
seed int # reproducibility four
tool_versions_json text # reproducibility four
dependency_snapshot text # reproducibility four
started_at_s real # occupancy starts
is_replay bool # on a snapshot of an earlier attempt's environment (C3)
task_type text
tenant text
purpose text
ending text # completed, timed_out, failed, voided
reason text
detail text
outcome real # evaluation; NULL where there was none
evaluation_valid bool
evaluation_tries int
placeholder bool # nothing to evaluate at all (B4)
milestones_json text
milestone_turns_json text # model calls after which each milestone was first verified (D3)
evaluation_evidence_json text
turns int # book of turns, counted where the model is served (C6)
tokens_sampled int
calls int # call records that the gateway says are on the bus
external_calls int # book of calls, counted where tools are carried out (C6)
quota_left int # external calls still allowed, -1 without quota (C6)
occupancy_s real # book of occupancy, instance start to end (C6)
policy_version int
model_wait_s real # seconds its calls waited for a cell
snapshots int # ordinal of the newest snapshot (C4)
rollback_turns int # turns lost by going back (C4)
ended_at_s real
trace_id text
""")  # fmt: skip

CALLS = _table("calls", "CallRecorded without its tokens: one interaction turn", "call_id text", """
execution_id text
group_id text
sample_id text
attempt int
call_index int
purpose text
role text
role_rule text # header, the name of the rule, or default
parent text # call whose context it continues
prompt_tokens int
new_tokens int # prompt tokens that the parent's context did not hold
output_tokens int
version_min int # weight version of the sampled tokens: oldest (C7)
version_mean real # token-weighted mean
version_max int # newest
temperature real
top_p real
seed int
finish_reason text
cells_json text # cells that sampled it, more than one after a role change (A6)
delivered bool
started_at_s real
first_token_at_s real
at_s real
wait_s real # before a cell took it
""")  # fmt: skip

SET_ASIDE = _table("set_aside", "CallSetAside: call records that were left out of their tree", "call_id text", """
execution_id text
group_id text
attempt int
reason text # gyre.records.SET_ASIDE_REASONS
detail text
tokens int # output tokens lost to training
at_s real
""")  # fmt: skip

SAMPLES = _table("samples", "SampleReady", "sample_id text", """
execution_id text
group_id text
attempt int
task_type text
tenant text
reward real
rewards_json text # components (D4)
success bool # failure share kept (C10)
truncated bool # truncated share (C5)
advantage real
turns int
tokens_tree int
tokens_flat int
targets_chosen int
targets_sampled int
paths int
policy_version int # v_d; age = step - v_d (C8)
version_min int # weight versions (C7)
version_mean real
version_max int
at_s real
trace_id text
repeated_share real # tool calls that repeat an earlier one (D4)
segments int # its calls were cut into (D3)
kappa real # share of the execution's advantage in its calls' (D3)
segment_starts_json text # call index with which each segment begins
segment_advantages_json text # advantage of each segment's calls
origin text # first, resample, replay (C3)
elite_key text # of a success where there is an elite store: task and trained tokens (D9)
""")  # fmt: skip

SCORES = _table("scores", "RewardScored: what evaluators beside the environment said (D4)", "sample_id text, evaluator text", """
execution_id text
group_id text
attempt int
task_type text
kind text # guard, rule, learned, dense
value real # NULL where it could not be had: never a zero (B4)
valid bool
partial bool # the execution had been cut short
tries int
took_s real
evidence_json text
looked_at_json text
detail text # what went wrong at the last try
at_s real
trace_id text
""")  # fmt: skip

DROPS = _table("drops", "SampleDropped: the drop line at work (C9)", "sample_id text", """
execution_id text
group_id text
attempt int
task_type text
tenant text
reason text # gyre.records.DROP_REASONS
detail text
step int # whose batch it would have been in, -1 for none
age_steps int # sample age when it was dropped
waited_s real
turns int
tokens int
occupancy_s real
at_s real
trace_id text
""")  # fmt: skip

BATCH_GROUPS = _table("batch_groups", "BatchExtended and BatchClosed: groups of a batch", "step int, group_id text", """
turns int
turns_total int # accumulated turns after this group (C5)
samples int
at_s real
""")  # fmt: skip

BATCH_SAMPLES = _table("batch_samples", "BatchClosed: executions in the divisor", "step int, sample_id text", """
position int
""")  # fmt: skip

OVERDUE = _table("overdue", "BatchOverdue: what had not arrived when a batch's wait was over (C5)", "step int, ordinal int", """
policy text # trajproc.missing: later, wait, truncate, drop
executions int # that had not arrived
execution_ids_json text
turns int # that had
turns_target int
waited_s real # since the batch took its first group
at_s real
""")  # fmt: skip

BATCHES = _table("batches", "BatchClosed: the batch completion rule and what it did", "step int", """
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

ELITE_REPLAYS = _table("elite_replays", "BatchClosed: samples of the elite store that were trained again (D9)",
                       "step int, sample_id text", "position int")  # fmt: skip

STEPS = _table("steps", "StepOpened and StepUpdated", "step int", """
burst int
opened_at_s real
version int # policy version after the update
samples int # trained
metrics_json text
updated_at_s real
""")  # fmt: skip

STEP_SAMPLES = _table("step_samples", "StepUpdated: exactly the samples in its gradient", "step int, sample_id text", """
metrics_json text # mean ratio, clipped share, loss share as the trainer saw them
""")  # fmt: skip

MICRO = _table("micro", "BatchExtended and StepUpdated: micro-steps", "micro_id text", """
step int
group_id text
cell text # that computed it
""")  # fmt: skip

JOINS = _table("joins", "StepJoined (A8)", "step int, cell text, at_s real", """
mid_batch bool
version int
checksum text
""")  # fmt: skip

ROLE_CHANGES = _table("role_changes", "RoleChanged (A6)", "cell text, change int, phase text", """
target text
at_s real
duration_s real # own work of whoever reports the phase
burst int
moved_calls int
""")  # fmt: skip

WATERLEVEL = _table("waterlevel", "WaterlevelChanged (A3)",
                    "dispatched int, finished int, capacity int, burst int", """
waterlevel int
outstanding_groups int
policy_version int
at_s real
""")  # fmt: skip

WEIGHTS = _table("weights", "WeightsPublished (A4)", "version int", """
path text
checksum text
bytes int
at_s real
""")  # fmt: skip

BURSTS = _table("bursts", "BurstOpened: each boundary and what it decided (A4)", "burst int", """
first_step int # also the version published there
steps int # steps of the burst
need_groups int # to be dispatched at the boundary
carry_groups real
core_stays bool # the core's return rule
at_s real
extra_depth_steps real # in force
release_share real # in force
is_two_way bool
""")  # fmt: skip

PLANS = _table("plans", "PlanChosen: what the planner put in force (A9)", "plan int", """
steps_per_publish int
extra_depth_steps real
release_share real
is_two_way bool
order text
at_s real
predicted_gain real # share of time saved, by simulation
reason text
""")  # fmt: skip

CELL_REPORTS = _table("cell_reports", "CellReported: capacity that comes and goes", "cell text, at_s real", """
capacity int # executions; 0 is a lost cell
reason text
""")  # fmt: skip

COMMANDS = _table("commands", "ExecutionCommanded and what came of it (C2)", "execution_id text, ordinal int", """
group_id text
command text # suspend, resume, void, release
said_by text
reason text
commanded_at_s real
attempt int # that was suspended or resumed; the effects of void and release are in attempts
carried_out_at_s real # ExecutionSuspended or ExecutionResumed
""")  # fmt: skip

ALARMS = _table("alarms", "AlarmRaised", "key text", """
service text
kind text
message text
values_json text
at_s real
""")  # fmt: skip

SPANS = _table("spans", "OTLP spans; run is the resource's gyre.run", "trace_id text, span_id text", """
parent_id text # empty for a root
name text
service text # the resource's service.name
kind int
start_ns int
end_ns int
attributes_json text
links_json text # [[trace_id, span_id], ...]
links_dropped int
status int # OTLP: 0 unset, 1 ok, 2 error
status_message text
""")  # fmt: skip

MERGED = frozenset({ATTEMPTS.name, BATCH_GROUPS.name, STEPS.name, MICRO.name, COMMANDS.name})

for _name, _on in {
    "attempts": ("sample_id",), "calls": ("sample_id",), "step_samples": ("sample_id",), "batch_samples": ("sample_id",),
    "samples": ("execution_id",), "drops": ("execution_id",), "executions": ("group_id",),
}.items():  # fmt: skip
    sa.Index(f"{_name}_by_{_on[0]}", *(METADATA.tables[_name].c[column] for column in ("run", *_on)))
