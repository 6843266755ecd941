"""What trajectories became: samples, scores, drops, call records set aside."""

from services.ledger.core.schema import table

SET_ASIDE = table("set_aside", "CallSetAside: call records that were left out of their tree", "call_id text", """
execution_id text
group_id text
attempt int
reason text # gyre.records.SET_ASIDE_REASONS
detail text
tokens int # output tokens lost to training
at_s real
""")  # fmt: skip

SAMPLES = table("samples", "SampleReady", "sample_id text", """
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

SCORES = table("scores", "RewardScored: what evaluators beside the environment said (D4)", "sample_id text, evaluator text", """
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

DROPS = table("drops", "SampleDropped: the drop line at work (C9)", "sample_id text", """
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

WEIGHINGS = table("weighings", "RewardWeighed: what a reward model weighs by people's agreement (D8)", "evaluator text, at_s real", """
weight real # in force from then on
share real # of the configured weight
agreement real
low real # lower bound of its 95 % interval
pairs int
""")  # fmt: skip

JUDGEMENTS = table("judgements", "Imported: what a person or a model said of a sample (D8)", "judge text, sample_id text", """
kind text # person or model
score real # higher is better; compared within one judge only
task_type text # of the sample
at_s real # when it was judged
source text # file it came from
imported_at_s real
""")  # fmt: skip
