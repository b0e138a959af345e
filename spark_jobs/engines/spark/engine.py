"""The Spark engine behind the pipeline's port."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.result import MainCounts, RunWarning
from airflow_gddl.contract.spec import EngineName
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines import table_definition
from spark_jobs.engines.base import RebuildRequest, TableContext
from spark_jobs.engines.spark import quarantine
from spark_jobs.engines.spark import verify as verifying
from spark_jobs.engines.spark.batch_context import BatchContext
from spark_jobs.engines.spark.batch_reader import BatchReader, Decoded
from spark_jobs.engines.spark.change_table import ChangeTableWriter
from spark_jobs.engines.spark.columns import name
from spark_jobs.engines.spark.erasing import SparkEraser
from spark_jobs.engines.spark.maintenance import SparkMaintenance
from spark_jobs.engines.spark.merge import MergeInput, NetChanges
from spark_jobs.engines.spark.rebuild import Rebuild
from spark_jobs.engines.spark.replica import ReplicaWriter
from spark_jobs.engines.spark.tables import Tables, sql_text
from spark_jobs.engines.transactions import QUARANTINE, version_of
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.columns import Column
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.plan.types import parse_type
from spark_jobs.rules.batch_schema import plan_batch
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.figures import NOTHING, Appended, Applied, Overlap, Rebuilt, Verdict
from spark_jobs.rules.recorded import recorded_files

_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"


@dataclass
class SparkBatchWork:
    """See `Work`."""

    decoded: Decoded
    applying: ReplicaWriter
    _net: NetChanges | None = field(default=None, init=False)
    _merging: MergeInput | None = field(default=None, init=False)

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.decoded.decoded_batch

    @property
    def _receiving(self) -> ChangeTableWriter:
        return ChangeTableWriter(site=self.applying.site, decoded=self.decoded.rows, figures=self.decoded_batch.figures)

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        return self._receiving.ensure_tables()

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        self._receiving.quarantine(files, again)

    def append(self, overlap: Overlap) -> Appended:
        receiving = self._receiving
        fresh = receiving.fresh(overlap)
        self.applying = replace(self.applying, overlap=overlap)
        if not self.decoded.kept:
            return receiving.append(fresh)
        self.applying = replace(self.applying, fresh=fresh.rows)
        if not self.applying.site.table_schema.keys or self.applying.site.tables.few_rows:
            return receiving.append(fresh)
        # Much of either is the driver planning: side by side the cores have something to do meanwhile.
        ahead = self._decided if self.applying.decides_before_append else self._found_net
        with ThreadPoolExecutor(1, thread_name_prefix="net") as aside:
            deciding = aside.submit(ahead)
            appended = receiving.append(fresh)
            deciding.result()
        return appended

    def _found_net(self) -> NetChanges:
        """The net changes of the batch; found once."""
        if self._net is None:
            self._net = self.applying.net()
        return self._net

    def _decided(self) -> MergeInput:
        """What becomes of the batch's keys; decided once."""
        if self._merging is None:
            self._merging = self.applying.decide(self._found_net())
        return self._merging

    def resolve_rows(self) -> None:
        site = self.applying.site
        quarantine.resolve_rows(site.tables, site.layout.errors, self.decoded.rows, site.plan.planned_at)

    def tombstones(self) -> None:
        self.applying.tombstones(self._decided())

    def merge(self) -> Applied:
        return self.applying.merge(self._decided())

    def append_only(self) -> Applied:
        return self.applying.append_only()

    def sweepable(self) -> tuple[int, int]:
        return self.applying.sweepable()

    def sweep(self) -> MainCounts:
        return self.applying.sweep()

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int, everything: bool) -> None:
        net = None if everything else self._found_net()
        keys, count = (None, None) if net is None else (net.rows, net.keys)
        self.applying.history(keys, count, generation_low_watermarks, swept)

    def purge_tombstones(self, before: datetime) -> None:
        self.applying.purge_tombstones(before)


