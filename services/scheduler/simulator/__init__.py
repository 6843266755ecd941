"""A discrete-event world around the scheduler's own core (A10): `simulate(spec, seed) → Result`.

spec.py      what is simulated, from TOML          rollout.py   queue, placement, moves, wall limit
workload.py  groups and their work                 training.py  batches, steps, publishes, as a fluid
cells.py     cells with a clock of work            roles.py     role changes and their costs, failures
clock.py     virtual time                          world.py     all of them around `apply` and `decide`
measures.py  what a run is judged by               run.py       one run, measured
"""

from services.scheduler.simulator.measures import Result, Trace
from services.scheduler.simulator.run import simulate, traced
from services.scheduler.simulator.spec import Spec, changed, load, merged, parse

__all__ = ["Result", "Spec", "Trace", "changed", "load", "merged", "parse", "simulate", "traced"]
