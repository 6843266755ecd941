"""A Gymnasium environment served to a Gyre run."""
