"""From a plan's files to decoded changes: probe, group, plan the schema, decode in tasks; few bytes in the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.dialects.probe import probe_all
from spark_jobs.dialects.probed import Probed, Unreadable, begin_a_table, groups
from spark_jobs.engines.base import TableContext
from spark_jobs.engines.decoding import (
    Decoding,
    are_all_deletes,
    landed,
    raise_fault,
    resumed_batch,
    resumed_schema,
)
from spark_jobs.engines.spark import quarantine
from spark_jobs.engines.spark.columns import name
from spark_jobs.engines.spark.decode_tasks import (
    ERROR,
    KIND,
    REPORT,
    DecodeFiles,
    DecodeRecords,
    MeasureChanges,
    Report,
    naming_files,
    reported_type,
    row_type,
)
from spark_jobs.engines.spark.distinct import count_distinct, hashes
from spark_jobs.engines.spark.in_tasks import map_batches
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.engines.splits import dealt, splits
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.batch_schema import Landed
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.measure import PartFigures, combined, figures_of
from spark_jobs.rules.measure import distinct as distinct_at_hand
from spark_jobs.rules.records import landed_columns
from spark_jobs.spark.arrow_tasks import map_in_arrow

DRIVER_BYTES = 4 * 1024**2
"""Bytes up to which files are decoded in the driver: starting tasks would take longer."""
_KEEP_BYTES = 256 * 1024**2


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """A batch's rows.

    Attributes:
        rows: columns of the change table, `_gddl`, `ERROR`, `KIND`.
        kept: the rows are cached, and not decoded again at the next use.
    """

    decoded_batch: DecodedBatch
    rows: DataFrame
    kept: bool = False


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Decoded rows, with their figures and distinct identities and keys; and files that turned out to be unreadable."""

    rows: DataFrame
    whole: PartFigures
    distinct: tuple[int, int]
    kept: bool
    damaged: tuple[Unreadable, ...]


