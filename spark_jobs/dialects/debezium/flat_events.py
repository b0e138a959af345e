"""Flat events of `ExtractNewRecordState`: the row itself, and beside its columns the fields that `add.fields` adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_jobs.dialects.debezium.technical import commit_time, position

OP_FIELD, DELETED_FIELD = "__op", "__deleted"
_SOURCE = "__source_"
_OF_SOURCE = (
    "version", "connector", "name", "ts_ms", "ts_us", "ts_ns", "snapshot", "db", "sequence", "schema", "table", "txId",
    "lsn", "xmin", "server_id", "gtid", "file", "pos", "row", "thread", "query", "change_lsn", "commit_lsn",
    "event_serial_no", "scn", "commit_scn", "rs_id", "ssn", "redo_thread", "user_name", "ts_id",
    "ord", "rs", "collection",
)  # fmt: skip
_OF_EVENT = ("ts_ms", "ts_us", "ts_ns")
"""Without `source.`, these are of the event: the time at which the connector processed it, and no commit time."""
_ADDED = frozenset({OP_FIELD, DELETED_FIELD, *(f"__{name}" for name in _OF_SOURCE)})
_MARKS = (("commit_lsn", "sqlserver"), ("scn", "oracle"), ("file", "mysql"), ("lsn", "postgresql"), ("ord", "mongodb"))
"""Field of `source` that only connectors of one kind have, and the kind, where no `connector` is added."""
WITHOUT_ORDER = (
    "its flat events (ExtractNewRecordState) have no place in the log and no commit time; set add.fields of the "
    "transform, e.g. op,source.connector,source.lsn,source.sequence,source.ts_ms,source.snapshot, or name columns "
    "that order changes in `sequence_by` of the row"
)


def is_flat(names: Iterable[str]) -> bool:
    """Whether a record with these fields is a flat event. Envelopes have neither field."""
    return OP_FIELD in names or DELETED_FIELD in names


def is_added(name: str) -> bool:
    """Whether the transform added this field to the columns of the row."""
    return name in _ADDED or name.startswith((_SOURCE, "__transaction_"))


def operation_of(record: Mapping[str, Any]) -> str | None:
    """Debezium's operation. Without `op` among the added fields, rows that are not deleted are inserts (upserts)."""
    if str(record.get(DELETED_FIELD)).lower() == "true":
        return "d"
    op = record.get(OP_FIELD)
    if OP_FIELD in record:
        return op if isinstance(op, str) else None
    return "c"


def source_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The event's `source`, as far as its fields are added. `add.fields` takes `lsn` for `source.lsn`, too."""
    found = {name: record[f"__{name}"] for name in _OF_SOURCE if name not in _OF_EVENT and f"__{name}" in record}
    found |= {name.removeprefix(_SOURCE): value for name, value in record.items() if name.startswith(_SOURCE)}
    found = {name: value for name, value in found.items() if value is not None}
    if "connector" not in found:
        found |= next(({"connector": kind} for field, kind in _MARKS if field in found), {})
    return found


def require_order(sources: Sequence[Mapping[str, Any]], *, sequence_by: Sequence[str]) -> None:
    """
    Args:
        sources: of the flat events of a file.

    Raises:
        ValueError: nothing orders them.
    """
    if sources and not sequence_by and all(position(s) is None and commit_time(s) is None for s in sources):
        raise ValueError(WITHOUT_ORDER)
