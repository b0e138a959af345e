"""Row tracking of Delta: an id for each row that stays while the row is changed or moved, and its last change.

A file states both for its rows by `baseRowId` and `defaultRowCommitVersion` of its `add` action: the first row has the
base, the next one the next number. Rows that were written again have their own in two columns of the data file, which
the table's schema lacks and the table's properties name. Rows are read with `ROW_ID` and `ROW_VERSION` instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.features import ROW_TRACKING
from spark_jobs.plan.table_schema import ROW_ID, ROW_VERSION
from spark_jobs.rules.arrays import flat
from spark_jobs.tables.places import DeclinedError
from spark_jobs.tables.replayed_log import Add, ReplayedLog, stated_rows

FEATURES = ("rowTracking", "domainMetadata")
"""What the protocol of a table with row ids names."""
COLUMNS = (pa.field(ROW_ID, pa.int64()), pa.field(ROW_VERSION, pa.int64()))
_DOMAIN, _HIGHEST = "delta.rowTracking", "rowIdHighWaterMark"
ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
"""Properties that name the columns of the data files."""
_OF_FILE = ("baseRowId", "defaultRowCommitVersion")
_PRESERVED = "delta.rowTracking.preserved"
"""Tag of a commit. Without it readers assume that all rows have new ids."""


@dataclass(frozen=True)
class RowIdColumns:
    """Names that `ROW_ID` and `ROW_VERSION` have in the data files of a table."""

    row_id: str
    version: str

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> RowIdColumns | None:
        """None: the table has no row ids."""
        names = properties.get(ID_COLUMN), properties.get(VERSION_COLUMN)
        return cls(*map(str, names)) if is_enabled(properties) and all(names) else None

    @property
    def in_files(self) -> dict[str, str]:
        return {ROW_ID: self.row_id, ROW_VERSION: self.version}

    def read(self, rows: pa.Table) -> pa.Table:
        """Rows of a data file with `ROW_ID` and `ROW_VERSION`, as far as the file has them."""
        names = {stored: name for name, stored in self.in_files.items()}
        return rows.rename_columns([names.get(name, name) for name in rows.column_names])

    def written(self, rows: pa.Table) -> pa.Table:
        """Rows as a data file has them. Columns without a value are left out: the file's `add` action states all."""
        empty = [name for name in (ROW_ID, ROW_VERSION) if rows.column(name).null_count == rows.num_rows]
        rows = rows.drop_columns(empty)
        return rows.rename_columns([self.in_files.get(name, name) for name in rows.column_names])


def is_enabled(properties: Mapping[str, Any]) -> bool:
    """Whether Delta keeps row ids: by the property as Delta spells it, whatever spelling a metadata row has."""
    return str(properties.get(ROW_TRACKING) or "").lower() == "true"


def begun_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """Properties of a table that begins to have row ids, or has them again: then its files may have the columns."""
    enabled = {ROW_TRACKING: "true"}
    return enabled if RowIdColumns.of({**properties, **enabled}) else new_properties()


def new_properties() -> dict[str, str]:
    """Properties of a table that begins to have row ids."""
    return {
        ROW_TRACKING: "true",
        ID_COLUMN: f"_row-id-col-{uuid4()}",
        VERSION_COLUMN: f"_row-commit-version-col-{uuid4()}",
    }


def completed(rows: pa.Table, add: Add, numbers: np.ndarray | None) -> pa.Table:
    """Rows of a data file, each with its id and version.

    Args:
        rows: with `ROW_ID`, `ROW_VERSION`, or both.
        add: the file's action; rows of a file that states no ids keep null, and get new ones when they are written.
        numbers: of the rows in the file; None: there is no `ROW_ID`.
    """
    for name, stated in zip((ROW_ID, ROW_VERSION), _OF_FILE, strict=True):
        at, value = rows.schema.get_field_index(name), add.get(stated)
        if at < 0 or value is None or not rows.column(at).null_count:
            continue
        own = flat(rows.column(at))
        is_id = name == ROW_ID and numbers is not None
        default = pa.array(numbers + value, pa.int64()) if is_id else pa.scalar(int(value), pa.int64())
        rows = rows.set_column(at, rows.schema.field(at), pc.coalesce(own, default))
    return rows


def changed(rows: pa.Table) -> pa.Table:
    """Rows that a commit changes: the version of their last change is that of the commit."""
    return rows.drop_columns([ROW_VERSION]) if ROW_VERSION in rows.column_names else rows


def are_assigned(log: ReplayedLog) -> bool:
    """Whether each commit has to state ids of the rows that it adds."""
    return "rowTracking" in log.writer_features


def assigned(
    log: ReplayedLog, actions: Iterable[Mapping[str, Any]], *, keeps_rows: bool = True
) -> list[Mapping[str, Any]]:
    """Actions of the commit after a version, with ids for the rows of new files; those of known files stay.

    Files that stay are named again with another deletion vector, or other statistics.

    Args:
        keeps_rows: rows that are written again keep their ids.
    """
    first = following = highest(log) + 1
    made: list[Mapping[str, Any]] = []
    for action in actions:
        ((kind, content),) = action.items()
        if kind == "commitInfo" and is_enabled(log.properties):
            made.append({kind: {**content, "tags": {_PRESERVED: str(keeps_rows).lower()}}})
        elif kind in {"add", "remove"}:
            known = log.files.get(unquote(content["path"]), {})
            stated = {name: known[name] for name in _OF_FILE if known.get(name) is not None}
            if kind == "add" and not stated:
                stated = {"baseRowId": following, "defaultRowCommitVersion": log.version + 1}
                following += _require_rows(content)
            made.append({kind: {**content, **stated}})
        else:
            made.append(action)
    return [*made, _highest_action(following - 1)] if following > first else made


def _require_rows(add: Add) -> int:
    """Rows of a new file.

    Raises:
        DeclinedError: the log does not state it; Delta on Spark counts the rows.
    """
    rows = stated_rows(add)
    if rows is None:
        raise DeclinedError(f"its log has no row count of {add['path']}")
    return rows


def highest(log: ReplayedLog) -> int:
    """The highest id that was assigned; -1: none."""
    stated = log.domains.get(_DOMAIN)
    return -1 if stated is None else int(json.loads(stated)[_HIGHEST])


def _highest_action(row_id: int) -> Mapping[str, Any]:
    return {"domainMetadata": {"domain": _DOMAIN, "configuration": json.dumps({_HIGHEST: row_id}), "removed": False}}
