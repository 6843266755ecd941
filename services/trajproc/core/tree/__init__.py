"""Call records of one attempt → token-exact prefix tree (B3).

    call 0   [1 2 3]→[4 5]                     1 2 3 ─┬─ 4 5 │ 6 │ 7 8    (call 1 continues call 0: one path)
    call 1   parent 0, 5 tokens, +[6]→[7 8]           │
    call 2   parent 0, 3 tokens, +[99]→[5]            └─ 99 │ 5           (call 2 was cut at 3: a path of its own)

    problems.py   is a record sound?                builder.py, runs.py   records in any order → runs that share what they share
    freeze.py     runs → nodes, in one order        tree.py               the nodes, and questions about them

Tokens are never copied: builder and tree are integers beside the records, and views on them. A record's new tokens are compared only where
somebody's tokens stand already, so a tree costs time and memory linear in the *new* tokens, whatever the contexts add up to.

What does not arrive as it should has a meaning:

| case | meaning |
|---|---|
| a call id seen twice | a redelivery: the first counts |
| records in any order | the same tree, to the bit and to the node; a record whose parent is not here yet waits |
| a parent that never comes, or is set aside | an orphan: its context cannot be known, so it is set aside, and so is what hangs from it |
| a parent of another execution or attempt | set aside as `foreign_parent` |
| lengths that do not add up, a cut beyond the parent's context | set aside as `lengths`; see problems.py for the other reasons |
| no parent | hangs from the root, sharing what it shares token by token |
| a parent cut anywhere, in mid-output too | continues from there; the output's rest stays a path of its own |
| a prompt equal to a context (no new token) | shares the node and samples below it |
| an output of no tokens | the call ends where its prompt ends; it owns nothing, and its prompt may still be a leaf |
| two calls sampled the same token in the same context (a race, a retry) | one token, of one owner: a trained role first, then the earlier call |
| two calls racing from the same context that sample differently | two branches; both are trained, each in its own |
| a reply that was never delivered | in the tree, but its end is no leaf of sampling unless something continues from it |
| an aborted call that went on under newer weights | one output; versions stay with their tokens |
"""

from services.trajproc.core.tree.builder import TreeBuilder, build_tree
from services.trajproc.core.tree.problems import Known, Problem, problem_of
from services.trajproc.core.tree.tree import NOT_SAMPLED, ROOT, Shape, Tree

__all__ = [
    "NOT_SAMPLED",
    "ROOT",
    "Known",
    "Problem",
    "Shape",
    "Tree",
    "TreeBuilder",
    "build_tree",
    "problem_of",
]
