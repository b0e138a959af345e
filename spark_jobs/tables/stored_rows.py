"""What the stored rows of a table say: read, counted, searched and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.sql_types import SqlType
from airflow_gddl.stores import Storage
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import DeltaSchema, by_name
from spark_jobs.rules.erasure import KeyRows, highest, with_key
from spark_jobs.rules.order import as_events, for_both_keys, recorded_files
from spark_jobs.rules.other_table import CHANGES, OURS, THEIRS, OtherTableFindings, OtherTableRule, findings_of
from spark_jobs.rules.rewrite import Rewrite, count_of, refused_values
from spark_jobs.rules.shards import of_shard
from spark_jobs.rules.stored_columns import change_schema, key_schema
from spark_jobs.rules.sweep import unmarked
from spark_jobs.rules.verify import SharedKeys, Verdict, compare, expected_state, live_rows, verdict_of
from spark_jobs.rules.windows import changed_since
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.places import stream_of, stream_rows
from spark_jobs.tables.replayed_log import replayed
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.table_rows import Source, as_they_are, by_file, by_key, without_places
from spark_jobs.tables.whole_tables import keys_shared

_ROWS = "rows"
Rule = Callable[[pa.Table], Any]
"""From rows of one file, in the table's columns, to what is known of them; sent to tasks."""


Opened = Callable[..., Tables]
"""Opens the tables of some paths where the engine works on them."""


