"""All processes of a run on one machine: bus, services, cells, environments; started, watched, stopped in order.

plan.py        which processes, in which order, with which command and variables (pure)
ports.py       an address for each endpoint
restarts.py    when a dead process comes back, and when the run has failed (pure)
child.py       one process: start, log, death, stop
supervisor.py  the whole
"""

from gyre.supervisor.child import ProcessFailed
from gyre.supervisor.supervisor import Supervisor

__all__ = ["ProcessFailed", "Supervisor"]
