"""The trace explorer: pages on which staleness explains itself, served by the ledger's own process.

    browser ──▶ server.py ──▶ gyre.rpc.signin (who is it, which tenant's rows)
                   │  └─────▶ scope.py  (the address's filters) ──▶ answers/*.py ──▶ read snapshot of the books
                   └────────▶ static/   (pages and vendored libraries, as they stand in the repository; no build)

| answer | screen |
|---|---|
| answers/lanes.py | time × policy version, an execution a bar, cells' roles below |
| answers/age.py | age by step; where the age came from |
| answers/sample.py, tokens.py | one sample: its tree, its tokens, its place in the batch |
| answers/lineage.py | step ↔ samples ↔ groups ↔ versions |
| answers/drops.py | what was lost, and whether the long ones lose |
| answers/pressure.py | waterlevel, capacity, backlogs, idle cells |
| answers/listing.py, export.py | the rows behind every point; JSON lines, Perfetto |

Answers are pure functions from a read connection and a scope to a dictionary; each runs in a thread on a snapshot of its own, so a page never holds
the books up. A session that is a tenant's has the tenant in its scope, and every query narrows by it.
"""
