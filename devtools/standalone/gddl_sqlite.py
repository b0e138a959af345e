"""How a standalone Airflow connects to SQLite; copied into the folder `config` of its home, and imported by Airflow."""

from __future__ import annotations

import sqlite3
from typing import Any

_PATIENCE_SECONDS = 60.0


class Connection(sqlite3.Connection):
    """No fsync at each commit: a demo need not survive a power failure."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA synchronous = NORMAL")


SYNC: dict[str, Any] = {"timeout": _PATIENCE_SECONDS, "factory": Connection}
ASYNC: dict[str, Any] = dict(SYNC)
