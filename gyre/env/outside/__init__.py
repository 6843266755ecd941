"""The tool gateway: what an execution calls beyond its world goes through here, is recorded, counted, and answered from the record (C4, C6).

    tool in the sandbox ── HTTP proxy, MCP ──▶ Gate ──▶ far end
                                                 │
                                              Journal (gyre.env.recording): request, reply, time, quota left; secrets redacted

| file | what |
|---|---|
| gate.py | one execution's calls, whatever their form: quota, order, record, repeat |
| proxy.py | HTTP forward proxy; https tunnelled, or read along with a certificate authority of our own (certificates.py) |
| relay.py | MCP server in front of other MCP servers |
| wire.py | HTTP/1.1 on one connection, with bounds |
| gateway.py | the listener: which execution asks, which form |
| __main__.py | the gateway as a process of its own, and the stdio end of its MCP form |
"""

from gyre.env.outside.gate import Gate, QuotaUsedUp
from gyre.env.outside.gateway import Outside, ToolGateway, Way, usage
from gyre.env.outside.proxy import Rules

__all__ = ["Gate", "Outside", "QuotaUsedUp", "Rules", "ToolGateway", "Way", "usage"]
