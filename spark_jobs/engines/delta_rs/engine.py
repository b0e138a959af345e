"""The delta-rs engine behind the pipeline's port: one process, no JVM, tables that fit into its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from airflow_gddl.contract.result import MainCounts, RunWarning
from airflow_gddl.contract.spec import EngineName
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.base import DeclinedError, RebuildRequest, TableContext
from spark_jobs.engines.delta_rs import quarantine
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.batch_reader import BatchReader, Decoded
from spark_jobs.engines.delta_rs.change_table import ChangeTableWriter
from spark_jobs.engines.delta_rs.erasing import DeltaRsEraser
from spark_jobs.engines.delta_rs.maintenance import DeltaRsMaintenance
from spark_jobs.engines.delta_rs.rebuild import Rebuild
from spark_jobs.engines.delta_rs.replica import ReplicaWriter
from spark_jobs.engines.delta_rs.tables import Tables
from spark_jobs.engines.transactions import QUARANTINE, version_of
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.columns import Column
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules import error_rows
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.changes import change_schema
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.figures import Appended, Applied, Overlap, Rebuilt, Verdict
from spark_jobs.rules.order import events
from spark_jobs.rules.recorded import recorded_files
from spark_jobs.rules.verify import compare, expected_state, live_rows, unmarked, verdict_of


@dataclass(frozen=True)
class DeltaRsBatchWork:
    """See `Work`."""

    decoded: Decoded
    applying: ReplicaWriter

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.decoded.decoded_batch

    @property
    def _receiving(self) -> ChangeTableWriter:
        return ChangeTableWriter(site=self.applying.site, decoded=self.decoded)

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        return self._receiving.ensure_tables()

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        self._receiving.quarantine(files, again)

    def append(self, overlap: Overlap) -> Appended:
        appended, self.applying.changes = self._receiving.append(overlap)
        return appended

    def resolve_rows(self) -> None:
        site = self.applying.site
        quarantine.resolve_rows(site.tables, site.layout.errors, self.decoded.good, site.plan.planned_at)

    def tombstones(self) -> None:
        self.applying.tombstones()

    def merge(self) -> Applied:
        return self.applying.merge()

    def append_only(self) -> Applied:
        return self.applying.append_only()

    def sweepable(self) -> tuple[int, int]:
        return self.applying.sweepable()

    def sweep(self) -> MainCounts:
        return self.applying.sweep()

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int, everything: bool) -> None:
        self.applying.history(generation_low_watermarks, swept=swept, everything=everything)

    def purge_tombstones(self, before: datetime) -> None:
        self.applying.purge_tombstones(before)


@dataclass(frozen=True)
class DeltaRsEngine:
    """See `Engine`."""

    tables: Tables

    @property
    def name(self) -> EngineName:
        return "delta_rs"

    def suited(self, *, few_rows: bool) -> DeltaRsEngine:  # noqa: ARG002 - nothing is set up either way
        return self

    def exists(self, path: str) -> bool:
        return self.tables.exists(path)

    def version(self, path: str) -> int | None:
        return self.tables.version(path)

    def foreign_rows(self, path: str) -> int:
        return int(self.tables.read(path).column(GDDL).null_count)

    def last_transaction(self, path: str, app: str) -> int:
        return self.tables.last_transaction(path, app)

    def recorded_files(self, path: str) -> list[RecordedFile]:
        snapshot = self.tables.existing(path)
        parts = (self.tables.read_files(snapshot, [file], [GDDL]) for file in snapshot.files)
        return recorded_files(parts, snapshot.schema.types[GDDL])

    def columns(self, path: str) -> tuple[Column, ...]:
        return self.tables.columns(path)

    def decode_files(
        self, context: TableContext, plan: BatchPlan, state: TableState
    ) -> tuple[DeltaRsBatchWork | None, tuple[Unreadable, ...]]:
        self._require_small(context, "the batch", sum(f.size for f in plan.files))
        self._require_small_tables(context, context.layout.replica, context.layout.history)
        decoded, unreadable = self._intaking(context, plan, state).decode_files()
        return (None if decoded is None else self._work(context, plan, state, decoded)), unreadable

    def resume_from_changes(self, context: TableContext, plan: BatchPlan, state: TableState) -> DeltaRsBatchWork:
        self._require_small_tables(context, context.layout.replica, context.layout.history)
        return self._work(context, plan, state, self._intaking(context, plan, state).resume_from_changes())

    def without_rows(self, context: TableContext, plan: BatchPlan, state: TableState) -> DeltaRsBatchWork:
        self._require_small_tables(context, context.layout.replica, context.layout.history)
        return self._work(context, plan, state, self._intaking(context, plan, state).without_rows())

    def _require_small_tables(self, context: TableContext, *paths: str) -> None:
        """
        Raises:
            DeclinedError: one of them is too large for a process's memory.
        """
        for path in paths:
            snapshot = self.tables.snapshot(path)
            if snapshot is not None:
                self._require_small(context, f"the table {path.rpartition('/')[2]}", snapshot.size)

    def _require_small(self, context: TableContext, what: str, size: int) -> None:
        if size > context.tier.delta_rs_max_bytes:
            limit = f"more than its tier's delta_rs_max_bytes ({context.tier.delta_rs_max_bytes})"
            raise DeclinedError(f"{what} has {size} bytes, {limit}")

    def _intaking(self, context: TableContext, plan: BatchPlan, state: TableState) -> BatchReader:
        return BatchReader(tables=self.tables, context=context, plan=plan, state=state)

    def _work(self, context: TableContext, plan: BatchPlan, state: TableState, decoded: Decoded) -> DeltaRsBatchWork:
        decoded_batch = decoded.decoded_batch
        site = BatchContext(
            tables=self.tables,
            layout=context.layout,
            tier=context.tier,
            plan=plan,
            table_schema=decoded_batch.schema.table_schema,
            begun=context.begun,
        )
        applying = ReplicaWriter(
            site, decoded_batch.figures, decoded_batch.change_schemas, state.keys is None, decoded.good
        )
        return DeltaRsBatchWork(decoded, applying)

    def quarantine_files(self, context: TableContext, plan: BatchPlan, files: Sequence[Unreadable]) -> None:
        rows = error_rows.of_files(files, Stamp.of(plan))
        quarantine.append(self.tables, context.layout.errors, rows, QUARANTINE, version_of(plan))

    def forget_errors(self, path: str, batch_id: str) -> None:
        quarantine.forget(self.tables, path, batch_id)

    def maintenance(self) -> DeltaRsMaintenance:
        return DeltaRsMaintenance(self.tables)

    def eraser(self) -> DeltaRsEraser:
        return DeltaRsEraser(self.tables)

    def drops_changes(self, order: RebuildRequest) -> bool:
        self._require_small_tables(order.living, order.living.layout.changes)
        return Rebuild(self.tables, order).drops_changes()

    def swap(self, order: RebuildRequest, report: Callable[[str], None]) -> Rebuilt:
        self._require_small_tables(order.living, order.beside.changes, order.living.layout.changes)
        return Rebuild(self.tables, order).swap(report)

    def rebuilt_rows(self, order: RebuildRequest, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        self._require_small_tables(order.living, order.beside.changes, order.living.layout.changes)
        rows = Rebuild(self.tables, order).rows()
        yield from zip(*(rows.column(name).to_pylist() for name in columns), strict=True)

    def verify(self, context: TableContext, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        self._require_small_tables(context, context.layout.replica, context.layout.changes)
        replica, changes = self.tables.read(context.layout.replica), self.tables.read(context.layout.changes)
        changes = by_name(changes, change_schema(table_schema))
        happened = events(changes, table_schema) if table_schema.keys else changes
        expected = expected_state(happened, table_schema, swept)
        return verdict_of([compare(live_rows(replica, table_schema), expected, table_schema, limit)], limit)

    def live_rows(self, path: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        snapshot = self.tables.existing(path)
        for file in snapshot.files:
            rows = unmarked(self.tables.read_files(snapshot, [file]))
            yield from zip(*(rows.column(name).to_pylist() for name in columns), strict=True)

    def unresolved(self, path: str, limit: int) -> tuple[int, list[Mapping[str, Any]]]:
        rows = self.tables.read(path)
        rows = rows.filter(rows.column("resolved_at").is_null()).drop_columns(["record_schema", "resolved_at"])
        by = [(name, "ascending", "at_start") for name in ("batch_id", "source_file", "position")]
        first = rows.take(pc.sort_indices(rows, sort_keys=by)).slice(0, limit).to_pylist()
        stamped = [{**r, "occurred_at": _iso(r["occurred_at"])} for r in first]
        return rows.num_rows, list(stamped)


def _iso(moment: datetime) -> str:
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
