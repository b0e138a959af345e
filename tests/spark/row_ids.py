"""Row ids of a Delta table, read from its log and files as the protocol says, and what they must be like."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from airflow_gddl.stores import Storage
from spark_jobs.tables.deletion_vectors import rows_of
from spark_jobs.tables.replayed_log import ReplayedLog, commit_path, replayed
from tests.harness.replayed_files import log_of

_NAMES = "delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName"


@dataclass(frozen=True)
class TrackedRow:
    """A row of a version of a table.

    Attributes:
        key: its key, as text.
        state: what changes with each change of the row.
        row_id, version: as Delta on Spark shows them in `_metadata`.
    """

    key: str
    state: str
    row_id: int
    version: int


def tracked_rows(table: str, keys: Sequence[str], version: int | None = None) -> list[TrackedRow]:
    """Rows of a version; None: the newest."""
    log = log_of(table, version)
    return [row for add in log.files.values() for row in _of_file(table, log, add, keys)]


def _of_file(table: str, log: ReplayedLog, add: Any, keys: Sequence[str]) -> Iterator[TrackedRow]:
    row_id, version = (str(log.properties[name]) for name in _NAMES)
    gone = set(rows_of(Storage(), table, add["deletionVector"]).tolist()) if add.get("deletionVector") else set()
    rows = pq.read_table(Path(table) / unquote(add["path"]), partitioning=None).to_pylist()
    assert len(rows) == json.loads(add["stats"])["numRecords"]
    for number, stored in enumerate(rows):
        row = stored | add["partitionValues"]
        own, changed = row.pop(row_id, None), row.pop(version, None)
        if number not in gone:
            yield TrackedRow(
                key=json.dumps([row[name] for name in keys], default=str),
                state=json.dumps([_values(row | {"_gddl": None}), _values(row["_gddl"] | {"sequence": None})]),
                row_id=add["baseRowId"] + number if own is None else own,
                version=add["defaultRowCommitVersion"] if changed is None else changed,
            )


def _values(row: dict[str, Any]) -> dict[str, str]:
    """Values as text, whose types may be others in a later file; columns may be new there, and null."""
    return {name: str(value) for name, value in sorted(row.items()) if value is not None}


def wrong_row_ids(table: str, keys: Sequence[str]) -> list[str]:
    """What is wrong with the row ids of all versions of a table."""
    newest = replayed(Storage(), table)
    found: list[str] = []
    given: dict[int, str] = {}
    before: dict[str, TrackedRow] = {}
    for version in range(0 if newest is None else newest.version + 1):
        log = log_of(table, version)
        if str(log.properties.get("delta.enableRowTracking")).lower() != "true":
            continue
        rows = tracked_rows(table, keys, version)
        now = {row.key: row for row in rows} if keys else {str(row.row_id): row for row in rows}
        wrong = [line for key, row in now.items() if (line := _wrong(before.get(key), row, version))]
        if keys:
            wrong += [
                f"{r.key} has the id of {given[r.row_id]}" for r in rows if given.setdefault(r.row_id, r.key) != r.key
            ]
        if len({row.row_id for row in rows}) != len(rows):
            wrong.append("an id is there twice")
        wrong += [f"id {row.row_id} is above the highest" for row in rows if row.row_id > _highest(log)]
        same = [row for key, row in now.items() if row.version == version and row.state == _state(before.get(key))]
        if len(same) > (updates := _updated(table, version)):
            wrong.append(f"{len(same)} rows have the version and are as before, {updates} were updated, e.g. {same[0]}")
        wrong += _wrong_removals(table, version)
        found += [f"version {version}: {line}" for line in wrong]
        before = now
    return found


def _highest(log: ReplayedLog) -> int:
    stated = log.domains.get("delta.rowTracking")
    return -1 if stated is None else int(json.loads(stated)["rowIdHighWaterMark"])


def _state(row: TrackedRow | None) -> str | None:
    return None if row is None else row.state


def _wrong_removals(table: str, version: int) -> Iterator[str]:
    """Removed files that do not state the row ids that they had, as the protocol asks of writers."""
    before = log_of(table, version - 1) if version else None
    for action in actions_of(table, version):
        removed = action.get("remove")
        if removed is None or before is None:
            continue
        known = before.files[unquote(removed["path"])]
        if any(removed.get(name) != known.get(name) for name in ("baseRowId", "defaultRowCommitVersion")):
            yield f"{removed['path']} is removed without its row ids"


def actions_of(table: str, version: int) -> list[dict[str, Any]]:
    """Actions of a version's commit."""
    return [json.loads(line) for line in Path(commit_path(table, version)).read_text().splitlines()]


def _updated(table: str, version: int) -> int:
    """Rows that a commit says to have updated: some may be written again with the values that they had."""
    infos = [action["commitInfo"] for action in actions_of(table, version) if "commitInfo" in action]
    metrics = infos[0].get("operationMetrics", {}) if infos else {}
    return sum(int(metrics.get(name, 0)) for name in ("numTargetRowsUpdated", "numUpdatedRows"))


def _wrong(before: TrackedRow | None, row: TrackedRow, version: int) -> str:
    if before is None:
        return "" if row.version == version else f"new row {row}"
    if row.row_id != before.row_id:
        return f"{row}, before {before}"
    is_changed = row.state != before.state or row.version == version
    expected = version if is_changed else before.version
    return "" if row.version == expected else f"{row} changed by {expected}, before {before}"
