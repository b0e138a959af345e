"""First half of a batch: bad rows to the quarantine, good ones that are new to the change table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import RunWarning
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines import table_definition
from spark_jobs.engines.spark import evolve, quarantine, reconcile
from spark_jobs.engines.spark.batch_context import APPEND, QUARANTINE, BatchContext
from spark_jobs.engines.spark.columns import name
from spark_jobs.engines.spark.decode_tasks import ERROR, KIND
from spark_jobs.engines.spark.redelivery import new_rows, tie_warnings
from spark_jobs.plan.sequence import sort_key
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.plan.types import StructType, parse_type
from spark_jobs.rules.figures import Appended, Figures, Overlap
from spark_jobs.rules.history import END, START
from spark_jobs.rules.redelivery import TIED


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """Changes that are new to the change table, and how many they are."""

    rows: DataFrame
    count: int
    warnings: tuple[RunWarning, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChangeTableWriter:
    """Attributes:
    decoded: rows of all groups, good and bad; see `decode`.
    """

    site: BatchContext
    decoded: DataFrame
    figures: Figures

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        """See `BatchWork.ensure_tables`."""
        rewrite = not self.site.tier.deletion_vectors
        definitions = table_definition.definitions(self.site.table_schema, self.site.layout, self.site.tier)
        for definition in definitions:
            extra = (START, END) if definition.path == self.site.layout.history else ()
            evolve.retype_sequence(self.site.tables, definition.path, self.site.table_schema, extra)
            reconcile.settle_deletes(self.site.tables, definition)
            evolve.ensure(self.site.tables, definition, rewrite=rewrite)
            reconcile.settle_properties(self.site.tables, definition)
        return ()

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        """Write bad rows and files to the errors table; resolve what earlier versions of files (`again`) left there."""
        path = self.site.layout.errors
        if self.figures.quarantined or files:
            self.site.tables.create(table_definition.errors(path))
            rows = quarantine.bad_files(self.site.tables, files, self.site.stamp)
            if self.figures.quarantined:
                rows = rows.unionByName(quarantine.bad_rows(self.decoded))
            self.site.tables.append(rows, path, QUARANTINE, self.site.transaction)
        if again and self.site.tables.exists(path):
            with self.site.tables.transaction(f"{QUARANTINE}:resolve", self.site.transaction):
                quarantine.resolve_files(
                    self.site.tables, path, again, self.site.plan.batch_id, self.site.plan.planned_at
                )

    def fresh(self, overlap: Overlap) -> Fresh:
        """The changes of the batch that are new to the change table."""
        good = self.decoded.where(F.col(ERROR).isNull()).drop(ERROR, KIND)
        stored = self._stored(overlap)
        identities = self.figures.identities if self.site.table_schema.keys else self.figures.loads
        if identities == self.figures.good and stored is None:
            return Fresh(rows=good, count=self.figures.good)
        found = self.site.tables.keep(new_rows(good, stored, self.site.table_schema, rows=self.figures.good))
        count, warnings = tie_warnings(found, self.site.table_schema)
        return Fresh(rows=found.drop(TIED), count=count, warnings=warnings)

    def append(self, fresh: Fresh) -> Appended:
        """Append them.

        Raises:
            FatalError: `BATCH_UNBALANCED`.
        """
        self.site.tables.append(fresh.rows, self.site.layout.changes, APPEND, self.site.transaction)
        written = self._written()
        redelivered = self.figures.good - fresh.count
        if self.figures.rows != written + redelivered + self.figures.quarantined:
            raise FatalError(
                "BATCH_UNBALANCED",
                f"{self.figures.rows} rows read, but {written} appended + {redelivered} re-delivered + "
                f"{self.figures.quarantined} quarantined",
                where=f"batch {self.site.plan.number}",
                remedy="report this with the job's log; nothing was merged",
            )
        return Appended(written=written, redelivered=redelivered, warnings=fresh.warnings)

    def _written(self) -> int:
        """Rows that the batch has appended; counted where the log has forgotten its commit: cut, or many came after."""
        path = self.site.layout.changes
        told = self.site.tables.metrics(path, APPEND, self.site.transaction).get("numOutputRows")
        if told is not None:
            return told
        return self.site.tables.read(path).where(F.col(GDDL)["batch_id"] == self.site.plan.batch_id).count()

    def _stored(self, overlap: Overlap) -> DataFrame | None:
        """Rows of the change table that may equal rows of this batch; null when none can."""
        if overlap.apart:
            return None
        gddl = F.col(GDDL)
        rows = self.site.tables.read(self.site.layout.changes).where(gddl["batch_id"] != self.site.plan.batch_id)
        condition = F.lit(False)
        if overlap.changes:
            condition = condition | self._in_span()
        if overlap.loads:
            loads = (gddl["op"] == "R") & (gddl["generation"] == self.site.plan.generation)
            if self.figures.low is not None:
                loads = loads & name(self.site.table_schema.keys[0]).between(
                    F.lit(self.figures.low), F.lit(self.figures.high)
                )
            condition = condition | loads
        return rows.where(condition)

    def _in_span(self) -> Column:
        """Stored sequences within the batch's span, by their first column."""
        lows = [f.min_sequence for f in self.figures.files.values() if f.min_sequence is not None]
        highs = [f.max_sequence for f in self.figures.files.values() if f.max_sequence is not None]
        if not lows:
            return F.lit(False)
        low, high = _bounds(lows, highs)
        columns = self.site.table_schema.sequence
        sequence = F.col(GDDL)["sequence"]
        first = sequence if len(columns) == 1 else sequence[columns[0]]
        kind = parse_type(self.site.table_schema.sequence_type)
        text = str(kind.fields[0].type if isinstance(kind, StructType) else kind)
        return first.between(F.lit(low).cast(text), F.lit(high).cast(text))


def _bounds(lows: list[str], highs: list[str]) -> tuple[str, str]:
    """Least and greatest first column of sequences, as text."""
    return str(min(map(sort_key, lows))[0]), str(max(map(sort_key, highs))[0])
