"""What a batch does to a table's Delta tables, step by step; `spark_jobs.pipeline` calls the steps in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark import StorageLevel
from pyspark.sql import Column as SqlColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import MainCounts, RunWarning
from airflow_gddl.contract.spec import TierSpec
from spark_jobs.dialects.probe import Unreadable
from spark_jobs.engines.shape import GDDL, Shape
from spark_jobs.engines.spark import evolve, history, quarantine
from spark_jobs.engines.spark.decode import ERROR, KIND, RECORD, Stamp
from spark_jobs.engines.spark.fold import FIRST, HAD, LOWEST
from spark_jobs.engines.spark.measure import Figures
from spark_jobs.engines.spark.merge import (
    REWORKED,
    KeyRange,
    Net,
    alive,
    merge,
    net_of_batch,
    never_seen,
    priors,
    rework,
    tombstones_of,
)
from spark_jobs.engines.spark.order import FORCED, OP, name
from spark_jobs.engines.spark.redelivery import distinct_in_batch, not_yet_stored, sample_keys, ties
from spark_jobs.engines.spark.tables import TableDefinition, Tables
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.columns import Column
from spark_jobs.plan.types import ScalarType, parse_type

APPEND, QUARANTINE, TOMBSTONES, MERGE, SWEEP, HISTORY = "append", "quarantine", "tombstones", "merge", "sweep", "history"


@dataclass(frozen=True, kw_only=True)
class Appended:
    """What reached the change table."""

    written: int
    redelivered: int
    warnings: tuple[RunWarning, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What happened to the replica."""

    main: MainCounts
    warnings: tuple[RunWarning, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """What of the change table can hold changes of this batch.

    Attributes:
        changes: the batch's sequences may have come before.
        loads: full-load rows of this generation have come before.
    """

    changes: bool
    loads: bool


@dataclass(frozen=True, kw_only=True)
class SparkBatch:
    """One batch of one table.

    Attributes:
        decoded: rows of all groups, good and bad; see `decode`.
        schemas: schema ids of the batch's change files.
        epoch: see `TableState.epoch`.
    """

    tables: Tables
    layout: Layout
    tier: TierSpec
    plan: BatchPlan
    shape: Shape
    decoded: DataFrame
    figures: Figures
    schemas: set[int] = field(default_factory=set)
    epoch: str = ""

    def app(self, step: str) -> str:
        """Transaction id of a step; its version is the batch's number."""
        return transaction_app(step, self.epoch)

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.plan.batch_id, self.plan.planned_at)

    def ensure_tables(self) -> None:
        """Create or evolve change table, replica and history."""
        rewrite = not self.tier.deletion_vectors
        mine = {"delta.enableDeletionVectors": str(self.tier.deletion_vectors).lower()}
        skipping = {"delta.dataSkippingStatsColumns": evolve.skipping_columns(self.shape)}
        spec = self.shape.spec
        definitions = [
            TableDefinition(path=self.layout.changes, columns=evolve.change_columns(self.shape), properties=mine | skipping),
            TableDefinition(
                path=self.layout.replica,
                columns=evolve.replica_columns(self.shape),
                cluster_by=spec.cluster_by,
                properties=mine | dict(spec.table_properties),
            ),
        ]
        if spec.history:
            columns = evolve.history_columns(self.shape)
            definitions.append(TableDefinition(path=self.layout.history, columns=columns, properties=mine))
        for definition in definitions:
            extra = (history.START, history.END) if definition.path == self.layout.history else ()
            evolve.retype_sequence(self.tables, definition.path, self.shape, extra)
            evolve.ensure(self.tables, definition, rewrite=rewrite)

    def quarantine(self, groups: Sequence[tuple[DataFrame, str]], files: Sequence[Unreadable], again: Sequence[str]) -> None:
        """Write bad rows and files to the errors table; what earlier versions of files (`again`) left there is resolved.

        Args:
            groups: decoded rows of each group and the DDL of its records.
        """
        path = self.layout.errors
        if self.figures.quarantined or files:
            self.tables.create(quarantine.definition(path))
            frames = [quarantine.bad_rows(rows, ddl) for rows, ddl in groups] if self.figures.quarantined else []
            frames += [quarantine.bad_files(self.tables, files, self.stamp)] if files else []
            rows = frames[0]
            for frame in frames[1:]:
                rows = rows.unionByName(frame)
            self.tables.append(rows, path, self.app(QUARANTINE), self.plan.number)
        if again and self.tables.exists(path):
            with self.tables.transaction(self.app("resolve"), self.plan.number):
                quarantine.resolve_files(self.tables, path, again, self.plan.batch_id, self.plan.planned_at)

    def resolve(self) -> None:
        """After a replay: what is good now is no longer in question."""
        quarantine.resolve_rows(self.tables, self.layout.errors, self.decoded, self.plan.planned_at)

    def append(self, overlap: Overlap) -> Appended:
        """Append the changes that are new to the change table."""
        good = self.decoded.where(F.col(ERROR).isNull()).drop(ERROR, RECORD, KIND)
        stored = self._stored(overlap)
        repeats = bool(self.shape.keys) and self.figures.identities < self.figures.good
        if repeats or not self.shape.keys:
            good = distinct_in_batch(good, self.shape)
        if stored is not None:
            good = not_yet_stored(good, stored, self.shape)
        warnings: tuple[RunWarning, ...] = ()
        fresh = self.figures.good
        if repeats or stored is not None or not self.shape.keys:
            good = good.persist(StorageLevel.MEMORY_AND_DISK)
            fresh = good.count()
        if self.shape.keys and (repeats or stored is not None):
            found = ties(good, stored, self.shape)
            if found.count:
                warnings = (_tie_warning(found.count, found.sample, self.shape),)
        self.tables.append(good, self.layout.changes, self.app(APPEND), self.plan.number)
        written = self.tables.metrics(self.layout.changes, self.app(APPEND), self.plan.number).get("numOutputRows", 0)
        good.unpersist()
        redelivered = self.figures.good - fresh
        if self.figures.rows != written + redelivered + self.figures.quarantined:
            raise FatalError(
                "BATCH_UNBALANCED",
                f"{self.figures.rows} rows read, but {written} appended + {redelivered} re-delivered + "
                f"{self.figures.quarantined} quarantined",
                where=f"batch {self.plan.number}",
                remedy="report this with the job's log; nothing was merged",
            )
        return Appended(written=written, redelivered=redelivered, warnings=warnings)

    def _stored(self, overlap: Overlap) -> DataFrame | None:
        """Rows of the change table that may equal rows of this batch; null when none can."""
        if not (overlap.changes or overlap.loads):
            return None
        gddl = F.col(GDDL)
        rows = self.tables.read(self.layout.changes).where(gddl["batch_id"] != self.plan.batch_id)
        condition = F.lit(False)
        if overlap.changes:
            span = self.decoded.where(F.col(ERROR).isNull() & (F.col(KIND) == "change"))
            low, high = span.agg(F.min(gddl["sequence"]), F.max(gddl["sequence"])).collect()[0]
            kind = self.shape.sequence_type
            if low is not None and not kind.startswith("struct"):
                condition = condition | gddl["sequence"].between(F.lit(low), F.lit(high))
            else:
                condition = condition | gddl["sequence"].isNotNull()
        if overlap.loads:
            loads = (gddl["op"] == "R") & (gddl["generation"] == self.plan.generation)
            if self.figures.low is not None:
                loads = loads & name(self.shape.keys[0]).between(F.lit(self.figures.low), F.lit(self.figures.high))
            condition = condition | loads
        return rows.where(condition)

    def changes(self) -> DataFrame:
        """This batch's rows of the change table."""
        return self.tables.read(self.layout.changes).where(F.col(GDDL)["batch_id"] == self.plan.batch_id)

    def net(self) -> Net:
        """Net changes of the batch, late and forced keys folded anew, kept for the steps that follow."""
        unique = self.figures.keys == self.figures.good
        net = net_of_batch(self.changes(), self.shape, self.schemas, unique)
        return Net(rows=net.rows.persist(StorageLevel.MEMORY_AND_DISK), partial=net.partial)

    def tombstones(self, net: Net) -> None:
        """Remember the deletes among net changes."""
        rows = tombstones_of(net.rows, self.shape)
        if self.figures.loads == self.figures.good or rows.isEmpty():
            return
        kinds = {c.name: c for c in self.shape.data}
        columns = [kinds[k] for k in self.shape.keys] + [Column(GDDL, parse_type(self.shape.gddl_type))]
        columns += [Column(FORCED, ScalarType("boolean"))] if self.shape.spec.force_update else []
        definition = TableDefinition(path=self.layout.tombstones, columns=tuple(columns))
        evolve.retype_sequence(self.tables, definition.path, self.shape)
        evolve.ensure(self.tables, definition, rewrite=True)
        self.tables.append(rows, self.layout.tombstones, self.app(TOMBSTONES), self.plan.number)

    def merge(self, net: Net) -> Applied:
        """Apply net changes to the replica, once."""
        paths = (self.layout.replica, self.layout.tombstones)
        empty = self.tables.read(paths[0]).isEmpty()
        buried = self.tables.exists(paths[1])
        if empty and not buried:
            return self._first(net)
        known = priors(self.tables, self.shape, paths, net.rows).persist(StorageLevel.MEMORY_AND_DISK)
        warnings = self._unseen(net, known)
        if self.shape.partial or self.shape.spec.force_update:
            net = rework(net, self.tables.read(self.layout.changes), known, self.shape, self.plan.generation)
        else:
            net = Net(rows=net.rows.withColumn(REWORKED, F.lit(False)), partial=net.partial)
        rows = alive(net.rows, self.tables.read(paths[1]), self.shape) if buried else net.rows
        span = KeyRange(low=self.figures.low, high=self.figures.high) if not self.shape.before_of_key else KeyRange()
        with self.tables.transaction(self.app(MERGE), self.plan.number):
            counts = merge(self.tables, paths[0], Net(rows=rows.drop(FIRST, LOWEST), partial=net.partial), self.shape, span)
        known.unpersist()
        return Applied(main=self._counts(counts), warnings=warnings)

    def _first(self, net: Net) -> Applied:
        """Fill an empty replica: nothing to compare with, so no MERGE."""
        nothing = self.tables.spark.createDataFrame([], net.rows.select(*map(name, self.shape.keys)).schema)
        warnings = self._unseen(net, nothing)
        rows = net.rows
        if self.shape.spec.force_update:
            rows = rework(net, self.tables.read(self.layout.changes), self._no_orders(net), self.shape, self.plan.generation).rows
        soft = self.shape.spec.delete == "soft"
        kept = (F.col(OP) != "D") | F.col(HAD) if soft else F.col(OP) != "D"
        live = rows.where(kept).select(*map(name, self.shape.columns), self._gddl(F.col(OP) == "D"))
        self.tables.append(live, self.layout.replica, self.app(MERGE), self.plan.number)
        return Applied(main=self._counts({}), warnings=warnings)

    def _no_orders(self, net: Net) -> DataFrame:
        return net.rows.select(*map(name, self.shape.keys), "_gddl__order").where(F.lit(False))

    def append_only(self) -> Applied:
        """A table without keys: its replica is the changes themselves."""
        rows = self.changes().select(*map(name, self.shape.columns), self._gddl(F.lit(False)))
        self.tables.append(rows, self.layout.replica, self.app(MERGE), self.plan.number)
        return Applied(main=self._counts({}))

    def _gddl(self, deleted: SqlColumn) -> SqlColumn:
        gddl = F.col(GDDL)
        if self.shape.spec.delete == "soft":
            return gddl.withField("deleted", deleted).alias(GDDL)
        return gddl

    def _counts(self, counts: dict[str, int]) -> MainCounts:
        if not counts:
            found = self.tables.metrics(self.layout.replica, self.app(MERGE), self.plan.number)
            if "numTargetRowsInserted" in found:
                counts = {k: found.get(f"numTargetRows{k.capitalize()}", 0) for k in ("inserted", "updated", "deleted")}
            else:
                counts = {"inserted": found.get("numOutputRows", 0)}
        return MainCounts(**counts)

    def _unseen(self, net: Net, known: DataFrame) -> tuple[RunWarning, ...]:
        found = never_seen(net.rows, known, self.shape)
        count = found.count()
        if not count:
            return ()
        message = "updates of keys that were never seen were stored as they came; their earlier changes were not delivered"
        return (RunWarning(code="UPDATE_WITHOUT_PRIOR", message=message, count=count, sample=sample_keys(found, self.shape)),)

    def sweep(self) -> MainCounts:
        """Rows of older generations vanish, or are marked deleted."""
        handle = self.tables.handle(self.layout.replica)
        old = F.col(GDDL)["generation"] < self.plan.generation
        with self.tables.transaction(self.app(SWEEP), self.plan.number):
            if self.shape.spec.delete == "hard" or not self.shape.keys:
                handle.delete(old)
            else:
                gddl = F.col(GDDL).withField("deleted", F.lit(True))
                handle.update(old & ~F.coalesce(F.col(GDDL)["deleted"], F.lit(False)), {GDDL: gddl})
        found = self.tables.metrics(self.layout.replica, self.app(SWEEP), self.plan.number)
        return MainCounts(deleted=found.get("numDeletedRows", 0) + found.get("numUpdatedRows", 0))

    def history(self, net: Net, floors: tuple[str | None, ...], *, everything: bool) -> None:
        """Bring the history of the touched keys up to date; after a sweep that of all keys (`everything`)."""
        changes = self.tables.read(self.layout.changes)
        touched = None
        if not everything:
            touched = net.rows.select(*map(name, self.shape.keys)).distinct().localCheckpoint()
            changes = self._of_keys(changes, touched)
        values = history.floor_values(self.tables.spark, floors, self.shape.sequence_type)
        derived = history.versions(changes, self.shape, values)
        if touched is not None:
            derived = derived.join(F.broadcast(touched), list(self.shape.keys), "left_semi").select(derived.columns)
        with self.tables.transaction(self.app(HISTORY), self.plan.number):
            history.apply(self.tables, self.layout.history, derived, touched, self.shape)

    def _of_keys(self, changes: DataFrame, touched: DataFrame) -> DataFrame:
        """Changes of these keys, under their new name or, by before image, their old one."""
        keys = list(self.shape.keys)
        found = changes.join(F.broadcast(touched), keys, "left_semi").select(changes.columns)
        if not self.shape.before_of_key:
            return found
        old = {k: F.coalesce(name(self.shape.before_of_key[k]), name(k)) if k in self.shape.before_of_key else name(k)
               for k in keys}  # fmt: skip
        moved = changes.withColumns({f"_gddl__old_{k}": v for k, v in old.items()})
        renamed = touched.select(*(name(k).alias(f"_gddl__old_{k}") for k in keys))
        away = moved.join(F.broadcast(renamed), [f"_gddl__old_{k}" for k in keys], "left_semi").select(changes.columns)
        gddl = F.col(GDDL)
        both = found.unionByName(away).withColumns({"_gddl__b": gddl["batch_id"], "_gddl__p": gddl["position"]})
        return both.dropDuplicates(["_gddl__b", "_gddl__p"]).drop("_gddl__b", "_gddl__p")


def transaction_app(step: str, epoch: str) -> str:
    return f"gddl:{step}:{epoch}"


def _tie_warning(count: int, sample: tuple[str, ...], shape: Shape) -> RunWarning:
    message = f"different changes share key and sequence; decided by tie_break {shape.spec.tie_break}"
    return RunWarning(code="SEQUENCE_TIE", message=message, count=count, sample=sample)
