"""State of an environment that survives: working trees by content, when to keep one, what goes back to one (C4).

    step ──▶ Spacing.is_due ──▶ Series.take ──▶ Store: files and listings by sha256
                                   │
    Rollback, the next attempt ────┴─ Series.restore ──▶ the tree as it was, bit for bit

| file | what |
|---|---|
| manifest.py | what a snapshot is made of, and what may not be in one (pure) |
| spacing.py | after how many turns the next one is due (pure) |
| trees.py | folders by descriptor, never through a link; a tree written beside its place and exchanged for it |
| objects.py | contents of files, each once, copied by reference where the file system can |
| reading.py | one pass over a tree, which must not change meanwhile |
| store.py | manifests, references, collection of what nobody refers to |
| series.py | one execution's snapshots, by ordinal |
"""

from gyre.env.snapshots.manifest import Limits, TooLarge
from gyre.env.snapshots.objects import SnapshotDamaged
from gyre.env.snapshots.reading import TreeChanged
from gyre.env.snapshots.series import Series, Snapshot
from gyre.env.snapshots.store import Store

__all__ = ["Limits", "Series", "Snapshot", "SnapshotDamaged", "Store", "TooLarge", "TreeChanged"]
