"""Context of a batch: its tables, plan and schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TierSpec
from spark_jobs.plan.planned_batch import BatchPlan
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import by_name, rows_where
from spark_jobs.rules.outcome import ACTION
from spark_jobs.tables.delta_log import version_of
from spark_jobs.tables.delta_tables import DataFile, Tables, TableSnapshot, Write, Written
from spark_jobs.tables.file_rules import deleted, written
from spark_jobs.tables.small_files import join_in_passing, place_new_rows
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.table_rows import KeyMatches, Source, rows_leave


@dataclass(frozen=True, kw_only=True)
class BatchContext:
    """Context of all steps of one batch of one table."""

    tables: Tables
    layout: Layout
    tier: TierSpec
    plan: BatchPlan
    table_schema: TableSchema
    resumed: bool = True

    @classmethod
    def of(cls, context: TableContext, tables: Tables, plan: BatchPlan, table_schema: TableSchema) -> BatchContext:
        return cls(
            tables=tables, layout=context.layout, tier=context.tier, plan=plan, table_schema=table_schema,
            resumed=context.resumed,
        )  # fmt: skip

    @property
    def transaction(self) -> int:
        """The transaction version of the batch's steps."""
        return version_of(self.plan)

    def has_made(self, path: str, app: str) -> bool:
        """Whether a step of this batch is in the table; not checked for a batch that is new in this run."""
        return self.resumed and self.tables.last_transaction(path, app) >= self.transaction

    def metrics(self, path: str, app: str) -> dict[str, int]:
        """Metrics of the commit of a step of this batch; empty where there is none."""
        return self.tables.metrics(path, app, self.transaction)

    def commit(
        self, path: str, app: str, metrics: Mapping[str, int], added: list[pa.Table], removed: Sequence[DataFile] = ()
    ) -> None:
        """Commit a step of this batch, once; see `Write`."""
        self.tables.commit(path, replace(self._write(app, metrics, added), removed=removed))

    def _write(self, app: str, metrics: Mapping[str, int], added: list[pa.Table]) -> Write:
        return Write(
            app=app, version=self.transaction, added=added, metrics=metrics, once=self.resumed,
            keys=self.table_schema.keys,
        )  # fmt: skip

    def put(
        self, snapshot: TableSnapshot, app: str, metrics: Mapping[str, int], matches: KeyMatches, outcome: pa.Table
    ) -> None:
        """Commit an outcome of a table's rows: they are deleted from their files, and new ones written.

        Args:
            outcome: the table's columns, with `ACTION` and `AT`: see `outcome.decide`.
        """
        schema = snapshot.whole_rows
        if matches.whole is None:
            rows, touched = (
                matches.written(outcome, schema),
                matches.touched(outcome) if snapshot.feeds_changes else None,
            )
            write = replace(self._write(app, metrics, [rows]), deleted=matches.deleted(outcome), deleted_rows=touched)
            self.tables.commit(snapshot.path, write)
            return
        added, removed = matches.rewritten(outcome, schema)
        fresh = by_name(rows_where(outcome, np.asarray(pc.equal(outcome.column(ACTION), "insert"))), schema)
        place_new_rows(self.tables, snapshot, fresh, added, removed)
        self.commit(snapshot.path, app, metrics, added, removed)

    def put_files(self, path: str, app: str, written_files: Written, metrics: Mapping[str, int]) -> None:
        """Commit data files of new rows."""
        self.tables.commit(path, replace(self._write(app, metrics, []), written=written_files))

    def put_written(
        self, path: str, app: str, reports: Sequence[Mapping[str, Any]], source: Source, metrics: Mapping[str, int]
    ) -> None:
        """Commit what a rule has written and deleted.

        Args:
            reports: see `Output.report`.
            source: the table's rows, as the rule got them.
        """
        written_files, _ = written(reports)
        write = replace(self._write(app, metrics, []), written=written_files, deleted=deleted(reports, source))
        self.tables.commit(path, write)

    def to_search(self, path: str) -> TableSnapshot:
        """A table in which a batch looks for rows; if each batch adds a file to it, small ones are compacted before."""
        snapshot = self.tables.existing(path)
        if not rows_leave(self.tables, snapshot):
            return snapshot
        self.join_small_files(path)
        return self.tables.existing(path)

    def join_small_files(self, path: str) -> None:
        """Between batches: see `small_files.join_in_passing`."""
        if not self.resumed:
            join_in_passing(self.tables, path)
