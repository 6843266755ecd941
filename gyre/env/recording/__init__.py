"""The record of an execution's turns and tool calls, and answering from it (C4; the core of the tool gateway).

    reply, call ──▶ Journal ──▶ carried out ──▶ redact ──▶ Tape (append-only, survives kill -9)
                       ▲
    the next attempt ──┘ the same replies; calls to the outside world are answered in order, and never made twice

| file | what |
|---|---|
| redaction.py | what counts as a secret, by rule (pure) |
| entries.py | what is on record, and how two calls differ (pure) |
| journal.py | where an execution stands in its record: repeats first, then new ones |
| tape.py | the file |
"""

from gyre.env.recording.entries import Called, Departed
from gyre.env.recording.journal import Journal
from gyre.env.recording.redaction import MASK, Redactor
from gyre.env.recording.tape import RecordDamaged, Tape

__all__ = ["MASK", "Called", "Departed", "Journal", "RecordDamaged", "Redactor", "Tape"]
