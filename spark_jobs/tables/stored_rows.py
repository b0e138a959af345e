"""What the stored rows of a table say: read, counted, searched and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.stores import Storage
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import DeltaSchema, fields_of
from spark_jobs.rules.erasure import KeyRows, highest, with_key
from spark_jobs.rules.order import as_events, recorded_files
from spark_jobs.rules.other_table import CHANGES, OURS, THEIRS, OtherTableFindings, OtherTableRule, findings_of
from spark_jobs.rules.rewrite import Rewrite, count_of, refused_values
from spark_jobs.rules.shards import of_shard
from spark_jobs.rules.stored_columns import key_schema
from spark_jobs.rules.sweep import unmarked
from spark_jobs.rules.verify import SharedKeys, Verdict, compare, expected_state, live_rows, verdict_of
from spark_jobs.rules.windows import changed_since
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.replayed_log import replayed
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.table_rows import Source, by_file, by_key, changes_by_key, without_places
from spark_jobs.tables.whole_tables import keys_shared

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
        source = Source.of(tables.existing(path), columns=[GDDL])
        files = (file for file in source.files if added is None or file.path in added)
        source = replace(source, files=tuple(replace(file, baseline=None) for file in files))
        return sum(by_file(tables, source, lambda _, rows: rows.column(GDDL).null_count))

    def is_ours(self, path: str) -> bool:
        """Whether there is a table that has `_gddl`."""
        log = replayed(self.context.storage, path)
        return log is not None and any(column["name"] == GDDL for column in json.loads(log.schema)["fields"])

    def recorded_files(self) -> list[RecordedFile]:
        """Files and generations of the change table."""
        path = self.context.layout.changes
        tables = self.opened(path)
        kind = tables.existing(path).schema.types[GDDL]
        parts = _each_file(tables, path, lambda rows: list(map(asdict, recorded_files([rows], kind))), [GDDL])
        return [RecordedFile(**file) for part in parts for file in part]

    def refused_values(self, how: Rewrite) -> dict[tuple[str, str], int]:
        """Values of the change table that a rewrite would lose: (problem, column) to their number."""
        path = self.context.layout.changes
        tables = self.opened(path)
        reports = _each_file(tables, path, lambda rows: refused_values(rows, how))
        return count_of(reports)

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
        return highest(pa.concat_tables([none, *reports]), limit)

    def verify(self, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        """Compare the replica with the state computed from its change table, without generations before `swept`."""
        layout = self.context.layout
        tables = self.opened_whole(layout.replica, layout.changes)
        replica, schema, shard = tables.existing(layout.replica), table_schema, table_schema.spec.shard

        def live(rows: pa.Table) -> pa.Table:
            return live_rows(of_shard(rows, shard), schema)

        def rule(_: Storage, rows: Mapping[str, pa.Table]) -> list[Any]:
            happened = as_events(rows[_CHANGES], schema) if schema.keys else rows[_CHANGES]
            found = compare(rows[_REPLICA], expected_state(happened, schema, swept), schema, limit)
            return [found.rows, found.expected_rows, sorted(found.buckets), found.keys]

        ours = {*schema.columns, GDDL}
        columns = [name for name in replica.schema.names if name in ours]
        sources = {
            _REPLICA: Source.of(replica, live, columns),
            _CHANGES: Source.of(tables.existing(layout.changes), partial(changes_by_key, schema=schema, shard=shard)),
        }
        comparisons = (
            Verdict(rows=rows, expected_rows=expected_rows, buckets=frozenset(buckets), keys=tuple(keys))
            for rows, expected_rows, buckets, keys in by_key(tables, sources, _compared_by(schema), rule)
        )
        return verdict_of(comparisons, limit)

    def compared_with(self, path: str, rule: OtherTableRule) -> OtherTableFindings:
        """Compare the replica with another table by key."""
        layout = self.context.layout
        tables = self.opened_whole(layout.replica, layout.changes, path)
        sources = {
            THEIRS: Source.of(tables.existing(path), rule.theirs, rule.read),
            OURS: Source.of(tables.existing(layout.replica), rule.ours, [*rule.columns, GDDL]),
            CHANGES: Source.of(tables.existing(layout.changes), partial(changes_by_key, schema=rule.schema)),
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


def _each_file(tables: Tables, path: str, rule: Rule, columns: Sequence[str] | None = None) -> list[Any]:
    source = Source.of(tables.existing(path), without_places, columns)
    return by_file(tables, source, lambda _, rows: rule(rows))


_REPLICA, _CHANGES = "replica", "changes"


def _compared_by(schema: TableSchema) -> pa.Schema:
    """Columns by which rows of the two tables belong together: without a key, those whose values have an order."""
    kinds = DeltaSchema(schema.data).arrow
    names = schema.keys or [field.name for field in kinds if not pt.is_nested(field.type)]
    return fields_of(kinds, names)
