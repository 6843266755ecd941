"""The ledger: everything the bus says, stored once, and every question about a run answered from it.

    facts stream ─▶ intake ─▶ core.rows ─▶ ┐                                  ┌─▶ queries ─▶ rpc (LedgerService)
    OTLP clients ─▶ otlp   ─▶ span rows  ─▶ ├─▶ storage.writer (one thread) ─▶ │   all by name in queries.asked
                                            ┘    one transaction a batch       database

| who | waits for |
|---|---|
| bus | the commit: a fact is acknowledged after its rows are stored, so kill -9 loses nothing |
| OTLP client | the commit, in the background of its process |
| query | nobody: readers have connections and snapshots of their own |

A fact is stored under its natural key (table `facts`), in the same transaction as the rows derived from it; a second delivery finds the key
and changes nothing. Of two different facts under one key the first stored one is the fact, as for every other reader of the stream.

What depends on more than one fact (how an attempt is shared out, which one counts) is not kept by fact but settled by group: storage.settling.
What a process does once and ends (a question, an export, an import, compaction) is in once; what may be deleted, in storage.compacting, and when
it is by itself, in retention; exported files as books again, in offline.
"""
