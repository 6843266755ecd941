"""Pure functions from facts to decisions: no clock, no randomness of its own, no network."""
