"""SQLite for several writing processes: write-ahead log and busy timeout.

Airflow imports `SYNC` and `ASYNC` by name, as its configuration says.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

_PATIENCE_SECONDS = 60.0


class Connection(sqlite3.Connection):
    """No fsync at each commit: a demo need not survive a power failure."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA synchronous = NORMAL")


SYNC: dict[str, Any] = {"timeout": _PATIENCE_SECONDS, "factory": Connection}
ASYNC: dict[str, Any] = dict(SYNC)


def prepare(database: Path) -> None:
    """Make the file, with a write-ahead log; that is kept in the file itself."""
    connection = sqlite3.connect(database)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
