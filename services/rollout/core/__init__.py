"""Pure core of the rollout service: from messages to tokens and back, routing, leases. No I/O, no clock, no randomness.

request.py ─▶ normal.py ─▶ trie.py ─▶ render.py (template.py) ─▶ prompt ids ─▶ [cell] ─▶ toolcalls.py ─▶ reply.py
  checked      normal form   known       new messages only                      tokens     message        wire form
                             tokens
"""