@dataclass(frozen=True)
class SparkEngine:
    """See `Engine`."""

    tables: Tables

    @property
    def name(self) -> EngineName:
        return "spark"

    def suited(self, *, few_rows: bool) -> SparkEngine:
        return SparkEngine(self.tables.suited(few_rows=few_rows))

    def exists(self, path: str) -> bool:
        return self.tables.exists(path)

    def version(self, path: str) -> int | None:
        return self.tables.version(path)

    def foreign_rows(self, path: str) -> int:
        return self.tables.read(path).where(F.col(GDDL).isNull()).count()

    def last_transaction(self, path: str, app: str) -> int:
        return self.tables.last_transaction(path, app)

    def recorded_files(self, path: str) -> list[RecordedFile]:
        rows, gddl = self.tables.read(path), F.col(GDDL)
        kind = parse_type(sql_text(rows.schema[GDDL].dataType))
        latest = [F.max(gddl[name]).alias(name) for name in ("applied_at", "sequence")]
        found = rows.groupBy(gddl["source_file"].alias("source_file"), gddl["generation"].alias("generation"))
        struct = F.struct("source_file", "generation", "applied_at", "sequence").alias(GDDL)
        return recorded_files([found.agg(*latest).select(struct).toArrow()], kind)

    def columns(self, path: str) -> tuple[Column, ...]:
        return self.tables.columns(path)

    def decode_files(
        self, context: TableContext, plan: BatchPlan, state: TableState
    ) -> tuple[SparkBatchWork | None, tuple[Unreadable, ...]]:
        decoded, unreadable = BatchReader(tables=self.tables, context=context, plan=plan, state=state).decode_files()
        return (None if decoded is None else self._work(context, plan, state, decoded)), unreadable

    def resume_from_changes(self, context: TableContext, plan: BatchPlan, state: TableState) -> SparkBatchWork:
        decoded = BatchReader(tables=self.tables, context=context, plan=plan, state=state).resume_from_changes()
        return self._work(context, plan, state, decoded)

    def without_rows(self, context: TableContext, plan: BatchPlan, state: TableState) -> SparkBatchWork:
        schema = plan_batch(context.dialect, (), context.stored_columns(), state)
        decoded_batch = DecodedBatch(schema=schema, figures=NOTHING, schema_ids=(), change_schemas=frozenset())
        rows = self.tables.read(context.layout.changes).limit(0)
        work = self._work(context, plan, state, Decoded(decoded_batch=decoded_batch, rows=rows))
        work.applying = replace(work.applying, first=False)
        return work

    def _work(self, context: TableContext, plan: BatchPlan, state: TableState, decoded: Decoded) -> SparkBatchWork:
        decoded_batch = decoded.decoded_batch
        site = BatchContext(
            tables=self.tables,
            layout=context.layout,
            tier=context.tier,
            plan=plan,
            table_schema=decoded_batch.schema.table_schema,
        )
        applying = ReplicaWriter(
            site=site, figures=decoded_batch.figures, schemas=decoded_batch.change_schemas, first=state.keys is None
        )
        return SparkBatchWork(decoded, applying)

    def quarantine_files(self, context: TableContext, plan: BatchPlan, files: Sequence[Unreadable]) -> None:
        self.tables.create(table_definition.errors(context.layout.errors))
        rows = quarantine.bad_files(self.tables, files, Stamp.of(plan))
        self.tables.append(rows, context.layout.errors, QUARANTINE, version_of(plan))

    def forget_errors(self, path: str, batch_id: str) -> None:
        self.tables.handle(path).delete(F.col("batch_id") == batch_id)

    def maintenance(self) -> SparkMaintenance:
        return SparkMaintenance(self.tables)

    def eraser(self) -> SparkEraser:
        return SparkEraser(self.tables)

    def drops_changes(self, order: RebuildRequest) -> bool:
        return self._rebuild(order).drops_changes()

    def swap(self, order: RebuildRequest, report: Callable[[str], None]) -> Rebuilt:
        return self._rebuild(order).swap(report)

    def _rebuild(self, order: RebuildRequest) -> Rebuild:
        return Rebuild(
            tables=self.tables, living=order.living.layout, beside=order.beside, tier=order.living.tier,
            plan=order.plan, table_schema=order.table_schema, swept=order.swept, landed=order.landed,
            generation_low_watermarks=order.generation_low_watermarks, read=order.read,
            resequenced=order.resequenced,
            reselected=order.reselected,
        )  # fmt: skip

    def rebuilt_rows(self, order: RebuildRequest, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        return _tuples(self._rebuild(order).rows(), columns)

    def verify(self, context: TableContext, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        replica, changes = self.tables.read(context.layout.replica), self.tables.read(context.layout.changes)
        rows = self.tables.count(context.layout.changes)
        return verifying.verify(replica, changes, table_schema, swept=swept, limit=limit, rows=rows)

    def live_rows(self, path: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        rows = self.tables.read(path)
        if "deleted" in rows.select(f"{GDDL}.*").columns:
            rows = rows.where(~F.coalesce(F.col(GDDL)["deleted"], F.lit(False)))
        return _tuples(rows, columns)

    def unresolved(self, path: str, limit: int) -> tuple[int, list[Mapping[str, Any]]]:
        rows = self.tables.read(path).where(F.col("resolved_at").isNull())
        shown = rows.drop("record_schema", "resolved_at").orderBy("batch_id", "source_file", "position")
        listed = shown.withColumn("occurred_at", F.date_format("occurred_at", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"))
        return rows.count(), [row.asDict() for row in listed.limit(limit).collect()]


def _tuples(rows: DataFrame, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Rows as values; times as text, for Spark hands them out in the zone of this process."""
    kinds = dict(rows.dtypes)
    zones = [kinds[c] == "timestamp" for c in columns]
    chosen = [F.date_format(name(c), _ISO).alias(c) if kinds[c].startswith("timestamp") else name(c) for c in columns]
    for row in rows.select(*chosen).toLocalIterator():
        yield tuple(f"{v}+00:00" if zoned and v else v for v, zoned in zip(row, zones, strict=True))
