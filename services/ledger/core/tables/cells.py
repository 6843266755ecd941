"""Cells and the scheduler's decisions about them."""

from services.ledger.core.schema import table

ROLE_CHANGES = table("role_changes", "RoleChanged (A6)", "cell text, change int, phase text", """
target text
at_s real
duration_s real # own work of whoever reports the phase
burst int
moved_calls int
""")  # fmt: skip

WATERLEVEL = table("waterlevel", "WaterlevelChanged (A3)",
                    "dispatched int, finished int, capacity int, burst int", """
waterlevel int
outstanding_groups int
policy_version int
at_s real
""")  # fmt: skip

BURSTS = table("bursts", "BurstOpened: each boundary and what it decided (A4)", "burst int", """
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

PLANS = table("plans", "PlanChosen: what the planner put in force (A9)", "plan int", """
steps_per_publish int
extra_depth_steps real
release_share real
is_two_way bool
order text
at_s real
predicted_gain real # share of time saved, by simulation
reason text
""")  # fmt: skip

CELL_REPORTS = table("cell_reports", "CellReported: capacity that comes and goes", "cell text, at_s real", """
capacity int # executions; 0 is a lost cell
reason text
""")  # fmt: skip