@dataclass(frozen=True)
class StoredRows:
    """What the stored rows of a table's replica and change table say.

    Attributes:
        opened: for rules that look at one file after the other.
        opened_whole: for rules that compare rows of all files; raises `DeclinedError` of tables that are too large.
    """

    context: TableContext
    opened: Opened
    opened_whole: Opened

    def foreign_rows(self, path: str, added: Collection[str] | None = None) -> int:
        """Number of rows without `_gddl`, which other writers added; `added`: only in these files; None: in all."""
        tables = self.opened(path)
        source = Source.of(tables.existing(path), as_they_are, [GDDL])
        files = (file for file in source.files if added is None or file.path in added)
        source = replace(source, files=tuple(replace(file, baseline=None) for file in files))
        return sum(json.loads(count) for count in by_file(tables, {_ROWS: source}, _OfFile(_without_gddl)))

    def is_ours(self, path: str) -> bool:
        """Whether there is a table that has `_gddl`."""
        log = replayed(self.context.storage, path)
        return log is not None and any(column["name"] == GDDL for column in json.loads(log.schema)["fields"])

    def recorded_files(self) -> list[RecordedFile]:
        """Files and generations of the change table."""
        path = self.context.layout.changes
        tables = self.opened(path)
        reports = _each_file(tables, path, _Recorded(tables.existing(path).schema.types[GDDL]), [GDDL])
        return [RecordedFile(**file) for report in reports for file in json.loads(report)]

    def refused_values(self, how: Rewrite) -> dict[tuple[str, str], int]:
        """Values of the change table that a rewrite would lose: (problem, column) to their number."""
        path = self.context.layout.changes
        tables = self.opened(path)
        reports = _each_file(tables, path, lambda rows: refused_values(rows, how))
        return count_of([stream_rows(one) for one in reports])

    def live_rows(self, columns: Sequence[str], since: tuple[str, datetime] | None = None) -> Iterator[tuple[Any, ...]]:
        """Rows of the replica, without those that are marked deleted; times in UTC, as values or ISO 8601 text.

        Args:
            since: only rows with a time in this column at or after a moment; None: all.
        """
        path = self.context.layout.replica
        yield from replica_rows(self.opened(path), path, columns, since)

    def rows_of_key(self, path: str, table_schema: TableSchema, key: tuple[str, ...], limit: int) -> KeyRows:
        """Rows of a change table, replica or tombstones that have a key; of changes also those that had it before.

        Args:
            key: as for `Eraser`.
            limit: see `erasure.highest`.
        """
        tables = self.opened(path)
        reports = _each_file(tables, path, lambda rows: with_key(rows, table_schema, key))
        none = tables.existing(path).schema.arrow.empty_table()
        return highest(pa.concat_tables([none, *map(stream_rows, reports)]), limit)

    def verify(self, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        """Compare the replica with the state computed from its change table, without generations before `swept`."""
        layout = self.context.layout
        tables = self.opened_whole(layout.replica, layout.changes)
        rule, replica = _Comparing(schema=table_schema, swept=swept, limit=limit), tables.existing(layout.replica)
        ours = {*table_schema.columns, GDDL}
        columns = [name for name in replica.schema.names if name in ours]
        sources = {
            _REPLICA: Source.of(replica, rule.replica, columns),
            _CHANGES: Source.of(tables.existing(layout.changes), rule.changes),
        }
        return verdict_of((_comparison(report) for report in by_key(tables, sources, rule.keys, rule)), limit)

    def compared_with(self, path: str, rule: OtherTableRule) -> OtherTableFindings:
        """Compare the replica with another table by key."""
        layout = self.context.layout
        tables = self.opened_whole(layout.replica, layout.changes, path)
        sources = {
            THEIRS: Source.of(tables.existing(path), rule.theirs, rule.read),
            OURS: Source.of(tables.existing(layout.replica), rule.ours, [*rule.columns, GDDL]),
            CHANGES: Source.of(tables.existing(layout.changes), rule.changes),
        }
        return findings_of(by_key(tables, sources, key_schema(rule.schema), rule), rule.shown)

    def shared_keys(self) -> SharedKeys:
        """Rows of the replica that share their key with others."""
        path = self.context.layout.replica
        return keys_shared(self.opened_whole(path), path, self.context.spec.keys)


def replica_rows(
    tables: Tables, path: str, columns: Sequence[str], since: tuple[str, datetime] | None = None
) -> Iterator[tuple[Any, ...]]:
    """See `StoredRows.live_rows`."""
    for rows in tables.each_file(path):
        live = unmarked(rows) if since is None else changed_since(unmarked(rows), *since)
        yield from zip(*(live.column(name).to_pylist() for name in columns), strict=True)


@dataclass(frozen=True)
class _OfFile:
    rule: Rule

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        result = self.rule(without_places(rows[_ROWS]))
        return stream_of(result) if isinstance(result, pa.Table) else json.dumps(result).encode()


def _each_file(tables: Tables, path: str, rule: Rule, columns: Sequence[str] | None = None) -> list[bytes]:
    source = Source.of(tables.existing(path), as_they_are, columns)
    return by_file(tables, {_ROWS: source}, _OfFile(rule))


def _without_gddl(rows: pa.Table) -> int:
    return int(rows.column(GDDL).null_count)


@dataclass(frozen=True)
class _Recorded:
    gddl: SqlType

    def __call__(self, rows: pa.Table) -> list[dict[str, Any]]:
        return [asdict(file) for file in recorded_files([rows], self.gddl)]


_REPLICA, _CHANGES = "replica", "changes"


@dataclass(frozen=True, kw_only=True)
class _Comparing:
    """Rules of a comparison; sent to tasks."""

    schema: TableSchema
    swept: int
    limit: int

    @property
    def keys(self) -> pa.Schema:
        """Columns by which rows of the two tables belong together: without a key, those whose values have an order."""
        kinds = DeltaSchema(self.schema.data).arrow
        names = self.schema.keys or [field.name for field in kinds if not pt.is_nested(field.type)]
        return pa.schema([kinds.field(name) for name in names])

    def changes(self, rows: pa.Table) -> pa.Table:
        shard_rows = of_shard(by_name(rows, change_schema(self.schema)), self.schema.spec.shard)
        return for_both_keys(shard_rows, self.schema)

    def replica(self, rows: pa.Table) -> pa.Table:
        return live_rows(of_shard(rows, self.schema.spec.shard), self.schema)

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        happened = as_events(rows[_CHANGES], self.schema) if self.schema.keys else rows[_CHANGES]
        comparison = compare(rows[_REPLICA], expected_state(happened, self.schema, self.swept), self.schema, self.limit)
        return json.dumps(
            [comparison.rows, comparison.expected_rows, sorted(comparison.buckets), comparison.keys]
        ).encode()


def _comparison(report: bytes) -> Verdict:
    rows, expected_rows, buckets, keys = json.loads(report)
    return Verdict(rows=rows, expected_rows=expected_rows, buckets=frozenset(buckets), keys=tuple(keys))
