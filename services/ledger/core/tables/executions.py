"""What was to be done and what was done: groups, dispatches, attempts, calls, commands."""

from services.ledger.core.schema import table

GROUPS = table("groups", "GroupSubmitted: what was to be done", "group_id text", """
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

DISPATCHES = table("dispatches", "GroupDispatched", "group_id text, attempt_base int", """
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

EXECUTIONS = table("executions", "Members of dispatched groups: what `dispatched` counts", "execution_id text", """
group_id text
member int
purpose text
""")  # fmt: skip

ATTEMPTS = table("attempts", "One attempt of an execution: leased, started, ended", "execution_id text, attempt int", """
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

CALLS = table("calls", "CallRecorded without its tokens: one interaction turn", "call_id text", """
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

COMMANDS = table("commands", "ExecutionCommanded and what came of it (C2)", "execution_id text, ordinal int", """
group_id text
command text # suspend, resume, void, release
said_by text
reason text
commanded_at_s real
attempt int # that was suspended or resumed; the effects of void and release are in attempts
carried_out_at_s real # ExecutionSuspended or ExecutionResumed
""")  # fmt: skip

COMPACTED = table("compacted", "What is left of call rows that were deleted: their counts, so that books and balances stay", "sample_id text", """
execution_id text
purpose text
records int # call records
answered int # of them not cut off: turns
tokens int # sampled
compacted_at_s real
""")  # fmt: skip
