"""Reads of whole tables file by file, where files of their size are worked on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.sql_types import SqlType
from airflow_gddl.stores import Storage
from spark_jobs.engines.delta_rs.row_search import AT_FILE, AT_ROW
from spark_jobs.engines.delta_rs.tables import Tables
from spark_jobs.engines.key_ranges import Source, by_file
from spark_jobs.engines.places import stream_of, stream_rows
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules import quarantine
from spark_jobs.rules.key_rows import KeyRows, highest, with_key
from spark_jobs.rules.recorded import recorded_files
from spark_jobs.rules.rewrite import Rewrite, count_of, refused_values
from spark_jobs.rules.sweep import unmarked

_ROWS = "rows"
Rule = Callable[[pa.Table], Any]
"""From rows of one file, in the table's columns, to what is known of them; sent to tasks."""


@dataclass(frozen=True)
class _OfFile:
    rule: Rule

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        found = self.rule(rows[_ROWS].drop_columns([AT_FILE, AT_ROW]))
        return stream_of(found) if isinstance(found, pa.Table) else json.dumps(found).encode()


def _each_file(tables: Tables, path: str, rule: Rule, columns: Sequence[str] | None = None) -> list[bytes]:
    source = Source.of(tables.existing(path), _as_they_are, columns)
    return by_file(tables, {_ROWS: source}, _OfFile(rule))


def _as_they_are(rows: pa.Table) -> pa.Table:
    return rows


def foreign_rows(tables: Tables, path: str) -> int:
    """See `Engine.foreign_rows`."""
    return sum(json.loads(count) for count in _each_file(tables, path, _without_gddl, [GDDL]))


def _without_gddl(rows: pa.Table) -> int:
    return int(rows.column(GDDL).null_count)


def files_of_changes(tables: Tables, path: str) -> list[RecordedFile]:
    """See `Engine.recorded_files`."""
    reports = _each_file(tables, path, _Recorded(tables.existing(path).schema.types[GDDL]), [GDDL])
    return [RecordedFile(**file) for report in reports for file in json.loads(report)]


@dataclass(frozen=True)
class _Recorded:
    gddl: SqlType

    def __call__(self, rows: pa.Table) -> list[dict[str, Any]]:
        return [asdict(file) for file in recorded_files([rows], self.gddl)]


def values_refused(tables: Tables, path: str, how: Rewrite) -> dict[tuple[str, str], int]:
    """See `Engine.refused_values`."""
    return count_of([stream_rows(found) for found in _each_file(tables, path, lambda rows: refused_values(rows, how))])


def rows_of_key(tables: Tables, path: str, table_schema: TableSchema, key: tuple[str, ...], limit: int) -> KeyRows:
    """See `Engine.rows_of_key`."""
    reports = _each_file(tables, path, lambda rows: with_key(rows, table_schema, key))
    none = tables.existing(path).schema.arrow.empty_table()
    return highest(pa.concat_tables([none, *map(stream_rows, reports)]), limit)


def live_rows(tables: Tables, path: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """See `Engine.live_rows`."""
    for rows in _one_by_one(tables, path):
        yield from zip(*(unmarked(rows).column(name).to_pylist() for name in columns), strict=True)


def in_quarantine(tables: Tables, path: str) -> tuple[int, int]:
    """See `Engine.in_quarantine`."""
    found = [quarantine.unresolved(rows) for rows in _one_by_one(tables, path, ["resolved_at", "position"])]
    return sum(left.num_rows for left in found), sum(left.column("position").null_count for left in found)


def unresolved(tables: Tables, path: str, limit: int) -> tuple[int, list[Mapping[str, Any]]]:
    """See `Engine.unresolved`."""
    count, first = 0, tables.existing(path).schema.arrow.empty_table()
    for rows in _one_by_one(tables, path):
        left = quarantine.unresolved(rows)
        count += left.num_rows
        first = quarantine.oldest(pa.concat_tables([first, left]), limit)
    return count, quarantine.shown(first)


def _one_by_one(tables: Tables, path: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Rows of each file: one at a time is in memory."""
    snapshot = tables.existing(path)
    for file in snapshot.files:
        yield tables.read_files(snapshot, [file], columns)
