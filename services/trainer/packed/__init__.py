"""Training on packed trees (B8): every token of a chosen subtree once, attention along its own ancestors only.

    rows ──forest.py──▶ Forest [T]: tokens depth-first, positions, ends of subtrees
                          │
                          ├─plan.py─▶ blocks of queries and their keys ──trail.py, blocks.py──▶ attention on a CPU
                          └─flex.py─▶ BlockMask ───────────────────────────────────────────────▶ attention on a GPU

`attention.py` is what a model calls (transformers' attention interface); `support.py` decides whether it may be called that way; `flat.py`
computes path by path what may not.
"""
