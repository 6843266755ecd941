"""Rows of the elite store, one file a key: a cache. What is missing is not replayed; what the store no longer holds is deleted (D9)."""

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from gyre.errors import InvalidInput
from gyre.records import Row, decode_rows, encode_rows

log = logging.getLogger(__name__)

SUFFIX = ".rows"


class EliteFiles:
    """Files below `folder`, each whole or not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __contains__(self, key: str) -> bool:
        return self._path(key).exists()

    def save(self, key: str, rows: list[Row]) -> None:
        """A full disk costs a replay and nothing else."""
        temporary = self._path(key).with_suffix(".new")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(encode_rows(rows))
            os.replace(temporary, self._path(key))
        except OSError as error:
            log.warning("the elite execution %s is not kept: %s", key[:16], error)

    def rows(self, key: str) -> list[Row] | None:
        """None where the file is lost or cannot be read."""
        try:
            return decode_rows(self._path(key).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, InvalidInput) as error:
            log.warning("the elite execution %s cannot be read: %s", key[:16], error)
            return None

    def keep_only(self, keys: Iterable[str]) -> None:
        """Delete what none of `keys` names."""
        names = {f"{key}{SUFFIX}" for key in keys}
        for path in self._folder.glob("*") if self._folder.exists() else ():
            if path.name not in names:
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{SUFFIX}"
