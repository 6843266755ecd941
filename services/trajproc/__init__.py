"""The trajectory processor: from call records to batches (B3–B7, C5, C8–C10).

    facts ──► core/fold.py ──► intents ──► app.py ──► SampleReady, SampleDropped, MicroStep, BatchExtended, BatchClosed, AlarmRaised
                 │ a complete group                          │ published in order, folded as they are
                 └─ batch.py (judge, take)                   └─ messages.py → build.py → tree.py → sampling.py → rows.py → pack.py

It waits for: executions to end (gateway), a step to open (core trainer). The core trainer waits for its micro-steps and BatchClosed, the
scheduler for the groups that batches consumed.
"""
