"""Data files that a rule over ranges of keys writes, for one commit that names them all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_gddl.stores import Storage
from spark_jobs.engines import table_definition
from spark_jobs.engines.delta_rs.data_files import FileWriter, Target
from spark_jobs.engines.delta_rs.log_commits import Action
from spark_jobs.engines.delta_rs.row_search import AT_FILE, AT_ROW
from spark_jobs.engines.delta_rs.tables import DataFile, Tables, Write, Written
from spark_jobs.engines.key_ranges import Source, by_row
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.arrow_schema import DeltaSchema

_TYPE_CHANGES = "delta.typeChanges"
"""Of a column, in Delta's protocol: the types that files of before have."""
_ROWS = "rows"


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the rows of one table go; sent to tasks.

    Attributes:
        now: milliseconds since 1970.
        keys: by which the change data feed identifies updates; null: the table has no feed.
    """

    target: Target
    now: int
    keys: tuple[str, ...] | None

    def report(
        self, storage: Storage, rows: pa.Table, before: pa.Table | None = None, deleted: pa.Table | None = None
    ) -> dict[str, Any]:
        """Write rows; the report for `Written`.

        Args:
            before: rows that these replace, for the change data feed; null: none.
            deleted: `AT_FILE` and `AT_ROW` of stored rows to delete; null: none.
        """
        rows = by_name(rows, self.target.schema)
        feed: list[Action] = []
        differs = True
        if self.keys is not None:
            stored = self.target.schema.empty_table() if before is None else by_name(before, self.target.schema)
            writer = FileWriter(storage, self.target, self.now)
            feed, differs = writer.feed(stored, rows, self.keys, partly=True)
        at = [[] if deleted is None else deleted.column(name).to_pylist() for name in (AT_FILE, AT_ROW)]
        files = self.target.write(storage, rows, self.now)
        made = {"at": self.target.path, "files": files, "feed": feed, "differs": differs}
        return {**made, "rows": rows.num_rows, "deleted": at}


def output_of(tables: Tables, path: str, keys: Sequence[str], transaction: int) -> Output:
    """For rows that a table gets as it is."""
    feeds = tables.existing(path).feeds_changes
    return Output(target=tables.target(path), now=transaction // 1000, keys=tuple(keys) if feeds else None)


def written(reports: Iterable[Mapping[str, Any]]) -> tuple[Written, int]:
    """What tasks have written of one table, and the number of rows.

    Args:
        reports: see `Output.report`.
    """
    found = list(reports)
    files, feed = ([action for report in found for action in report[name]] for name in ("files", "feed"))
    differs = any(report["differs"] for report in found)
    return Written(files=files, feed=feed, differs=differs), sum(report["rows"] for report in found)


def deleted(reports: Iterable[Mapping[str, Any]], source: Source) -> list[tuple[DataFile, np.ndarray]]:
    """Stored rows that tasks have found to delete: files with the numbers of rows.

    Args:
        source: whose rows they are.
    """
    gone: dict[int, list[int]] = {}
    for report in reports:
        for file, row in zip(*report["deleted"], strict=True):
            gone.setdefault(file, []).append(row)
    return [(source.files[number], np.sort(np.array(rows, np.int64))) for number, rows in gone.items()]


def rewrite(tables: Tables, path: str, schema: DeltaSchema, rule: Callable[[pa.Table], pa.Table]) -> None:
    """Replace all rows of a table by those of a rule, and its schema, in one commit.

    Args:
        rule: from rows of a file to their columns in the schema; sent to tasks.
    """
    snapshot = tables.existing(path)
    metadata = {name: _without_changes(one) for name, one in schema.metadata.items()}
    schema = replace(schema, metadata=metadata)
    keys = () if snapshot.feeds_changes else None
    output = Output(target=tables.target(path, schema), now=tables.moment, keys=keys)
    reports = by_row(tables, {_ROWS: Source.of(snapshot, _without_places)}, _Rewritten(rule, output))
    found, _ = written(map(json.loads, reports))
    tables.commit(path, Write(removed=None, schema=schema, written=found))


@dataclass(frozen=True)
class _Rewritten:
    rule: Callable[[pa.Table], pa.Table]
    output: Output

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:
        return json.dumps(self.output.report(storage, self.rule(rows[_ROWS]), rows[_ROWS])).encode()


def _without_places(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([AT_FILE, AT_ROW])


def _without_changes(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if name != _TYPE_CHANGES}


@dataclass(frozen=True, kw_only=True)
class Replacing:
    """The replacement of a table's rows and schema in one commit; columns keep the table's order and comments."""

    tables: Tables
    definition: TableDefinition
    schema: DeltaSchema
    now: int

    @classmethod
    def of(cls, tables: Tables, definition: TableDefinition, now: int) -> Replacing:
        """
        Args:
            definition: of a table that exists.
        """
        stored = tables.existing(definition.path).schema
        columns = table_definition.in_stored_order(definition, stored.names)
        known = {c.name: stored.metadata[c.name] for c in columns if c.name in stored.metadata}
        metadata = {name: _without_changes(one) for name, one in known.items()}
        return cls(tables=tables, definition=definition, schema=DeltaSchema(columns, metadata), now=now)

    def output(self, keys: Sequence[str]) -> Output:
        snapshot = self.tables.existing(self.definition.path)
        target = Target(
            path=self.definition.path, schema=self.schema.arrow, partition_by=self.definition.partition_by,
            cluster_by=snapshot.cluster_by, indexed=self._indexed,
        )  # fmt: skip
        feed = tuple(keys) if snapshot.feeds_changes else None
        return Output(target=self.tables.placed(target), now=self.now, keys=feed)

    @property
    def _indexed(self) -> tuple[tuple[str, ...], ...]:
        return self.tables.indexed_with(self.definition.path, self.schema.columns, self.definition.skipping)

    def commit(self, app: str, version: int, found: Written, metrics: Mapping[str, int]) -> None:
        """Once for each transaction."""
        write = Write(
            app=app, version=version, removed=None, schema=self.schema, partition_by=self.definition.partition_by,
            metrics=metrics, written=found,
        )  # fmt: skip
        self.tables.commit(self.definition.path, write)
        self.tables.index(self.definition)
