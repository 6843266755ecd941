"""The field table of the mission (C13): where each field that must be collected is stored."""

FIELD_TABLE: dict[str, tuple[str, ...]] = {
    # scheduling
    "duration tier": ("groups.tier", "dispatches.tier"),
    "queue wait": ("dispatches.queue_wait_s",),
    "promotions": ("dispatches.promotions",),
    "snapshot ordinal": ("attempts.snapshots",),
    "rollback loss": ("attempts.rollback_turns",),
    "batch completion rule": ("batches.cause", "batches.turns", "batches.turns_target"),
    # accounting
    "interaction turns": ("calls.call_id", "attempts.turns"),
    "environment occupancy": ("attempts.started_at_s", "attempts.ended_at_s", "attempts.occupancy_s"),
    "external calls": ("attempts.external_calls",),
    "quota left": ("attempts.quota_left",),
    # evidence
    "weight version": (
        "calls.version_min", "calls.version_mean", "calls.version_max",
        "samples.version_min", "samples.version_mean", "samples.version_max",
    ),
    "config fingerprint": ("dispatches.fingerprint", "runs.fingerprint"),
    "sample age": ("samples.policy_version", "drops.age_steps"),
    "drop count": ("drops.reason",),
    "failure share kept": ("batches.failed_share_json", "samples.success"),
    "image digest": ("attempts.image_digest",),
    "seed": ("attempts.seed",),
    "tool versions": ("attempts.tool_versions_json",),
    "dependency snapshot": ("attempts.dependency_snapshot",),
}  # fmt: skip
"""Field of the design's table → `table.column`, the first being where it is collected."""

COST_COLUMNS: dict[str, str] = {
    "task": "groups.task_id",
    "task type": "groups.task_type",
    "tenant": "groups.tenant",
    "model version": "usage.version",
    "retry count": "costs.attempt",
    "occupancy": "costs.occupancy_s",
    "external calls": "costs.external_calls",
    "turns": "costs.turns",
    "tokens sampled": "costs.tokens",
    "tokens trained": "costs.targets",
    "training seconds": "costs.compute_s",
}
"""What a bill is grouped by and adds up (C12)."""
