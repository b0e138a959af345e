"""Rows of a replica from before its first batch: appended to the change table, and marked by metadata alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.baseline import BASELINE, Baseline
from spark_jobs.plan.planned_batch import BatchPlan
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import flat
from spark_jobs.rules.baseline_rows import BaselineFigures, figures_of_part, figures_together, gddl_of
from spark_jobs.rules.positions import FILE_BITS
from spark_jobs.tables import table_definition, whole_tables
from spark_jobs.tables.data_files import has_column
from spark_jobs.tables.delta_log import APPEND, MERGE, version_of
from spark_jobs.tables.delta_tables import DataFile, Tables, TableSnapshot, Write
from spark_jobs.tables.file_rules import Output, Rewriting, written
from spark_jobs.tables.table_rows import (
    AT_FILE,
    AT_ROW,
    Source,
    as_they_are,
    by_file,
    without_places,
)


@dataclass(frozen=True, kw_only=True)
class MarkedFiles:
    """Data files of a replica that have `_gddl`, of so many.

    Attributes:
        soft: rows may be marked deleted.
    """

    files: int
    bytes: int
    of: int
    soft: bool


@dataclass(frozen=True)
class BaselineWriter:
    """Makes the rows that a replica has before its first batch the baseline of the table, without writing them again.

    Both writes are idempotent by the plan's time.
    """

    tables: Tables
    layout: Layout
    tier: TierSpec

    def baseline(self) -> Baseline | None:
        """What the rows without `_gddl` of the replica stand for, as its property says; None: it says nothing."""
        stored = self.tables.existing(self.layout.replica).stored_baseline
        return None if stored is None else stored.baseline

    def figures(self, keys: Sequence[str], baseline: Baseline, sequence_type: str) -> BaselineFigures:
        """What the rows are like; nothing is written.

        Args:
            baseline: only what tells the sequences.
            sequence_type: SQL type of `_gddl.sequence`.
        """
        columns = tuple(dict.fromkeys((*keys, *baseline.sequence)))
        source = Source.of(self.tables.existing(self.layout.replica), columns=columns)
        kind = parse_type(sequence_type)
        return figures_together(
            by_file(self.tables, source, lambda _, rows: figures_of_part(rows, keys, baseline, kind))
        )

    def append(self, plan: BatchPlan, schema: TableSchema, baseline: Baseline) -> int:
        """Append the rows to the change table, which is created; returns their number."""
        tables, path, version = self.tables, self.layout.changes, version_of(plan)
        whole_tables.ensure(tables, table_definition.changes(schema, path, self.tier))
        if tables.last_transaction(path, APPEND) < version:
            output = Output(target=tables.target(path), now=version // 1000, keys=None)
            rule = Rewriting(partial(_as_changes, baseline=baseline, schema=output.target.schema), output)
            files, rows = written(by_file(tables, Source.of(tables.existing(self.layout.replica)), rule))
            metrics = {"numOutputRows": rows}
            tables.commit(path, Write(app=APPEND, version=version, written=files, metrics=metrics))
        return tables.metrics(path, APPEND, version).get("numOutputRows", 0)

    def mark(self, plan: BatchPlan, schema: TableSchema, baseline: Baseline, version: int) -> int:
        """Give the replica `_gddl`, and the property, in one commit of metadata after a version; returns that commit's.

        Raises:
            RetriableError: `DELTA_CONFLICT`: another writer has changed the table since that version.
        """
        (column,) = (c for c in table_definition.replica_columns(schema) if c.name == GDDL)
        path, properties = self.layout.replica, {BASELINE: codec.to_document(baseline)}
        return self.tables.extend(path, column, properties, (MERGE, version_of(plan)), version)

    def marked(self) -> MarkedFiles:
        """Which data files of the replica have `_gddl`."""
        snapshot = self.tables.snapshot(self.layout.replica)
        if snapshot is None:
            return MarkedFiles(files=0, bytes=0, of=0, soft=False)
        files = self._with_gddl(snapshot)
        soft = table_definition.marks_deletes(snapshot.schema.types.get(GDDL))
        return MarkedFiles(files=len(files), bytes=sum(file.size for file in files), of=len(snapshot.files), soft=soft)

    def unmark(self) -> None:
        """Write these files again without it, and remove it and our properties, in one commit; idempotent.

        Raises:
            RetriableError: `DELTA_CONFLICT`.
        """
        tables, path = self.tables, self.layout.replica
        tables.forget(path)
        snapshot = tables.existing(path)
        if GDDL not in snapshot.schema.types:
            return
        files = self._with_gddl(snapshot)
        columns = [name for name in snapshot.whole_rows.names if name != GDDL]
        schema = replace(snapshot.schema, columns=tuple(c for c in snapshot.schema.columns if c.name != GDDL))
        target = tables.target_of_files(path, schema)
        source = replace(Source.of(snapshot, without_places, columns, to_write=True), files=tuple(files))
        output = Output(target=target, now=tables.moment, keys=None)
        tables.withdraw(path, schema, files, written(by_file(tables, source, Rewriting(as_they_are, output)))[0])

    def _with_gddl(self, snapshot: TableSnapshot) -> list[DataFile]:
        return [file for file in snapshot.files if has_column(self.tables.storage, snapshot.path, file, GDDL)]


def _as_changes(rows: pa.Table, baseline: Baseline, schema: pa.Schema) -> pa.Table:
    """Rows of a file of the replica as changes."""
    files, places = (flat(rows.column(name)).to_numpy().astype("int64") for name in (AT_FILE, AT_ROW))
    positions = pa.array((files << FILE_BITS) + places, pa.int64())
    return rows.append_column(GDDL, gddl_of(rows, baseline, schema.field(GDDL).type, positions))
