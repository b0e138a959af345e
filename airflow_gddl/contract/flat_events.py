"""Flat events: rows that the transform `ExtractNewRecordState` has made of change events, back into change events.

Such a row has the columns of the table, `__deleted` by its setting `delete.tombstone.handling.mode`, and the fields of
the event that its setting `add.fields` names: `__op` for `op`, `__source_lsn` for `source.lsn`, `__lsn` for `lsn`,
`__X` for `lsn:X`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from airflow_gddl.contract.codes import FLAT_EVENT_INCOMPLETE
from airflow_gddl.contract.errors import FatalError, documented
from airflow_gddl.contract.extensions import DebeziumOptions
from airflow_gddl.contract.table_spec import TableSpec

Row = Mapping[str, Any]

DELETED = "__deleted"
"""The transform's own name, whatever prefix the added fields have."""
_POSITIONS: Mapping[str, Sequence[str]] = {
    "oracle": ("scn", "commit_scn", "rs_id", "ssn"),
    "sqlserver": ("commit_lsn", "change_lsn", "event_serial_no"),
    "mysql": ("file", "pos", "row"),
    "postgresql": ("lsn",),
    "db2": ("commit_lsn", "change_lsn"),
    "mariadb": ("file", "pos", "row"),
    "mongodb": ("ord",),
}
"""Fields of `source` that make the position in the log. A connector that no field names is the first one of them."""
_MORE: Mapping[str, Sequence[str]] = {
    "postgresql": ("sequence",), "mysql": ("server_id",), "mariadb": ("server_id",),
}  # fmt: skip
"""Further fields of `source` that say where in the log a change is, or whose log that is."""
_DOCUMENTS = "mongodb"
_TIMES = ("ts_ms", "ts_us", "ts_ns")
_OF_SOURCE = frozenset({
    *(name for names in _POSITIONS.values() for name in names),
    "version", "connector", "name", "snapshot", "db", "schema", "table", "sequence", "txId", "xmin", "server_id",
    "collection", "gtid", "thread", "query", "redo_thread", "user_name", "lcr_position", "row_id", "value_capture_type",
})  # fmt: skip
"""Fields of `source` by their own name, as `add.fields` may have them. A time without `source.` is the connector's."""
_OF_EVENT = frozenset({"op", *_TIMES})


@dataclass(frozen=True)
class FlatColumns:
    """Columns of a flat row by their role; a null name: there is no such column.

    Attributes:
        row: columns of the table.
        source: field of `source` to the column that has it.
    """

    row: tuple[str, ...]
    op: str | None
    deleted: str | None
    source: Mapping[str, str]

    @property
    def is_flat(self) -> bool:
        return self.deleted is not None or self.op is not None or bool(self.source)


@lru_cache(maxsize=256)
def flat_columns(names: tuple[str, ...], prefix: str, renamed: tuple[tuple[str, str], ...] = ()) -> FlatColumns:
    """Sort the columns of flat events by what they hold: the row, facts of the source, operation and delete.

    Args:
        renamed: new name of a field, without the prefix, and its usual one.
    """
    row, source, op, deleted, usual = [], {}, None, None, dict(renamed)
    for name in names:
        added = name[len(prefix) :] if name.startswith(prefix) else ""
        added = usual.get(added, added)
        if name == DELETED:
            deleted = name
        elif added == "op":
            op = name
        elif added.startswith("source_"):
            source[added.removeprefix("source_")] = name
        elif added in _OF_SOURCE:
            source.setdefault(added, name)
        elif added not in _OF_EVENT and not added.startswith("transaction_"):
            row.append(name)
    return FlatColumns(tuple(row), op, deleted, source)


