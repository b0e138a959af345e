"""Files of a table by the job's ledger, for display.

The format belongs to the job; this reads the newest commit and its rows, and reports anything unexpected as "can't be
read". A test writes a ledger with the job's code and reads it with this module.
"""

from __future__ import annotations

import json
from typing import Any

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage

_SHOWN = ("path", "kind", "state", "size", "modified", "rows", "quarantined", "batch", "generation", "max_commit_ts")
_USUAL = {"state": "committed", "rows": None, "quarantined": 0, "max_commit_ts": None}
"""What rows leave out: the defaults of the job's class."""


def newest_files(store: Storage, state: str, limit: int) -> dict[str, Any]:
    """The files of the newest batches, newest first, and how many batches there are; `batch` 0: none yet.

    Args:
        state: the table's ledger folder.

    Raises:
        RetriableError: `STORAGE_BUSY`.
        ValueError: it is not as expected.
    """
    commits = sorted(found.name for found in store.list(join(state, "commits")))
    if not commits:
        return {"batch": 0, "files": []}
    try:
        _, head, _, files, tail = store.read(join(state, "commits", commits[-1])).decode(errors="replace").split("\n")
        snapshot = json.loads(head).get("snapshot", {})
        rows = [*_rows(tail), *_rows(files)]
        if len(rows) < limit and snapshot.get("recent") is not None:
            rows += _rows(store.read(join(state, snapshot["recent"])).decode(errors="replace"))
        newest = sorted(rows, key=lambda row: (row["batch"], row["path"]), reverse=True)
        return {"batch": json.loads(head)["number"], "files": newest[:limit]}
    except (KeyError, TypeError, AttributeError, FileNotFoundError) as error:
        raise ValueError(f"not a ledger of this version: {error!r}") from error


def _rows(text: str) -> list[dict[str, Any]]:
    data = json.loads(text)
    found = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
    return [{name: row.get(name, _USUAL[name]) if name in _USUAL else row[name] for name in _SHOWN} for row in found]
