"""The run itself: facts, intake, alarms, spans."""

from services.ledger.core.schema import table

FACTS = table("facts", "Every fact that was taken in, by natural key", "key text", "sequence int # in the facts stream")

INTAKE = table("intake", "How far the intake has come, kept in the same transactions", "", """
stream_sequence int # newest fact stored
facts int # facts stored, each counted once
spans int # spans stored, each counted once
""")  # fmt: skip

RUNS = table("runs", "RunStarted", "steps int", """
fingerprint text # configuration fingerprint, on every sample of the run (C7)
at_s real
""")  # fmt: skip

ALARMS = table("alarms", "AlarmRaised", "key text", """
service text
kind text
message text
values_json text
at_s real
""")  # fmt: skip

SPANS = table("spans", "OTLP spans; run is the resource's gyre.run", "trace_id text, span_id text", """
parent_id text # empty for a root
name text
service text # the resource's service.name
kind int
start_ns int
end_ns int
attributes_json text
links_json text # [[trace_id, span_id], ...]
links_dropped int
status int # OTLP: 0 unset, 1 ok, 2 error
status_message text
""")  # fmt: skip

SPANS_DELETED = table("spans_deleted", "What is left of spans that were deleted: up to when", "", """
before_ns int # spans that ended earlier may be gone
""")  # fmt: skip
