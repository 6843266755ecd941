"""Gyre: online reinforcement learning for language-model agents whose tasks last hours.

This package holds what the five services share and what users import; the services live in `services/`
and are never imported from here.
"""

__version__ = "0.1.0"
