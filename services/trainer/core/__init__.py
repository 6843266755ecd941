"""Decisions of the trainer as values: no torch, no bus, no clock. The shell in services/trainer performs them."""
