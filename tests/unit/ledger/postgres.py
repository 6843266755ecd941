"""A PostgreSQL server for tests: the one that GYRE_TEST_POSTGRES names, else a throw-away one from Debian's package where it is installed."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []


@contextlib.contextmanager
def server() -> Iterator[sa.URL]:
    """URL of its maintenance database. The throw-away one is run by an ordinary user and listens on a socket in a folder of its own, on no port."""
    pytest.importorskip("psycopg")
    if given := os.environ.get("GYRE_TEST_POSTGRES"):
        yield sa.make_url(given.replace("postgresql://", "postgresql+psycopg://", 1))
        return
    if not POSTGRES:
        pytest.skip("no PostgreSQL binaries here, and GYRE_TEST_POSTGRES names no server")
    folder = Path(tempfile.mkdtemp(prefix="gyre-pg-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("runuser") is None or subprocess.run(["id", "postgres"], capture_output=True).returncode:
            pytest.skip("PostgreSQL refuses to run as root and there is no user `postgres`")
        shutil.chown(folder, "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    data = str(folder / "data")
    control = [*as_user, str(POSTGRES[-1] / "pg_ctl"), "-D", data, "-w", "-t", "120"]
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "cwd": folder}
    made = [str(POSTGRES[-1] / "initdb"), "-D", data, "-U", "gyre", "-A", "trust", "-N", "-E", "UTF8"]
    try:
        subprocess.run([*as_user, *made], **quiet)
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        subprocess.run([*control, "-o", options, "-l", str(folder / "log"), "start"], **quiet)
        try:
            yield sa.make_url(f"postgresql+psycopg://gyre@/postgres?host={folder}")
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **quiet)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def database(maintenance: sa.URL) -> Iterator[str]:
    """URL of a database that nobody else uses, gone afterwards."""
    name = f"gyre_{uuid.uuid4().hex}"
    engine = sa.create_engine(maintenance, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        yield maintenance.set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
        engine.dispose()
