"""Snapshots of the processor's fold (gyre.folds): a restart reads the calls of what is in flight, and not those of the whole run.

The state is a graph of plain objects and arrays, pickled: the file lies in the run's own folder, which is as trusted as the checkpoints and the code
beside it, and it is read only when its digest, the code's and the configuration's are right.
"""

import pickle
from pathlib import Path

import gyre.config
import gyre.ids
import gyre.records
import services.trajproc.core
from gyre.errors import InvalidInput
from gyre.folds import Snapshots, code_digest
from services.trajproc.core.fold import Processor

SOURCES = (services.trajproc.core, gyre.records, gyre.config, gyre.ids)
"""Whose source decides what a state is."""
NOT_STATE = "elite_rows"
"""The shell's, given anew at each start."""


def open_snapshots(folder: Path, stream: str, fingerprint: str) -> Snapshots:
    """`fingerprint` of the configuration, which the state depends on."""
    return Snapshots(folder, "trajproc", stream, f"{code_digest(SOURCES)}.{fingerprint}")


def encode(processor: Processor) -> bytes:
    """All that the fold has made of the facts up to now."""
    return pickle.dumps({name: value for name, value in vars(processor).items() if name != NOT_STATE}, 5)


def restore(processor: Processor, data: bytes) -> Processor:
    """`processor`, new, becomes the one that was encoded. Raises InvalidInput when it was another kind of thing."""
    try:
        state = pickle.loads(data)
    except Exception as error:  # anything may come of bytes that fit by accident
        raise InvalidInput(f"it cannot be read: {error!r}") from error
    if state.keys() != vars(processor).keys() - {NOT_STATE}:
        raise InvalidInput("it has other parts")
    vars(processor).update(state)
    return processor
