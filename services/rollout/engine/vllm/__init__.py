"""vLLM as the engine of a cell: a server of its own environment on a unix socket that only this cell can open, behind the interface of
the embedded engine.

    submit ─▶ calls.py ─▶ client.py ═ HTTP, server-sent events ═▶ vLLM server ─▶ engine core ─▶ worker + plugin/
    load   ─▶ updating.py (core/weight_update.py decides) ═▶ pause, start, update, finish, digest, reset, resume

| file | owns |
|---|---|
| wire.py | requests and chunks as vLLM's endpoints speak them (pure) |
| calls.py | one call: tokens as they come, whose weights sampled them, delivery |
| client.py | HTTP over the socket, every request with a time-out |
| process.py | vLLM's processes: command line, health, last words, end of the whole group |
| published.py | a published file: checked against the model, its digest as it will serve |
| sending.py | the cell's side of a transfer by gloo |
| updating.py | carries out the transition table of core/weight_update.py |
| engine.py | the engine: a thread with a loop of its own; calls, commands, watch over the process |
| plugin/ | what vLLM's own processes load, by PYTHONPATH and entry point |

docs/vllm.md says how to set it up, what was measured, and what vLLM does differently from the embedded engine.
"""
