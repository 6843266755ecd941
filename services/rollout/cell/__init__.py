"""One rollout cell: the embedded engine behind CellService, loaded and unloaded as its role changes.

gateway ── Generate, Abort, Drain ─▶ servicer.py ─▶ engine (own thread) ─▶ bridge.py ─▶ stream
bus ── RoleChanged, WeightsPublished ─▶ roles.py ─▶ engine.load, unload, load_weights
"""