@dataclass(frozen=True, kw_only=True)
class BatchReader:
    """Reads and decodes the files or records of one batch."""

    tables: Tables
    context: TableContext
    plan: BatchPlan
    state: TableState

    def decode_files(self) -> tuple[Decoded | None, tuple[Unreadable, ...]]:
        """See `Engine.decode_files`."""
        if self.plan.source == "quarantine":
            return self._decode_records(), ()
        files, unreadable = probe_all(self.context.storage, self.plan.files, self.context.dialect, self._lean)
        while files and not (self.state.keys is None and not begin_a_table(files)):
            alike = groups(files)
            shapes = [self._landed(group) for group in alike]
            decoding = Decoding.planned(self.context, self.plan, self.state, shapes, files)
            found = self._decoded(decoding, alike)
            unreadable = (*unreadable, *found.damaged)
            if not found.damaged:
                batch = decoding.batch(found.whole, found.distinct, alike)
                return Decoded(decoded_batch=batch, rows=found.rows, kept=found.kept), unreadable
            bad = {u.file.path for u in found.damaged}
            files = tuple(f for f in files if f.file.path not in bad)
        return None, unreadable

    @property
    def is_for_driver(self) -> bool:
        """Whether the files are decoded in the driver."""
        return self._bytes <= DRIVER_BYTES

    @cached_property
    def _bytes(self) -> int:
        return sum(file.size for file in self.plan.files)

    def _lean(self, found: Probed) -> Probed:
        """Drop rows that the dialect has translated from memory; tasks translate them again."""
        return found if self.is_for_driver else replace(found, table=None, malformed=None)

    def _landed(self, group: Sequence[Probed]) -> Landed:
        return landed(self.context, group[0], lambda op: are_all_deletes(self.context, group, op))

    def _decoded(self, decoding: Decoding, alike: Sequence[Sequence[Probed]]) -> _Rows:
        ordinals = {file.path: i for i, file in enumerate(self.plan.files)}
        slots = self.tables.slots
        if self.is_for_driver:
            return self._in_driver(decoding, alike, ordinals)
        tasks = tuple(dealt(splits(alike, ordinals, slots), slots))
        decode = DecodeFiles(decoder=decoding.decoder.to_send(), dialect=self.context.dialect, tasks=tasks)
        numbers = self.tables.spark.range(0, len(tasks), 1, len(tasks))
        with naming_files([[split.file.file.path for split in task] for task in tasks]):
            return self._in_tasks(map_in_arrow(numbers, decode, reported_type(decoding.decoder.table_schema)), decoding)

    def _in_driver(self, decoding: Decoding, alike: Sequence[Sequence[Probed]], ordinals: dict[str, int]) -> _Rows:
        decode = DecodeFiles(decoder=decoding.decoder, dialect=self.context.dialect, tasks=())
        tables = [decode.part(self.context.storage, part) for part in splits(alike, ordinals, 1, keep_rows=True)]
        rows = pa.concat_tables(tables)
        reports = [Report.from_json(text) for text in rows.column(REPORT).drop_null().to_pylist()]
        rows = rows.filter(rows.column(REPORT).is_null()).drop_columns([REPORT])
        good = rows.filter(rows.column(ERROR).is_null())
        table_schema = decoding.decoder.table_schema
        frame = self.tables.local(rows, row_type(table_schema))
        return self._reported(frame, reports, table_schema, distinct_at_hand(good, table_schema), kept=True)

    def _in_tasks(self, frame: DataFrame, decoding: Decoding) -> _Rows:
        kept = self._bytes <= _KEEP_BYTES
        frame = self.tables.keep(frame) if kept else frame
        rows = frame.where(F.col(REPORT).isNull()).drop(REPORT)
        table_schema = decoding.decoder.table_schema
        hashed = hashes(frame, table_schema, ERROR, REPORT)
        measured = hashed.withColumn(ERROR, F.col(ERROR).isNotNull())
        measured = measured if kept else measured.persist()  # few bytes per row, and the files are decoded once less
        reports = [Report.from_json(r[0]) for r in measured.where(F.col(REPORT).isNotNull()).select(REPORT).collect()]
        good = measured.where(F.col(REPORT).isNull() & ~F.col(ERROR))
        count = sum(f.rows for r in reports if r.figures is not None for f in r.figures.files.values())
        distinct = count_distinct(good, count) if table_schema.keys else (0, 0)
        if not kept:
            measured.unpersist()
        return self._reported(rows, reports, table_schema, distinct, kept=kept)

    def _reported(
        self, rows: DataFrame, reports: Sequence[Report], schema: TableSchema, distinct: tuple[int, int], *, kept: bool
    ) -> _Rows:
        """
        Raises:
            GddlError: a fault of the store.
        """
        for report in reports:
            raise_fault(report.error)
        files = {file.path: file for file in self.plan.files}
        damaged = {r.path: Unreadable(files[r.path], r.code, r.reason) for r in reports if r.figures is None}
        figures = [r.figures for r in reports if r.figures is not None]
        return _Rows(
            rows=rows, whole=combined(figures, schema), distinct=distinct, kept=kept, damaged=tuple(damaged.values())
        )

    def resume_from_changes(self) -> Decoded:
        """See `Engine.resume_from_changes`."""
        schema = resumed_schema(self.context, self.plan, self.state)
        table_schema, gddl = schema.table_schema, F.col(GDDL)
        rows = self.tables.read(self.context.layout.changes).where(gddl["batch_id"] == self.plan.batch_id)
        kind = F.when(gddl["op"] == "R", "load").otherwise("change")
        rows = rows.withColumns({ERROR: F.lit(None).cast("string"), KIND: kind})
        source = gddl["source_file"].alias("f")
        found = rows.select(source, gddl["schema"].alias("s"), (gddl["op"] != "R").alias("c")).distinct().collect()
        distinct = count_distinct(hashes(rows, table_schema)) if table_schema.keys else (0, 0)
        figures = figures_of(self._measured(rows, table_schema), table_schema, distinct)
        batch = resumed_batch(schema, figures, [(r["f"], r["s"], r["c"]) for r in found])
        return Decoded(decoded_batch=batch, rows=rows)

    def _measured(self, rows: DataFrame, table_schema: TableSchema) -> PartFigures:
        wanted = [name(key) for key in table_schema.keys[:1]]
        reports = map_batches(
            rows.select(*wanted, GDDL, KIND), MeasureChanges(table_schema), f"`{REPORT}` string"
        ).collect()
        return combined([PartFigures.from_json(row[REPORT]) for row in reports], table_schema)

    def _decode_records(self) -> Decoded | None:
        """Decode the unresolved rows of the quarantine again; None when there are none."""
        folder = "" if self.context.spec.shard is None else self.context.layout.landing
        waiting = quarantine.to_replay(
            self.tables, self.context.layout.errors, self.plan.planned_at, self.plan.codes, folder
        )
        kinds = [] if waiting is None else waiting.select("kind", "record_schema").distinct().collect()
        numbers = {(r["kind"], r["record_schema"]): i for i, r in enumerate(sorted(kinds))}
        if waiting is None or not numbers:
            return None
        label = f"quarantine of {self.context.spec.table}"
        alike = [
            Landed(kind=kind, columns=landed_columns(ddl), label=label, only_deletes=False) for kind, ddl in numbers
        ]
        decoding = Decoding.planned(self.context, self.plan, self.state, alike)
        decode = DecodeRecords(decoder=decoding.decoder.to_send(), numbers=numbers)
        found = self._in_tasks(map_in_arrow(waiting, decode, reported_type(decoding.decoder.table_schema)), decoding)
        return Decoded(decoded_batch=decoding.batch(found.whole, found.distinct), rows=found.rows, kept=found.kept)