@dataclass(frozen=True)
class FlatForm:
    """How a table's flat events are read.

    Attributes:
        prefix: `add.fields.prefix` of the transform.
        renamed: see `flat_columns`.
        deletes: whether `__deleted` has to be there.
        snapshots: whether `source.snapshot` has to be there.
        order: whether the position in the log and the commit time have to be there.
        where: the file, for errors.
    """

    prefix: str = "__"
    renamed: tuple[tuple[str, str], ...] = ()
    deletes: bool = True
    snapshots: bool = True
    order: bool = True
    where: str = ""
    _complete: set[tuple[tuple[str, ...], str]] = field(default_factory=set, compare=False, repr=False)

    @classmethod
    def of(cls, spec: TableSpec, options: DebeziumOptions, path: str) -> FlatForm:
        by_log = not spec.sequence_by
        renamed = tuple((new, name.replace(".", "_", 1)) for name, new in sorted(options.flat_fields.items()))
        return cls(options.flat_prefix, renamed, options.flat_deletes == "rewrite",
                   options.snapshots == "reload" and by_log, by_log, path)  # fmt: skip

    def columns(self, names: Iterable[str]) -> FlatColumns:
        return flat_columns(tuple(names), self.prefix, self.renamed)

    def is_flat(self, row: Row) -> bool:
        """A table may have columns named like the parts of an event; without a prefix these are the added fields."""
        return self.columns(row).is_flat and (bool(self.prefix) or not _is_envelope(row))

    def enveloped(self, row: Row) -> dict[str, Any]:
        """The change event of a flat row; of a delete the row is `before`.

        Raises:
            FatalError: see `require`.
        """
        columns = self.columns(row)
        source = self.source(columns, row)
        op = self.operation(columns, row)
        data = {name: row[name] for name in columns.row}
        side, other = ("before", "after") if op == "d" else ("after", "before")
        return {"op": op, "source": source, side: data, other: None}

    def operation(self, columns: FlatColumns, row: Row) -> Any:
        """Without `__op`, a row that is not deleted is an update with all columns, which inserts it where it is new."""
        if columns.deleted is not None and str(row[columns.deleted]).lower() == "true":
            return "d"
        return "u" if columns.op is None else row[columns.op]

    def source(self, columns: FlatColumns, row: Row) -> dict[str, Any]:
        """Facts of the source in a flat event, as the envelope would have them.

        Raises:
            FatalError: see `require`.
        """
        fields = {name: row[column] for name, column in columns.source.items()}
        connector = fields.get("connector") or _connector(columns)
        known = (tuple(row), str(connector))
        if known not in self._complete:
            self.require(columns, connector)
            self._complete.add(known)
        if "table" not in fields and fields.get("snapshot") == "last_in_data_collection":
            fields["snapshot"] = "true"  # of which table it is the last row is not known
        return {**fields, "connector": connector}

    def require(self, columns: FlatColumns, connector: object) -> None:
        """Require the fields without which a connector's flat events can't be ordered, or show no deletes.

        Raises:
            FatalError: `FLAT_EVENT_INCOMPLETE`.
        """
        if connector == _DOCUMENTS:
            raise self._incomplete(
                "an update of MongoDB lacks the fields that were removed, and nothing tells it from an update that has "
                "the changed fields alone",
                "take the transform (ExtractNewDocumentState) out of the connector, so that the files have its events "
                "as they are, and have the files written again",
            )
        if self.deletes and columns.deleted is None:
            raise self._incomplete(
                f"no column {DELETED}, so that deletes are not in the files",
                "set `delete.tombstone.handling.mode=rewrite` (before Debezium 2.5 `delete.handling.mode=rewrite`) in "
                "the transform; or `options: {flat_deletes: drop}` where rows of the source are never deleted",
            )
        missing = [f"source.{name}" for name in self._missing(columns, connector)]
        if missing:
            raise self._incomplete(
                f"no {', '.join(missing)}{f' (connector {connector})' if connector else ''}",
                f"set `add.fields={_setting(connector)}` in the transform, and have the files written again; or name "
                "fields with names of their own in `options.flat_fields`; or let `sequence_by` name columns of the "
                "table that order its changes",
            )

    def _missing(self, columns: FlatColumns, connector: object) -> list[str]:
        """Fields of `source`; a connector of another kind states no position."""
        there = columns.source
        needed = []
        if self.order:
            needed = ["connector"] if connector is None else list(_POSITIONS.get(str(connector), ()))
            needed += () if any(name in there for name in _TIMES) else ["ts_ms"]
        return [name for name in (*needed, *(["snapshot"] if self.snapshots else ())) if name not in there]

    def _incomplete(self, what: str, remedy: str) -> FatalError:
        said = f"flat events (ExtractNewRecordState) lack what decides their changes: {what}"
        return FatalError(FLAT_EVENT_INCOMPLETE, said, where=self.where, remedy=remedy)


def is_field(name: str) -> bool:
    """Whether `add.fields` may name it, of what decides a change."""
    return name == "op" or name.removeprefix("source.") in _OF_SOURCE or name.removeprefix("source.") in _TIMES


def _is_envelope(row: Row) -> bool:
    """Whether a record's value has the fields of a change event, valid or not."""
    return "op" in row and "source" in row and ("before" in row or "after" in row)


def _connector(columns: FlatColumns) -> str | None:
    """By the fields of its position, or by what MongoDB alone has in place of a table."""
    if "collection" in columns.source:
        return _DOCUMENTS
    return next((name for name, fields in _POSITIONS.items() if not columns.source.keys().isdisjoint(fields)), None)


def _setting(connector: object) -> str:
    """The value of `add.fields` with all that the connector's events can be read by."""
    positions: Sequence[str] = _POSITIONS.get(str(connector), ())
    more = _MORE.get(str(connector), ())
    first = ("connector", "ts_ms", "snapshot", "db", "schema", "table")
    named = [f"source.{name}" for name in (*first, *positions, *more)]
    rest = () if positions else (f"<the fields of the position in the log, as {documented('debezium.md')} lists them>",)
    return ",".join(("op", *named, *rest))
