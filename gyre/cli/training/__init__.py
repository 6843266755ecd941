"""What `gyre train` does.

model.py      a model directory, made and warm-started where none is given
tasks.py      the configured source of tasks, as the scheduler takes them
progress.py   the run as a fold of its facts (pure)
panel.py      what is shown of it
drive.py      start, evaluate, train, evaluate, audit
summary.py    the JSON summary (pure)
"""
