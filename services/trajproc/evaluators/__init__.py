"""Asking evaluators about executions that have ended (B4, D4): the thin shell around what core/scoring decides.

    questions of the pool ──▶ view.py: what an evaluator is shown ──▶ clients.py: HTTP or gRPC ──▶ tries.py: time-outs, back-off, budget
                                                                                                   │
    the fold ◀── facts stream ◀── RewardScored, valid or not ◀── asking.py: bounded concurrency ◀──┘

An answer counts when the fold meets its fact on the stream, at its place among the others' facts, and not when it is said: so a restart,
which folds the same stream, decides the same, and asks again only what is not on record.
"""
