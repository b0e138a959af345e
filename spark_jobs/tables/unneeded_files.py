"""Which files of a table no version needs that readers may still ask for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from airflow_gddl.stores.storage import read_if_there
from spark_jobs.plan.identity import own_hours
from spark_jobs.tables.deletion_vectors import path_of
from spark_jobs.tables.replayed_log import COMMIT, POINTER, pointed_version
from spark_jobs.tables.snapshots import TableSnapshot

_USUAL_HOURS = 7 * 24
"""For which Delta keeps removed files, and their removals in checkpoints, where a table says nothing."""
_REMOVALS = ["remove.path", "remove.deletionTimestamp", "remove.deletionVector"]
Removal = Mapping[str, Any]
"""A `remove` action."""


def named_files(snapshot: TableSnapshot) -> frozenset[str]:
    """Paths of a version's data files and of the files of their deletion vectors."""
    actions = ({"path": file.stored_path, "deletionVector": file.vector} for file in snapshot.files)
    return frozenset(_files_of(snapshot.path, actions))


def unneeded(storage: Storage, snapshot: TableSnapshot, found: Sequence[str], now: float, hours: int) -> list[str]:
    """Those of the files that can be removed.

    `deltalake` takes files of deletion vectors for files of no version, and a data file for one that was removed when
    it got its first vector. A version that the log has no more can't be asked for, so that the removals that are left
    in it name all files that are needed.

    Args:
        found: names of files below the table's folder that `deltalake` would remove.
        now: seconds since 1970.
        hours: for how long files stay after a version without them was made.
    """
    since = now - hours * 3600
    named = named_files(snapshot)
    written = {item.path: item.modified for item in storage.list(snapshot.path)}
    old = {name: path for name in found if written.get(path := join(snapshot.path, name), since) < since}
    candidates = {name: path for name, path in old.items() if path not in named}
    if not candidates:
        return []
    kept = hours <= (own_hours(snapshot.properties, snapshot.path) or _USUAL_HOURS)
    removals = _removals(storage, snapshot.path, since, from_checkpoint=kept)
    needed = set(_files_of(snapshot.path, (one for one in removals if one.get("deletionTimestamp", 0) >= since * 1000)))
    return [name for name, path in candidates.items() if path not in needed]


def _files_of(table: str, actions: Iterable[Removal]) -> Iterator[str]:
    for action in actions:
        yield join(table, unquote(action["path"]))
        vector = action.get("deletionVector")
        if vector is not None and vector["storageType"] != "i":
            yield path_of(table, vector)


def _removals(storage: Storage, table: str, since: float, *, from_checkpoint: bool) -> Iterator[Removal]:
    """Removals of the commits since then.

    Args:
        from_checkpoint: the last checkpoint has all of the commits before it.
    """
    log = join(table, "_delta_log")
    checkpoint = pointed_version(read_if_there(storage, join(log, POINTER))) if from_checkpoint else None
    stored = None if checkpoint is None else _of_checkpoint(storage, join(log, f"{checkpoint:020d}.checkpoint.parquet"))
    yield from stored or ()
    for item in storage.list(log):
        match = COMMIT.fullmatch(item.path.rsplit("/", 1)[-1])
        if match is None or item.modified < since or (stored is not None and int(match[1]) <= (checkpoint or 0)):
            continue
        actions: Iterator[dict[str, Any]] = map(json.loads, storage.read(item.path).splitlines())
        yield from (action["remove"] for action in actions if "remove" in action)


def _of_checkpoint(storage: Storage, path: str) -> list[Removal] | None:
    """None: it is of another kind."""
    try:
        with storage.open_input(path) as stream:
            rows = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us").read(columns=_REMOVALS)
    except FileNotFoundError:
        return None
    if "remove" not in rows.column_names:
        return None
    return [one for one in rows.column("remove").to_pylist() if one is not None and one.get("path")]
