"""The ledger at size: `gyre bench ledger --json [--millions 1 10] [--folder DIR]`, SQLite, N million facts each.

    intake_per_s          facts stored a second by the writer into an empty database, in transactions as the intake makes them (500), each on disk
    intake_per_s_<N>m     the same into one of N million facts, after which its books balance: balance_<N>m
    explain_ms_p95_<N>m   one sample's page, over 200 samples
    bill_s_max_<N>m       the slowest bill by any two dimensions; bill_cpu_s_max_<N>m: most processor seconds, which a busy machine changes less
    page_s_<N>m           the slowest of the explorer's pages, through HTTP, nothing kept from an earlier one; page_cpu_s_max_<N>m as above
    books_s_<N>m, doctor_s_<N>m   `gyre books`, `gyre doctor`

A million facts take 0.35 GB and ten seconds to load, ten million ten times that. With --folder the databases stay there, and are loaded once.
"""

import argparse
import itertools
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.ledger_parts.load import load, stored_per_s
from benchmarks.ledger_parts.page import page_s
from benchmarks.ledger_parts.told import RUN, told
from gyre.config import Config
from gyre.config.load import parse
from services.ledger.memory import look_less
from services.ledger.queries import audit, bill, books, doctor, explain
from services.ledger.queries.bill import DIMENSIONS
from services.ledger.storage import Database

EXPLAINED = 200
FRESH_GROUPS = 300
"""Some 62,000 facts: sustained for many times the length of a transaction."""
FRESH_FIRST = 10_000_000
"""Numbers of fresh groups, beyond those of all copies."""


def measure(database: Database, config: Config, size: str) -> dict[str, Any]:
    """Seconds and milliseconds of questions, each asked on a snapshot of its own as the service does."""
    with database.read() as connection:
        every = connection.scalars(sa.text("SELECT sample_id FROM samples")).all()
    took_ms = sorted(1e3 * _timed(database, explain, sample) for sample in random.Random(1).choices(every, k=EXPLAINED))
    bills, cpu_s = {}, []
    for pair in itertools.combinations(DIMENSIONS, 2):
        begin_s = time.process_time()
        bills[pair] = _timed(database, bill, config, pair)
        cpu_s.append(time.process_time() - begin_s)
    slowest = max(bills, key=lambda pair: bills[pair])
    return {
        f"explain_ms_p95_{size}": round(took_ms[int(0.95 * EXPLAINED)], 2), f"bill_s_max_{size}": round(bills[slowest], 3),
        f"bill_slowest_{size}": ",".join(slowest), f"bill_cpu_s_max_{size}": round(max(cpu_s), 3),
        f"books_s_{size}": round(_timed(database, books, config), 2), f"doctor_s_{size}": round(_timed(database, doctor, config), 2),
    }  # fmt: skip


def _timed(database: Database, question, *arguments) -> float:
    begin_s = time.perf_counter()
    with database.read() as connection:
        question(connection, RUN, *arguments)
    return time.perf_counter() - begin_s


def sustained(database: Database, config: Config, size: str) -> dict[str, Any]:
    """Fresh facts into the full database, and whether what the audit balances still does."""
    with database.read() as connection:
        there = connection.scalar(sa.text("SELECT count(*) FROM groups WHERE group_id LIKE 'g%'"))
    per_s = stored_per_s(database, told(FRESH_FIRST + there, FRESH_GROUPS))
    with database.read() as connection:
        balances = [one for one in audit(connection, RUN, config) if one.name.startswith("balance_")]
    return {f"intake_per_s_{size}": round(per_s), f"balance_{size}": {one.name: one.passed for one in balances}}


def sized(folder: Path, config: Config, millions: int) -> dict[str, Any]:
    """Everything at one size; the database is kept in a run folder, where the explorer looks for it."""
    (folder / "run").mkdir(parents=True, exist_ok=True)
    path = folder / "run" / "ledger.db"
    database, size = Database(f"sqlite:///{path}"), f"{millions}m"
    database.migrate()
    begin_s = time.perf_counter()
    answer: dict[str, Any] = {
        f"facts_{size}": load(database, millions * 1_000_000),
        f"load_s_{size}": round(time.perf_counter() - begin_s),
    }
    answer |= measure(database, config, size)
    pages = page_s(folder, config)
    slowest = max(pages, key=lambda page: pages[page][0])
    cpu_s = max(cpu_s for _, cpu_s in pages.values())
    answer |= {
        f"page_s_{size}": round(pages[slowest][0], 3),
        f"page_slowest_{size}": slowest,
        f"page_cpu_s_max_{size}": round(cpu_s, 3),
    }
    answer |= sustained(database, config, size)
    database.close()
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="gyre bench ledger", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--folder", type=Path, help="where databases are made and kept; a temporary folder by default")
    given = parser.parse_args()
    look_less()
    config = parse({"run": {"name": RUN}, "model": {"path": "m"}}, "bench")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        empty = Database(f"sqlite:///{Path(temporary) / 'empty.db'}")
        empty.migrate()
        answer: dict[str, Any] = {"intake_per_s": round(stored_per_s(empty, told(0, FRESH_GROUPS)))}
        empty.close()
        for millions in given.millions:
            answer |= sized(folder / f"{millions}m", config, millions)
    print(json.dumps(answer) if given.json else "\n".join(f"{name}: {value}" for name, value in answer.items()))


if __name__ == "__main__":
    main()
