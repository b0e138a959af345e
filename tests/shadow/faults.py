"""Faults that are put into our own commits, a sort each, and not into those of Spark's `MERGE`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.tables.delta_log import HISTORY, MERGE, TOMBSTONES, Action
from spark_jobs.tables.delta_tables import Tables, TableSnapshot, Write

OfWrite = Callable[[Write], Write]
OfActions = Callable[[TableSnapshot, Sequence[Action]], list[Action]]


def _with_deleted_row(write: Write) -> Write:
    """The row of id 1, which the batch deletes, stays in the file that is written again."""
    rows = write.added[0]
    stays = rows.slice(0, 1).set_column(0, rows.schema.field(0), pa.array([1], pa.int32()))
    return replace(write, added=[pa.concat_tables([rows, stays]), *write.added[1:]])


def _without_last_row(write: Write) -> Write:
    return replace(write, added=[rows.slice(0, rows.num_rows - 1) for rows in write.added])


def _other_value(write: Write) -> Write:
    return replace(write, added=[_with_value(rows) for rows in write.added])


def _with_value(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("v")
    values = ["other" if value == "wanted" else value for value in rows.column(at).to_pylist()]
    return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))


def _statistic(name: str, value: Any) -> OfActions:
    def change(_: TableSnapshot, actions: Sequence[Action]) -> list[Action]:
        return [_stated(action, name, value) if "add" in action else action for action in actions]

    return change


def _stated(action: Action, name: str, value: Any) -> Action:
    stats = json.loads(action["add"]["stats"])
    stats[name] = value if name == "numRecords" else {**stats[name], **value}
    return {"add": {**action["add"], "stats": json.dumps(stats)}}


def _fields(change: Callable[[list[dict[str, Any]]], None]) -> OfActions:
    def changed(snapshot: TableSnapshot, actions: Sequence[Action]) -> list[Action]:
        schema = json.loads(snapshot.log.schema)
        change(schema["fields"])
        return [{"metaData": {**snapshot.log.metadata, "schemaString": json.dumps(schema)}}, *actions]

    return changed


def _retyped(fields: list[dict[str, Any]]) -> None:
    fields[0]["type"] = "long"


def _lacking(fields: list[dict[str, Any]]) -> None:
    del fields[1]


def _with_feature(_: TableSnapshot, actions: Sequence[Action]) -> list[Action]:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz"],
                "writerFeatures": ["timestampNtz", "appendOnly", "invariants"]}  # fmt: skip
    return [{"protocol": protocol}, *actions]


def _lost_file(_: TableSnapshot, actions: Sequence[Action]) -> list[Action]:
    return [{"add": {**a["add"], "path": f"lost-{a['add']['path']}"}} if "add" in a else a for a in actions]


ROWS: Mapping[str, tuple[str, OfWrite, str, str]] = {
    "delete_dropped": (MERGE, _with_deleted_row, "replica", "extra"),
    "row_dropped": (MERGE, _without_last_row, "replica", "missing"),
    "value_changed": (MERGE, _other_value, "replica", "values"),
    "version_changed": (HISTORY, _other_value, "history", "values"),
    "tombstone_dropped": (TOMBSTONES, _without_last_row, "tombstones", "missing"),
}
"""Fault to the step whose commit has it, what makes it, the kind of table and the sort of difference that it is."""
ACTIONS: Mapping[str, tuple[str, OfActions, str, str]] = {
    "type_changed": (MERGE, _fields(_retyped), "replica", "types"),
    "column_lost": (MERGE, _fields(_lacking), "replica", "columns"),
    "feature_added": (MERGE, _with_feature, "replica", "features"),
    "records_wrong": (MERGE, _statistic("numRecords", 100), "replica", "statistics"),
    "minimum_wrong": (MERGE, _statistic("minValues", {"id": 3}), "replica", "statistics"),
    "maximum_wrong": (MERGE, _statistic("maxValues", {"v": "a"}), "replica", "statistics"),
    "nulls_wrong": (MERGE, _statistic("nullCount", {"v": 2}), "replica", "statistics"),
    "file_lost": (MERGE, _lost_file, "replica", "unreadable"),
}
"""The same of the actions of a commit."""


def name_of(snapshot_path: str) -> str:
    """The table's name of the path of one of its Delta tables."""
    return snapshot_path.rpartition("/")[2].removesuffix("__history")


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put into the commits of each table the fault that it is named after."""
    commit, put = Tables.commit, Tables.commit_actions

    def faulty_commit(self: Tables, path: str, write: Write) -> None:
        fault = ROWS.get(name_of(path))
        commit(self, path, write if fault is None or write.app != fault[0] else fault[1](write))

    def faulty_put(self: Tables, snapshot: TableSnapshot, actions: Sequence[Action], write: Write) -> None:
        fault = ACTIONS.get(name_of(snapshot.path))
        faulty = actions if fault is None or write.app != fault[0] else fault[1](snapshot, actions)
        put(self, snapshot, faulty, write)

    monkeypatch.setattr(Tables, "commit", faulty_commit)
    monkeypatch.setattr(Tables, "commit_actions", faulty_put)
