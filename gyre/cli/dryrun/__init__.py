"""What `gyre dry-run` does: the real services on the real bus, with cells, environments and trainers that only wait.

workload.py      how much work each execution is (pure)
environment.py   the emulated environment, and the tasks for it
model.py         a model directory with a tokenizer and no weights
configure.py     a run's configuration → the same run emulated, with time scaled; variants of a comparison
processes.py     which processes an emulated run has
measure.py       what is read off the facts of a run (pure)
predict.py       the simulator's word on the same configuration
compare.py       runs one after the other, and the table

Nothing of this is ever started by `gyre train`.
"""
