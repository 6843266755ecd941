"""Parts of `gyre bench gateway`.

rig.py     a run with a real bus, gateways and cells as processes, its executions leased by a fact
cell.py    a cell whose engine only waits
load.py    sessions that talk to the gateway, or to the cell without it
"""
