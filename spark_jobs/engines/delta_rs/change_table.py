"""First half of a batch: bad rows to the quarantine, new good rows to the change table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.sql_types import SqlType, StructType, parse_type
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.batch_steps import TableWork
from spark_jobs.engines.delta_rs import quarantine
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.replica import ReplicaWriter
from spark_jobs.engines.delta_rs.row_search import FindRows, search
from spark_jobs.engines.delta_rs.table_writer import TableWriter
from spark_jobs.engines.delta_rs.tables import DataFile, Tables, TableSnapshot
from spark_jobs.engines.transactions import APPEND, QUARANTINE
from spark_jobs.engines.whole_batch import WholeBatch
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules import error_rows
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.changes import change_schema
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.figures import Figures, Overlap
from spark_jobs.rules.redelivery import TIED, new_changes, tie_warnings


@dataclass(frozen=True, kw_only=True)
class ChangeTableWriter:
    """See `BatchWork`."""

    batch_context: BatchContext
    decoded: WholeBatch

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.decoded.decoded_batch

    @property
    def tables(self) -> TableWork:
        return TableWriter(self.batch_context)

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        path, batch_context = self.batch_context.layout.errors, self.batch_context
        if self.decoded_batch.figures.quarantined or files:
            stamp = Stamp.of(batch_context.plan)
            rows = [error_rows.of_rows(group, stamp) for group in self.decoded.groups]
            rows.append(error_rows.of_files(files, stamp))
            quarantine.append(batch_context.tables, path, pa.concat_tables(rows), QUARANTINE, batch_context.transaction)
        batch_context.resolve_earlier(again)

    def append(self, overlap: Overlap) -> ReplicaWriter:
        figures, good = self.decoded_batch.figures, self.decoded.good
        table_schema, stored = self.batch_context.table_schema, self._stored(overlap)
        warnings: tuple[RunWarning, ...] = ()
        if figures.may_repeat(table_schema) or stored is not None:
            found = new_changes(good, stored, table_schema)
            good, warnings = found.drop_columns([TIED]), tie_warnings(found, table_schema)
        appended = figures.appended(good.num_rows, self._write(good), warnings, batch=self.batch_context.plan.number)
        return ReplicaWriter(batch_context=self.batch_context, decoded=self.decoded, changes=good, appended=appended)

    def _write(self, good: pa.Table) -> int:
        """Number of rows that the batch appended, in this attempt or an earlier one."""
        batch_context, path = self.batch_context, self.batch_context.layout.changes
        if batch_context.has_made(path, APPEND):
            counted = batch_context.metrics(path, APPEND).get("numOutputRows")
            if counted is None:
                counted = batch_rows(batch_context.tables, path, batch_context.plan.batch_id).num_rows
            return counted
        batch_context.join_small_files(path)
        batch_context.commit(path, APPEND, {"numOutputRows": good.num_rows}, [good])
        return int(good.num_rows)

    def _stored(self, overlap: Overlap) -> pa.Table | None:
        """Rows of the change table that may equal rows of this batch; null when none can."""
        batch_context, schema = self.batch_context, self.batch_context.table_schema
        known = may_repeat(batch_context, self.decoded_batch.figures, overlap)
        if known is None:
            return None
        snapshot = batch_context.tables.existing(batch_context.layout.changes)
        keys = self.decoded.good.select(schema.keys) if schema.keys else None
        work = FindRows(table=snapshot.path, keys=keys, schema=snapshot.schema.arrow, keep=known)
        found = search(batch_context.tables, work, [file for file in snapshot.files if known.may_be_in(file)])
        return by_name(found.rows, change_schema(schema))


@dataclass(frozen=True)
class MayRepeat:
    """See `Keep`; changes of other batches that may equal some of a batch.

    Attributes:
        generation: of the full-load rows that may; null: none.
        span: lowest and highest sequence of the changes that may; null: none.
        sequence_type: of the table.
    """

    generation: int | None
    span: tuple[Any, Any] | None
    sequence_type: SqlType
    batch_id: str

    def may_be_in(self, file: DataFile) -> bool:
        """By its statistics."""
        low, high = file.low.get(GDDL) or {}, file.high.get(GDDL) or {}
        if self.generation is not None and (low.get("op") is None or low["op"] <= "R" <= high["op"]):
            return True
        if self.span is None or low.get("sequence") is None or not isinstance(low["sequence"], type(self.span[0])):
            return self.span is not None
        return bool(low["sequence"] <= self.span[1] and self.span[0] <= high["sequence"])

    def __call__(self, rows: pa.Table) -> pa.ChunkedArray:
        gddl = rows.column(GDDL)
        wanted = pa.chunked_array([pa.repeat(False, rows.num_rows)])
        if self.generation is not None:
            wanted = pc.and_(
                pc.equal(pc.struct_field(gddl, "op"), "R"),
                pc.equal(pc.struct_field(gddl, "generation"), self.generation),
            )
        if self.span is not None:
            inside = self._inside(pc.struct_field(gddl, "sequence"), self.span)
            wanted = pc.or_kleene(wanted, inside)
        return pc.and_(wanted, pc.not_equal(pc.struct_field(gddl, "batch_id"), self.batch_id))

    def _inside(self, sequence: pa.ChunkedArray, span: tuple[Any, Any]) -> pa.ChunkedArray:
        if isinstance(self.sequence_type, StructType):
            sequence = pc.struct_field(sequence, self.sequence_type.fields[0].name)
        if pt.is_floating(sequence.type) or pt.is_boolean(sequence.type):
            return sequence.is_valid()
        low, high = (_typed(end, sequence.type) for end in span)
        return pc.and_(pc.greater_equal(sequence, low), pc.less_equal(sequence, high))


def may_repeat(batch_context: BatchContext, figures: Figures, overlap: Overlap) -> MayRepeat | None:
    """Which rows of the change table may equal rows of a batch; null when none can."""
    span = figures.sequence_span if overlap.changes else None
    generation = batch_context.plan.generation if overlap.loads else None
    if span is None and generation is None:
        return None
    kind = parse_type(batch_context.table_schema.sequence_type)
    return MayRepeat(generation, span, kind, batch_context.plan.batch_id)


def files_of_batch(snapshot: TableSnapshot, batch_id: str) -> tuple[DataFile, ...]:
    """Files of the change table that may have rows of a batch."""
    ends = ((file, file.low.get(GDDL) or {}, file.high.get(GDDL) or {}) for file in snapshot.files)
    return tuple(
        f for f, low, high in ends if not low.get("batch_id") or low["batch_id"] <= batch_id <= high["batch_id"]
    )


def is_of_batch(rows: pa.Table, batch_id: str) -> pa.ChunkedArray:
    return pc.equal(pc.struct_field(rows.column(GDDL), "batch_id"), batch_id)


def batch_rows(tables: Tables, path: str, batch_id: str) -> pa.Table:
    """Rows of the change table that a batch appended."""
    snapshot = tables.existing(path)
    rows = tables.read_files(snapshot, files_of_batch(snapshot, batch_id))
    return rows.filter(is_of_batch(rows, batch_id))


def _typed(value: Any, kind: pa.DataType) -> pa.Scalar:
    if pt.is_temporal(kind) and isinstance(value, str):
        return pa.scalar(value.removesuffix("Z")).cast(pa.timestamp("us")).cast(kind)
    return pa.scalar(value).cast(kind) if not pt.is_decimal(kind) else pa.scalar(Decimal(value), kind)
