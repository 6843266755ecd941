"""The rollout service: model calls for executions, recorded token by token, on cells whose roles change underneath.

    harness ── OpenAI HTTP, key of its execution ─▶ gateway ── gRPC ─▶ cell i: engine
    environment ── gRPC Attach ──────────────────▶   │
                                                     └─▶ bus: CallRecorded, Execution{Leased, Started, Ended}, RoleChanged

| folder | what |
|---|---|
| core/ | pure: normal form, token trie, rendering, tool calls, routing, leases, keys, what environments may say |
| gateway/ | `python -m services.rollout --run DIR`: HTTP, Attach, leases, routing; no torch |
| cell/ | `python -m services.rollout.cell --run DIR --cell i`: the engine behind CellService, its role |
| engine/ | continuous batching in a thread of its own; torch |
"""
