"""The first schema: all facts of one training run, and spans.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_KEY = {"primary_key": True, "nullable": False, "autoincrement": False}

_TEXT, _INT, _REAL, _BOOL = sa.Text, sa.BigInteger, sa.Double, sa.Boolean

_TABLES: dict[str, tuple[list[tuple[str, type]], list[tuple[str, type]]]] = {
    # table: (key, other columns)
    "facts": (
        [("run", _TEXT), ("key", _TEXT)],
        [("sequence", _INT)],
    ),
    "intake": (
        [("run", _TEXT)],
        [("stream_sequence", _INT), ("facts", _INT), ("spans", _INT)],
    ),
    "runs": (
        [("run", _TEXT), ("steps", _INT)],
        [("fingerprint", _TEXT), ("at_s", _REAL)],
    ),
    "groups": (
        [("run", _TEXT), ("group_id", _TEXT)],
        [("task_id", _TEXT), ("task_type", _TEXT), ("tenant", _TEXT), ("environment", _TEXT),
        ("purpose", _TEXT), ("seed", _INT), ("group_size", _INT), ("tier", _TEXT), ("temperature", _REAL),
        ("top_p", _REAL), ("limits_json", _TEXT), ("payload_json", _TEXT), ("at_s", _REAL)],
    ),
    "dispatches": (
        [("run", _TEXT), ("group_id", _TEXT), ("attempt_base", _INT)],
        [("task_type", _TEXT), ("tenant", _TEXT), ("purpose", _TEXT), ("tier", _TEXT), ("policy_version", _INT),
        ("queue_wait_s", _REAL), ("promotions", _INT), ("executions", _INT), ("fingerprint", _TEXT),
        ("at_s", _REAL)],
    ),
    "executions": (
        [("run", _TEXT), ("execution_id", _TEXT)],
        [("group_id", _TEXT), ("member", _INT), ("purpose", _TEXT)],
    ),
    "attempts": (
        [("run", _TEXT), ("execution_id", _TEXT), ("attempt", _INT)],
        [("sample_id", _TEXT), ("group_id", _TEXT), ("holder", _TEXT), ("leased_at_s", _REAL),
        ("environment", _TEXT), ("image_digest", _TEXT), ("seed", _INT), ("tool_versions_json", _TEXT),
        ("dependency_snapshot", _TEXT), ("started_at_s", _REAL), ("task_type", _TEXT), ("tenant", _TEXT),
        ("purpose", _TEXT), ("ending", _TEXT), ("reason", _TEXT), ("detail", _TEXT), ("outcome", _REAL),
        ("evaluation_valid", _BOOL), ("evaluation_tries", _INT), ("placeholder", _BOOL),
        ("milestones_json", _TEXT), ("evaluation_evidence_json", _TEXT), ("turns", _INT),
        ("tokens_sampled", _INT), ("calls", _INT), ("external_calls", _INT), ("quota_left", _INT),
        ("occupancy_s", _REAL), ("policy_version", _INT), ("model_wait_s", _REAL), ("snapshots", _INT),
        ("rollback_turns", _INT), ("ended_at_s", _REAL), ("trace_id", _TEXT)],
    ),
    "calls": (
        [("run", _TEXT), ("call_id", _TEXT)],
        [("execution_id", _TEXT), ("group_id", _TEXT), ("sample_id", _TEXT), ("attempt", _INT),
        ("call_index", _INT), ("purpose", _TEXT), ("role", _TEXT), ("parent", _TEXT), ("prompt_tokens", _INT),
        ("new_tokens", _INT), ("output_tokens", _INT), ("version_min", _INT), ("version_mean", _REAL),
        ("version_max", _INT), ("temperature", _REAL), ("top_p", _REAL), ("seed", _INT),
        ("finish_reason", _TEXT), ("cells_json", _TEXT), ("delivered", _BOOL), ("started_at_s", _REAL),
        ("first_token_at_s", _REAL), ("at_s", _REAL), ("wait_s", _REAL)],
    ),
    "samples": (
        [("run", _TEXT), ("sample_id", _TEXT)],
        [("execution_id", _TEXT), ("group_id", _TEXT), ("attempt", _INT), ("task_type", _TEXT),
        ("tenant", _TEXT), ("reward", _REAL), ("rewards_json", _TEXT), ("success", _BOOL), ("truncated", _BOOL),
        ("advantage", _REAL), ("turns", _INT), ("tokens_tree", _INT), ("tokens_flat", _INT),
        ("targets_chosen", _INT), ("targets_sampled", _INT), ("paths", _INT), ("policy_version", _INT),
        ("version_min", _INT), ("version_mean", _REAL), ("version_max", _INT), ("at_s", _REAL),
        ("trace_id", _TEXT)],
    ),
    "drops": (
        [("run", _TEXT), ("sample_id", _TEXT)],
        [("execution_id", _TEXT), ("group_id", _TEXT), ("attempt", _INT), ("task_type", _TEXT),
        ("tenant", _TEXT), ("reason", _TEXT), ("detail", _TEXT), ("step", _INT), ("age_steps", _INT),
        ("waited_s", _REAL), ("turns", _INT), ("tokens", _INT), ("occupancy_s", _REAL), ("at_s", _REAL),
        ("trace_id", _TEXT)],
    ),
    "batch_groups": (
        [("run", _TEXT), ("step", _INT), ("group_id", _TEXT)],
        [("turns", _INT), ("turns_total", _INT), ("samples", _INT), ("at_s", _REAL)],
    ),
    "batch_samples": (
        [("run", _TEXT), ("step", _INT), ("sample_id", _TEXT)],
        [("position", _INT)],
    ),
    "batches": (
        [("run", _TEXT), ("step", _INT)],
        [("cause", _TEXT), ("turns", _INT), ("turns_target", _INT), ("groups", _INT), ("samples", _INT),
        ("micros", _INT), ("divisor", _INT), ("truncated_share", _REAL), ("failed_share_json", _TEXT),
        ("no_gradient", _BOOL), ("staleness_mean", _REAL), ("staleness_max", _INT), ("at_s", _REAL)],
    ),
    "steps": (
        [("run", _TEXT), ("step", _INT)],
        [("burst", _INT), ("opened_at_s", _REAL), ("version", _INT), ("samples", _INT), ("metrics_json", _TEXT),
        ("updated_at_s", _REAL)],
    ),
    "step_samples": (
        [("run", _TEXT), ("step", _INT), ("sample_id", _TEXT)],
        [("metrics_json", _TEXT)],
    ),
    "micro": (
        [("run", _TEXT), ("micro_id", _TEXT)],
        [("step", _INT), ("group_id", _TEXT), ("cell", _TEXT)],
    ),
    "joins": (
        [("run", _TEXT), ("step", _INT), ("cell", _TEXT), ("at_s", _REAL)],
        [("mid_batch", _BOOL), ("version", _INT), ("checksum", _TEXT)],
    ),
    "role_changes": (
        [("run", _TEXT), ("cell", _TEXT), ("change", _INT), ("phase", _TEXT)],
        [("target", _TEXT), ("at_s", _REAL), ("duration_s", _REAL), ("burst", _INT), ("moved_calls", _INT)],
    ),
    "waterlevel": (
        [("run", _TEXT), ("dispatched", _INT), ("finished", _INT), ("capacity", _INT), ("burst", _INT)],
        [("waterlevel", _INT), ("outstanding_groups", _INT), ("policy_version", _INT), ("at_s", _REAL)],
    ),
    "weights": (
        [("run", _TEXT), ("version", _INT)],
        [("path", _TEXT), ("checksum", _TEXT), ("bytes", _INT), ("at_s", _REAL)],
    ),
    "alarms": (
        [("run", _TEXT), ("key", _TEXT)],
        [("service", _TEXT), ("kind", _TEXT), ("message", _TEXT), ("values_json", _TEXT), ("at_s", _REAL)],
    ),
    "spans": (
        [("run", _TEXT), ("trace_id", _TEXT), ("span_id", _TEXT)],
        [("parent_id", _TEXT), ("name", _TEXT), ("service", _TEXT), ("kind", _INT), ("start_ns", _INT),
        ("end_ns", _INT), ("attributes_json", _TEXT), ("links_json", _TEXT), ("links_dropped", _INT),
        ("status", _INT), ("status_message", _TEXT)],
    ),
}  # fmt: skip

_INDEXES = [
    ("attempts_by_sample_id", "attempts", ["run", "sample_id"]),
    ("batch_samples_by_sample_id", "batch_samples", ["run", "sample_id"]),
    ("calls_by_sample_id", "calls", ["run", "sample_id"]),
    ("drops_by_execution_id", "drops", ["run", "execution_id"]),
    ("executions_by_group_id", "executions", ["run", "group_id"]),
    ("samples_by_execution_id", "samples", ["run", "execution_id"]),
    ("step_samples_by_sample_id", "step_samples", ["run", "sample_id"]),
]


def upgrade() -> None:
    for table, (key, columns) in _TABLES.items():
        op.create_table(
            table,
            *(sa.Column(name, kind, **_KEY) for name, kind in key),
            *(sa.Column(name, kind) for name, kind in columns),
        )
    for name, table, columns in _INDEXES:
        op.create_index(name, table, columns)
