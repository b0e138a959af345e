"""VACUUM: how long a table keeps removed files, and which files no version needs that readers may still ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.tables.deletion_vectors import path_of
from spark_jobs.tables.replayed_log import COMMIT, checkpointed_removals
from spark_jobs.tables.snapshots import TableSnapshot

DELETED_FILES = "delta.deletedFileRetentionDuration"
_PART = re.compile(r"\s*(\d+)\s+(week|day|hour|minute|second|millisecond|microsecond)s?", re.ASCII)
_LONGEST = 200
_SECONDS = {
    "week": 604800.0, "day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0, "millisecond": 1e-3,
    "microsecond": 1e-6,
}  # fmt: skip
_USUAL_HOURS = 7 * 24
"""For which Delta keeps removed files, and their removals in checkpoints, where a table says nothing."""
Removal = Mapping[str, Any]
"""A `remove` action."""


def vacuum_hours(spec: TableSpec) -> int:
    """By `vacuum_retention`, or Delta's own setting where the row's `table_properties` ask for longer.

    Raises:
        FatalError: `RETENTION_UNREADABLE`.
    """
    return max(seconds(spec.vacuum_retention) // 3600, own_hours(spec.table_properties, spec.table))


def own_hours(properties: Mapping[str, str | None], where: str) -> int:
    """Whole hours, rounded up, for which Delta is configured to keep removed files; 0 when it is not.

    Raises:
        FatalError: `RETENTION_UNREADABLE`; what can't be read might ask for longer than anything else does.
    """
    setting = {key.lower(): value for key, value in properties.items()}.get(DELETED_FILES.lower())
    if setting is None:
        return 0
    text = setting.strip().lower().removeprefix("interval").strip().replace("'", "")
    if not text or len(text) > _LONGEST or _PART.sub("", text).strip():
        what = f"{DELETED_FILES} is {setting!r}, which is no length of time that can be read"
        raise FatalError("RETENTION_UNREADABLE", what, where=where, remedy="write it as e.g. interval 30 days")
    kept = sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    return -int(-kept // 3600)


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
    start, removals = checkpointed_removals(storage, table) if from_checkpoint else (-1, [])
    yield from removals
    for item in storage.list(join(table, "_delta_log")):
        match = COMMIT.fullmatch(item.path.rsplit("/", 1)[-1])
        if match is None or item.modified < since or int(match[1]) <= start:
            continue
        actions: Iterator[dict[str, Any]] = map(json.loads, storage.read(item.path).splitlines())
        yield from (action["remove"] for action in actions if "remove" in action)
