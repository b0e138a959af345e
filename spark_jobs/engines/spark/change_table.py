"""First half of a batch: bad rows to the quarantine, new good rows to the change table."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.sql_types import StructType, parse_type
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines import table_definition
from spark_jobs.engines.spark import history, quarantine
from spark_jobs.engines.spark.batch_context import APPEND, QUARANTINE, BatchContext
from spark_jobs.engines.spark.batch_reader import Decoded
from spark_jobs.engines.spark.columns import name
from spark_jobs.engines.spark.decode_tasks import ERROR, KIND
from spark_jobs.engines.spark.merge import MergeInput, NetChanges
from spark_jobs.engines.spark.redelivery import new_rows, tie_warnings
from spark_jobs.engines.spark.replica import DecidedAhead, ReplicaWriter
from spark_jobs.engines.spark.table_writer import TableWriter
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.figures import Appended, Applied, Figures, Overlap
from spark_jobs.rules.redelivery import TIED


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """Changes that are new to the change table, and their number."""

    rows: DataFrame
    count: int
    warnings: tuple[RunWarning, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChangeTableWriter:
    """See `BatchWork`.

    Attributes:
        first: no earlier batch had rows.
    """

    batch_context: BatchContext
    decoded: Decoded
    first: bool

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.decoded.decoded_batch

    @property
    def tables(self) -> TableWriter:
        return TableWriter(self.batch_context)

    @property
    def _figures(self) -> Figures:
        return self.decoded_batch.figures

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        batch_context, path = self.batch_context, self.batch_context.layout.errors
        tables, stamp = batch_context.tables, Stamp.of(batch_context.plan)
        if self._figures.quarantined or files:
            tables.create(table_definition.errors(path))
            rows = quarantine.bad_files(tables, files, stamp)
            if self._figures.quarantined:
                rows = rows.unionByName(quarantine.bad_rows(self.decoded.rows))
            batch_context.append(rows, path, QUARANTINE)
        if again and tables.exists(path):
            with batch_context.once(f"{QUARANTINE}:resolve"):
                quarantine.resolve_files(tables, path, again, stamp)

    def append(self, overlap: Overlap) -> AppendedChanges:
        fresh = self._fresh(overlap)
        replica = ReplicaWriter(
            batch_context=self.batch_context, figures=self._figures, schemas=self.decoded_batch.change_schemas,
            first=self.first, overlap=overlap, fresh=fresh.rows if self.decoded.kept else None,
        )  # fmt: skip
        if not self.decoded.kept or not self.batch_context.table_schema.keys or self.batch_context.tables.few_rows:
            return AppendedChanges(replica=replica, decoded=self.decoded, appended=self._append(fresh))
        # Much of both is planning in the driver: in parallel the cores stay busy.
        with ThreadPoolExecutor(1, thread_name_prefix="net") as aside:
            deciding = aside.submit(self.batch_context.tables.in_own_pool, replica.decide_ahead)
            appended = self._append(fresh)
            return AppendedChanges(replica=replica, decoded=self.decoded, appended=appended, ahead=deciding.result())

    def _fresh(self, overlap: Overlap) -> Fresh:
        """The changes of the batch that are new to the change table."""
        good = self.decoded.rows.where(F.col(ERROR).isNull()).drop(ERROR, KIND)
        stored, table_schema = self._stored(overlap), self.batch_context.table_schema
        if stored is None and not self._figures.may_repeat(table_schema):
            return Fresh(rows=good, count=self._figures.good)
        found = self.batch_context.tables.keep(new_rows(good, stored, table_schema, rows=self._figures.good))
        count, warnings = tie_warnings(found, table_schema)
        return Fresh(rows=found.drop(TIED), count=count, warnings=warnings)

    def _append(self, fresh: Fresh) -> Appended:
        path, number = self.batch_context.layout.changes, self.batch_context.plan.number
        self.batch_context.append(fresh.rows, path, APPEND)
        written = self.batch_context.metrics(path, APPEND).get("numOutputRows")
        if written is None:  # the log no longer has the commit
            written = self.batch_context.changes().count()
        return self._figures.appended(fresh.count, written, fresh.warnings, batch=number)

    def _stored(self, overlap: Overlap) -> DataFrame | None:
        """Rows of the change table that may equal rows of this batch; null when none can."""
        if overlap.disjoint:
            return None
        gddl = F.col(GDDL)
        rows = self.batch_context.tables.read(self.batch_context.layout.changes).where(
            gddl["batch_id"] != self.batch_context.plan.batch_id
        )
        condition = F.lit(False)
        if overlap.changes:
            condition = condition | self._in_span()
        if overlap.loads:
            loads = (gddl["op"] == "R") & (gddl["generation"] == self.batch_context.plan.generation)
            if self._figures.low is not None:
                loads = loads & name(self.batch_context.table_schema.keys[0]).between(
                    F.lit(self._figures.low), F.lit(self._figures.high)
                )
            condition = condition | loads
        return rows.where(condition)

    def _in_span(self) -> Column:
        """Condition: the stored sequence is within the batch's range, by its first column."""
        span = self._figures.sequence_span
        if span is None:
            return F.lit(False)
        low, high = map(str, span)
        first, kind = F.col(GDDL)["sequence"], parse_type(self.batch_context.table_schema.sequence_type)
        if isinstance(kind, StructType):
            first, kind = first[kind.fields[0].name], kind.fields[0].type
        text = str(kind)
        return first.between(F.lit(low).cast(text), F.lit(high).cast(text))


@dataclass(frozen=True, kw_only=True)
class AppendedChanges:
    """See `AppendedWork`.

    Attributes:
        ahead: outcome decided while the changes were appended; null: none.
    """

    replica: ReplicaWriter
    decoded: Decoded
    appended: Appended
    ahead: DecidedAhead | None = None

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.decoded.decoded_batch

    @property
    def tables(self) -> TableWriter:
        return TableWriter(self.replica.batch_context)

    def resolve_rows(self) -> None:
        batch_context = self.replica.batch_context
        quarantine.resolve_rows(
            batch_context.tables, batch_context.layout.errors, self.decoded.rows, batch_context.plan.planned_at
        )

    def tombstones(self) -> MergeWriter:
        ahead = self.ahead or DecidedAhead(net=self.replica.net())
        source = ahead.source or self.replica.decide(ahead.net)
        self.replica.tombstones(source)
        return MergeWriter(replica=self.replica, net=ahead.net, source=source)

    def append_only(self) -> Applied:
        return self.replica.append_only()


@dataclass(frozen=True, kw_only=True)
class MergeWriter:
    """See `MergeWork`."""

    replica: ReplicaWriter
    net: NetChanges
    source: MergeInput

    def merge(self) -> Applied:
        return self.replica.merge(self.source)

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        generations = history.Generations(generation_low_watermarks, swept)
        history.update(self.replica.batch_context, generations, self.net)
