"""What people and models said of samples, from a file into the books (D8).

CSV with a header, JSON lines, or Parquet, by the file's ending; one judgement a row:

    sample_id   a sample of the run
    score       a decimal number, higher is better; only compared with the same judge's others
    judge       who: a person's name, or a model's (the name of its [[evaluators]] section, where it is one)
    kind        person (default) or model
    at_s        when, Unix seconds (not milliseconds or nanoseconds) or ISO 8601; by default when it is imported

Rows that say nothing usable are named and left out; the others are stored. The same judge's later word about a sample replaces the earlier.
"""

import csv
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from gyre.errors import ConfigError, InvalidInput
from gyre.numbers import real
from services.ledger.core.moments import moment_s
from services.ledger.core.parts import AT_ONCE, in_parts
from services.ledger.core.rows import text
from services.ledger.core.tables.samples import JUDGEMENTS
from services.ledger.storage import Database

KINDS = ("person", "model")
ROWS_AT_ONCE = AT_ONCE // 2
"""Each is looked up twice by one statement."""
REFUSED_SHOWN = 20
LINE_BYTES_MAX = 1 << 20
SCORE_MAX = 1e100
"""Either way: scores are averaged and compared, which must stay inside what a number can hold."""
_UNUSABLE = (InvalidInput, ValueError, TypeError, OverflowError, RecursionError)
"""A row's own fault, whatever is found where a number or a word should be."""

_KNOWN = sa.text(
    "SELECT sample_id, task_type FROM samples WHERE run = :run AND sample_id IN :names "
    "UNION SELECT sample_id, task_type FROM attempts WHERE run = :run AND sample_id IN :names AND task_type IS NOT NULL"
).bindparams(sa.bindparam("names", expanding=True))  # fmt: skip


def import_judgements(database: Database, run: str, path: Path, now_s: float) -> dict[str, Any]:
    """{stored, refused: n, examples: [{row, why}]}. Raises InvalidInput for a file that cannot be read at all."""
    insert = (sqlite.insert if database.is_sqlite else postgresql.insert)(JUDGEMENTS)
    others = ("kind", "score", "task_type", "at_s", "source", "imported_at_s")
    insert = insert.on_conflict_do_update(
        index_elements=["run", "judge", "sample_id"], set_={name: insert.excluded[name] for name in others}
    )
    stored, refused = 0, []
    for batch in in_parts(_rows(path), ROWS_AT_ONCE):
        good = []
        for number, row in batch:
            try:
                good.append((number, _judgement(row, now_s)))
            except _UNUSABLE as error:
                refused.append({"row": number, "why": str(error)})
        with database.writing.begin() as connection:
            names = [one["sample_id"] for _, one in good]
            types = (
                {row.sample_id: row.task_type for row in connection.execute(_KNOWN, {"run": run, "names": names})}
                if names
                else {}
            )
            refused += [
                {"row": number, "why": f"no sample {one['sample_id']} in run {run}"}
                for number, one in good
                if one["sample_id"] not in types
            ]
            known = {(one["judge"], one["sample_id"]): one for _, one in good if one["sample_id"] in types}
            about = {"run": run, "source": text(path.name), "imported_at_s": now_s}
            if known:
                connection.execute(
                    insert, [{**one, "task_type": types[one["sample_id"]], **about} for one in known.values()]
                )
        stored += len(known)
    return {"stored": stored, "refused": len(refused), "examples": refused[:REFUSED_SHOWN]}


def _judgement(row: dict[str, Any], now_s: float) -> dict[str, Any]:
    """Raises one of _UNUSABLE with what is wrong."""
    missing = [name for name in ("sample_id", "judge", "score") if row.get(name) in (None, "")]
    if missing:
        raise InvalidInput(f"no {', '.join(missing)}")
    score, kind = real(row["score"]), str(row.get("kind") or "person")
    if not abs(score) <= SCORE_MAX:
        raise InvalidInput(f"score {score:g} is no number from -{SCORE_MAX:g} to {SCORE_MAX:g}")
    if kind not in KINDS:
        raise InvalidInput(f"kind {kind!r}: one of {', '.join(KINDS)}")
    return {
        "sample_id": _word(row["sample_id"]), "judge": _word(row["judge"]), "kind": kind, "score": score,
        "at_s": _moment_s(row.get("at_s"), now_s),
    }  # fmt: skip


def _word(value: Any) -> str:
    """Raises ValueError for half a character, which JSON can write and no database keeps."""
    word = text(str(value))
    word.encode()
    return word


def _moment_s(value: Any, now_s: float) -> float:
    if value in (None, ""):
        return now_s
    try:
        seconds = real(value)
    except (TypeError, ValueError):
        seconds = datetime.datetime.fromisoformat(str(value)).timestamp()
    return moment_s("at_s", seconds)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number of the row, from 1, its columns)."""
    readers = {".csv": _csv, ".jsonl": _json_lines, ".parquet": _parquet}
    reader = readers.get(path.suffix)
    if reader is None:
        raise InvalidInput(f"{path}: the name of a file of judgements ends in {', '.join(readers)}")
    try:
        yield from enumerate(reader(path), 1)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        yield from csv.DictReader(file)


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in iter(lambda: file.readline(LINE_BYTES_MAX), ""):
            if line.strip():
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    row = {}
                yield row if isinstance(row, dict) else {}


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise ConfigError("reading Parquet needs pyarrow: pip install 'gyre-rl[export]'") from error
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"{path} is no Parquet file: {error}") from error
