"""Second half of a batch: from the change table to replica and history."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import Column as SqlColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.engines import table_columns
from spark_jobs.engines.spark import evolve, history
from spark_jobs.engines.spark.batch_context import HISTORY, MERGE, SWEEP, TOMBSTONES, BatchContext
from spark_jobs.engines.spark.fold import FIRST, HAD_ROW, LOWEST, UNSEEN
from spark_jobs.engines.spark.merge import (
    REFOLDED,
    MergePruning,
    Net,
    Repeats,
    alive,
    known_keys,
    late,
    merge,
    net_of_batch,
    never_seen,
    priors,
    rework,
    tombstones_of,
)
from spark_jobs.engines.spark.order import OP, ORDER, name
from spark_jobs.engines.spark.redelivery import sample_keys
from spark_jobs.engines.spark.tables import TableDefinition
from spark_jobs.rules.figures import UNKNOWN, Applied, Figures, Overlap
from spark_jobs.table.table_schema import GDDL


@dataclass(frozen=True, kw_only=True)
class MergeInput:
    """Net changes that no tombstone beats, and what is to be said of them."""

    net: Net
    warnings: tuple[RunWarning, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReplicaWriter:
    """Attributes:
    schemas: schema ids of the batch's change files.
    first: no batch with rows came before, so that replica and tombstones are empty.
    fresh: the batch's changes where they are at hand, else read back from the change table.
    overlap: how the batch stands to those before; nothing is taken for granted where it isn't known.
    """

    site: BatchContext
    figures: Figures
    schemas: frozenset[int]
    first: bool
    fresh: DataFrame | None = None
    overlap: Overlap = UNKNOWN

    def changes(self) -> DataFrame:
        """The batch's changes: at hand, or from the change table."""
        return self.site.changes() if self.fresh is None else self.fresh

    def net(self) -> Net:
        """Net changes of the batch, kept and counted for the steps that follow."""
        net = net_of_batch(self.changes(), self.site.table_schema, self.schemas, self._repeats)
        if self._only_loads:
            return net
        return replace(net, rows=self.site.tables.keep(net.rows)).counted()

    @property
    def _repeats(self) -> Repeats:
        repeated = self.figures.good - self.figures.keys
        if repeated == 0:
            return "none"
        # A second look at the keys costs more than it saves where rows are few, or must be read again.
        few = self.fresh is not None and not self.site.tables.few_rows and repeated <= self.figures.good // 4
        return "few" if few else "many"

    @property
    def _only_loads(self) -> bool:
        """A batch of a full load may be too large to keep, and its rows are asked for once or twice only."""
        return self.figures.loads == self.figures.good and self.figures.keys >= 0

    def tombstones(self, net: Net) -> None:
        """Remember the deletes among net changes."""
        if not net.deletes:
            return
        rows = tombstones_of(net.rows, self.site.table_schema)
        columns = table_columns.tombstone_columns(self.site.table_schema)
        definition = TableDefinition(path=self.site.layout.tombstones, columns=columns)
        evolve.retype_sequence(self.site.tables, definition.path, self.site.table_schema)
        evolve.ensure(self.site.tables, definition, rewrite=True)
        self.site.tables.append(rows, self.site.layout.tombstones, TOMBSTONES, self.site.transaction)

    @property
    def _reworks(self) -> bool:
        """Late or forced keys are folded anew from the change table, this batch included."""
        return self.site.table_schema.partial or self.site.table_schema.spec.force_update is not None

    def look(self, net: Net) -> MergeInput:
        """What the tables, as they are before this batch, have to do with its net changes."""
        looked = MergeInput(net=replace(net, rows=net.rows.withColumn(REFOLDED, F.lit(False))))
        if self.first or self._reworks:
            return looked
        warnings: tuple[RunWarning, ...] = ()
        if net.unseen:
            updated = net.rows.where(F.col(FIRST) == UNSEEN).select(*map(name, self.site.table_schema.keys))
            warnings = self._strangers(net, updated)
        return MergeInput(net=looked.net if self.overlap.later else self._alive(looked.net), warnings=warnings)

    def _strangers(self, net: Net, updated: DataFrame) -> tuple[RunWarning, ...]:
        """What is to be said of updated keys that nothing is known of; mostly the replica alone knows all of them."""
        tables, table_schema = self.site.tables, self.site.table_schema
        if known_keys(tables, table_schema, self._paths[:1], updated).count() == net.unseen:
            return ()
        known = known_keys(tables, table_schema, self._paths, updated)
        return () if known.count() == net.unseen else self._unseen(net, known)

    def _alive(self, net: Net) -> Net:
        if not self.site.tables.exists(self._paths[1]):
            return net
        rows = alive(net.rows, self.site.tables.read(self._paths[1]), self.site.table_schema)
        return replace(net, rows=self.site.tables.keep(rows))  # the merge asks for its source more than once

    @property
    def _paths(self) -> tuple[str, str]:
        return self.site.layout.replica, self.site.layout.tombstones

    def merge(self, net: Net, looked: MergeInput) -> Applied:
        """Apply net changes to the replica, once."""
        if self.first:
            return self._first(net)
        warnings, ignored = looked.warnings, 0
        source = looked.net
        if self._reworks or not (self.overlap.later or self._only_loads):
            known = self.site.tables.keep(priors(self.site.tables, self.site.table_schema, self._paths, net.rows))
            ignored = late(net, known, self.site.table_schema)
        if self._reworks:
            warnings = self._unseen(net, known)
            changes = self.site.tables.read(self.site.layout.changes)
            source = self._alive(rework(net, changes, known, self.site.table_schema, self.site.plan.generation))
        how = MergePruning(overlap=self.overlap)
        if not self.site.table_schema.before_of_key:
            how = replace(how, low=self.figures.low, high=self.figures.high)
        source = replace(source, rows=source.rows.drop(FIRST, LOWEST))
        with self.site.tables.transaction(MERGE, self.site.transaction):
            counts = merge(self.site.tables, self._paths[0], source, self.site.table_schema, how)
        return Applied(main=self._counts(counts), warnings=warnings, late=ignored)

    def _first(self, net: Net) -> Applied:
        """Fill an empty replica: nothing to compare with, so no MERGE."""
        nothing = self.site.tables.spark.createDataFrame(
            [], net.rows.select(*map(name, self.site.table_schema.keys)).schema
        )
        warnings = self._unseen(net, nothing)
        rows = net.rows
        if self.site.table_schema.spec.force_update:
            rows = rework(
                net,
                self.site.tables.read(self.site.layout.changes),
                self._no_orders(net),
                self.site.table_schema,
                self.site.plan.generation,
            ).rows
        soft = self.site.table_schema.spec.delete == "soft"
        kept = (F.col(OP) != "D") | F.col(HAD_ROW) if soft else F.col(OP) != "D"
        live = rows.where(kept).select(*map(name, self.site.table_schema.columns), self._gddl(F.col(OP) == "D"))
        self.site.tables.append(live, self.site.layout.replica, MERGE, self.site.transaction)
        return Applied(main=self._counts({}), warnings=warnings)

    def _no_orders(self, net: Net) -> DataFrame:
        return net.rows.select(*map(name, self.site.table_schema.keys), ORDER).where(F.lit(False))

    def append_only(self) -> Applied:
        """A table without keys: its replica is the changes themselves."""
        rows = self.changes().select(*map(name, self.site.table_schema.columns), self._gddl(F.lit(False)))
        self.site.tables.append(rows, self.site.layout.replica, MERGE, self.site.transaction)
        return Applied(main=self._counts({}))

    def _gddl(self, deleted: SqlColumn) -> SqlColumn:
        gddl = F.col(GDDL)
        if self.site.table_schema.spec.delete == "soft":
            return gddl.withField("deleted", deleted).alias(GDDL)
        return gddl

    def _counts(self, counts: dict[str, int]) -> MainCounts:
        if not counts:
            found = self.site.tables.metrics(self.site.layout.replica, MERGE, self.site.transaction)
            if "numTargetRowsInserted" in found:
                counts = {k: found.get(f"numTargetRows{k.capitalize()}", 0) for k in ("inserted", "updated", "deleted")}
            else:
                counts = {"inserted": found.get("numOutputRows", 0)}
        return MainCounts(**counts)

    def _unseen(self, net: Net, known: DataFrame) -> tuple[RunWarning, ...]:
        if not net.unseen:
            return ()
        found = never_seen(net.rows, known, self.site.table_schema)
        count = found.count()
        if not count:
            return ()
        message = (
            "updates of keys that were never seen were stored as they came; their earlier changes were not delivered"
        )
        return (
            RunWarning(
                code="UPDATE_WITHOUT_PRIOR",
                message=message,
                count=count,
                sample=sample_keys(found, self.site.table_schema),
            ),
        )

    def purge_tombstones(self, before: datetime) -> None:
        """Forget deletes applied before a time; late changes of their keys that are older still are then taken."""
        if self.site.tables.exists(self.site.layout.tombstones):
            old = F.col(GDDL)["applied_at"] < F.lit(before.isoformat()).cast("timestamp")
            self.site.tables.handle(self.site.layout.tombstones).delete(old)

    def sweep(self) -> MainCounts:
        """Rows of older generations vanish, or are marked deleted."""
        handle = self.site.tables.handle(self.site.layout.replica)
        old = F.col(GDDL)["generation"] < self.site.plan.generation
        with self.site.tables.transaction(SWEEP, self.site.transaction):
            if self.site.table_schema.spec.delete == "hard" or not self.site.table_schema.keys:
                handle.delete(old)
            else:
                gddl = F.col(GDDL).withField("deleted", F.lit(True))
                handle.update(old & ~F.coalesce(F.col(GDDL)["deleted"], F.lit(False)), {GDDL: gddl})
        found = self.site.tables.metrics(self.site.layout.replica, SWEEP, self.site.transaction)
        return MainCounts(deleted=found.get("numDeletedRows", 0) + found.get("numUpdatedRows", 0))

    def history(self, net: Net, generation_low_watermarks: tuple[str | None, ...], *, everything: bool) -> None:
        """Bring the history of the touched keys up to date; after a sweep that of all keys (`everything`)."""
        changes = self.site.tables.read(self.site.layout.changes)
        touched = None
        if not everything:
            touched = net.rows.select(*map(name, self.site.table_schema.keys)).distinct().localCheckpoint()
            changes = self._of_keys(changes, touched)
        values = history.floor_values(
            self.site.tables.spark, generation_low_watermarks, self.site.table_schema.sequence_type
        )
        derived = history.versions(changes, self.site.table_schema, values)
        if touched is not None:
            derived = derived.join(F.broadcast(touched), list(self.site.table_schema.keys), "left_semi").select(
                derived.columns
            )
        with self.site.tables.transaction(HISTORY, self.site.transaction):
            history.apply(self.site.tables, self.site.layout.history, derived, touched, self.site.table_schema)

    def _of_keys(self, changes: DataFrame, touched: DataFrame) -> DataFrame:
        """Changes of these keys, under their new name or, by before image, their old one."""
        keys = list(self.site.table_schema.keys)
        found = changes.join(F.broadcast(touched), keys, "left_semi").select(changes.columns)
        if not self.site.table_schema.before_of_key:
            return found
        befores = self.site.table_schema.before_of_key
        old = {k: F.coalesce(name(befores[k]), name(k)) if k in befores else name(k) for k in keys}
        moved = changes.withColumns({f"_gddl__old_{k}": v for k, v in old.items()})
        renamed = touched.select(*(name(k).alias(f"_gddl__old_{k}") for k in keys))
        away = moved.join(F.broadcast(renamed), [f"_gddl__old_{k}" for k in keys], "left_semi").select(changes.columns)
        gddl = F.col(GDDL)
        both = found.unionByName(away).withColumns({"_gddl__b": gddl["batch_id"], "_gddl__p": gddl["position"]})
        return both.dropDuplicates(["_gddl__b", "_gddl__p"]).drop("_gddl__b", "_gddl__p")
