"""Shell of the gateway: HTTP and gRPC in, bus and cells out.

    harness ── POST /v1/{chat/completions,messages,responses} ─▶ http.py ─▶ callroles.py ─▶ calls.py ─▶ pool.py ── Generate ─▶ cells
                                                                                               │
    environment ── Attach ─▶ environments.py ─▶ leasing.py ────────────────────────────────────┴─▶ bus: CallRecorded, Execution{Leased,Started,Ended}
    scheduler, cells ── RoleChanged ─▶ roles.py ─▶ pool.py

| waits for | what |
|---|---|
| a reply | its CallRecorded is stored |
| Accepted | its ExecutionStarted or ExecutionEnded is stored |
| an acknowledged lease | its ExecutionEnded is stored |
| ExecutionEnded | the attempt's running calls are aborted and on record |
"""
