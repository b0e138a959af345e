"""Second half of a batch: from the change table to replica, tombstones and history."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.engines import table_definition
from spark_jobs.engines.delta_commits import main_counts
from spark_jobs.engines.spark import evolve, history
from spark_jobs.engines.spark.batch_context import MERGE, TOMBSTONES, BatchContext
from spark_jobs.engines.spark.columns import at, name
from spark_jobs.engines.spark.merge import (
    MergeInput,
    NetChanges,
    StoredRows,
    all_later,
    all_new,
    are_few,
    decided,
    merge,
    net_of,
    newest_of,
    of_keys,
    single,
    tombstones_of,
)
from spark_jobs.engines.spark.redelivery import sample_keys
from spark_jobs.plan.table_schema import GDDL, RESCUED, TableSchema
from spark_jobs.rules.figures import UNKNOWN, Applied, Figures, Overlap
from spark_jobs.rules.fold import FIRST, FORCED, MOVE_DELETED, ONTO_BATCH, UNSEEN, carried_names, refolds
from spark_jobs.rules.merge import ACTION, IGNORED, LATE, MOVE_LOST, UNKNOWN_KEY
from spark_jobs.rules.outcome import moved_row_deleted, update_without_prior


@dataclass(frozen=True, kw_only=True)
class DecidedAhead:
    """Outcome of a batch's keys before `tombstones`; `source` null: not decided yet."""

    net: NetChanges
    source: MergeInput | None = None


@dataclass(frozen=True, kw_only=True)
class ReplicaWriter:
    """Applies one batch to replica, tombstones and history.

    Attributes:
        schemas: schema ids of the batch's change files.
        first: no earlier batch had rows, so replica and tombstones are empty.
        fresh: the batch's changes if cached; null: read from the change table.
        overlap: overlap of the batch with earlier ones; `UNKNOWN`: nothing is assumed.
    """

    batch_context: BatchContext
    figures: Figures
    schemas: frozenset[int]
    first: bool
    fresh: DataFrame | None = None
    overlap: Overlap = UNKNOWN

    @property
    def table_schema(self) -> TableSchema:
        return self.batch_context.table_schema

    def changes(self) -> DataFrame:
        """The batch's changes: cached, or from the change table."""
        return self.batch_context.changes() if self.fresh is None else self.fresh

    def net(self) -> NetChanges:
        """Net changes of the batch, cached and counted for the next steps."""
        schema, partial = self.table_schema, self.table_schema.carries_parts(self.schemas)
        if self.figures.good == self.figures.keys and not (schema.before_of_key or refolds(schema)):
            net = NetChanges(rows=single(self.changes(), schema), partial=False)
        else:
            rows = net_of(self.changes(), schema, partial=partial, rows=self.figures.good)
            net = NetChanges(rows=rows, partial=partial)
        if self._only_loads:
            # The rows are not cached: a count would read all of them again.
            return replace(net, deletes=0, unseen=0, moves=0)
        return replace(net, rows=self.batch_context.tables.keep(net.rows)).counted()

    @property
    def _only_loads(self) -> bool:
        """Whether the batch has only full-load rows: too large to cache, and used once or twice only."""
        return self.figures.loads == self.figures.good and self.figures.keys >= 0

    def decide_ahead(self) -> DecidedAhead:
        """Decide as much as possible without the batch's rows in the change table."""
        net = self.net()
        return DecidedAhead(net=net, source=None if refolds(self.table_schema) else self.decide(net))

    def decide(self, net: NetChanges) -> MergeInput:
        """Outcome of the batch's keys, by the tables before it."""
        if self.first:
            return self._all_new(net)
        if self.overlap.later and not refolds(self.table_schema) and not net.moves:
            return self._all_later(net)
        return self._merge_input(net)

    def _all_new(self, net: NetChanges) -> MergeInput:
        """Outcome where replica and tombstones are empty."""
        updated = net.rows.where(F.col(FIRST) == UNSEEN)
        warnings = self._without_prior(updated, updated.count() if net.unseen is None else net.unseen)
        if net.moves:
            lost = net.rows.where(F.col(MOVE_DELETED) == ONTO_BATCH)
            warnings += self._moves_lost(lost, lost.count())
        deletes = self._deletes(net)
        return MergeInput(rows=net.rows, partial=net.partial, deletes=deletes, keys=net.keys, warnings=warnings)

    def _all_later(self, net: NetChanges) -> MergeInput:
        """Outcome where all stored rows are older and need not be read."""
        warnings = self._unknown_keys(net) if net.unseen != 0 else ()
        deletes = self._deletes(net)
        return MergeInput(rows=all_later(net.rows), deletes=deletes, keys=net.keys, warnings=warnings)

    def _deletes(self, net: NetChanges) -> DataFrame | None:
        return None if net.deletes == 0 else tombstones_of(net.rows, self.table_schema)

    def _unknown_keys(self, net: NetChanges) -> tuple[RunWarning, ...]:
        """Warning about updates of unknown keys; usually the replica has all of them."""
        updated = net.rows.where(F.col(FIRST) == UNSEEN)
        keys = list(self.table_schema.keys)
        known = of_keys(self._replica(keys), updated, self.table_schema, few=are_few(net.unseen))
        if known.count() == net.unseen:
            return ()
        tombstones = self._tombstones()
        if tombstones is not None:
            known = known.unionByName(tombstones.select(*map(name, keys)))
        unknown = self.batch_context.tables.keep(updated.join(known, keys, "left_anti"))
        return self._without_prior(unknown, unknown.count())

    def _merge_input(self, net: NetChanges) -> MergeInput:
        """Outcome by the rules, with the stored rows of the keys."""
        tables, schema = self.batch_context.tables, self.table_schema
        columns = [*schema.keys, *(name for name in schema.forcing if name not in schema.keys), GDDL]
        columns += [RESCUED] if schema.rescues and net.partial else []
        stored = StoredRows(replica=self._replica(columns), tombstones=self._tombstones())
        if are_few(net.keys):
            stored = stored.of(net.rows, schema)
        rows = tables.keep(decided(net, stored, schema, rows=self.figures.good))
        flags = [F.count_if(F.col(flag)) for flag in (LATE, IGNORED, UNKNOWN_KEY, MOVE_LOST)]
        late, ignored, unknown, lost = rows.agg(*flags).collect()[0]
        found = MergeInput(
            rows=rows.where(F.col(ACTION).isNotNull() & ~F.col(LATE)),
            partial=net.partial,
            deletes=self._deletes(net),
            keys=net.keys,
            warnings=(
                *self._without_prior(rows.where(F.col(UNKNOWN_KEY)), int(unknown)),
                *self._moves_lost(rows.where(F.col(MOVE_LOST)), int(lost)),
            ),
            late=int(ignored),
        )
        return self._refolded(net, found, rows.where(F.col(LATE)).select(*map(name, schema.keys)), int(late))

    def _refolded(self, net: NetChanges, found: MergeInput, late: DataFrame, count: int) -> MergeInput:
        """Refold late and forced keys from all their changes: an overlay on the stored row would differ."""
        if not count:
            return found
        tables, schema, few = self.batch_context.tables, self.table_schema, are_few(count)
        late = tables.keep(late)
        changes = history.changes_of(tables.read(self.batch_context.layout.changes), late, schema, few=few)
        rows = newest_of(changes, schema, rows=count)
        again = NetChanges(rows=tables.keep(of_keys(rows, late, schema, few=few)), partial=schema.partial, keys=count)
        stored = StoredRows(replica=self._replica([*schema.columns, GDDL]), tombstones=self._tombstones())
        stored = stored.of(late, schema) if few else stored
        outcome = tables.keep(decided(again, stored, schema, rows=count, refolded=True))
        both = found.rows.unionByName(outcome.where(F.col(ACTION).isNotNull()), allowMissingColumns=True)
        own = net.rows.join(F.broadcast(late) if few else late, list(schema.keys), "left_anti")
        deletes = tombstones_of(own, schema).unionByName(tombstones_of(again.rows, schema))
        return replace(
            found,
            rows=_every_flag(both, schema) if found.partial or again.partial else both,
            partial=found.partial or again.partial,
            deletes=None if deletes.isEmpty() else deletes,
        )

    def _replica(self, columns: list[str]) -> DataFrame:
        """Rows of the replica that may have keys of the batch."""
        rows = self.batch_context.tables.read(self.batch_context.layout.replica)
        return rows.where(self._within(name(self.table_schema.keys[0]))).select(*map(name, columns))

    def _tombstones(self) -> DataFrame | None:
        """Tombstones of earlier batches; null: there is no table."""
        path = self.batch_context.layout.tombstones
        if not self.batch_context.tables.exists(path):
            return None
        rows = self.batch_context.tables.read(path).where(F.col(GDDL)["batch_id"] != self.batch_context.plan.batch_id)
        forced = [FORCED] if FORCED in rows.columns and self.table_schema.forces else []
        return rows.select(*map(name, self.table_schema.keys), GDDL, *forced)

    def _within(self, first_key: Column) -> Column:
        """Whether a key may be one of the batch, by the range of its first column."""
        if self.table_schema.before_of_key or self.figures.low is None:
            return F.lit(True)
        return first_key.between(F.lit(self.figures.low), F.lit(self.figures.high))

    def tombstones(self, source: MergeInput) -> None:
        """Write tombstones of the net deletes."""
        path = self.batch_context.layout.tombstones
        if source.deletes is None:
            return
        definition = table_definition.tombstones(self.table_schema, path)
        evolve.retype_sequence(self.batch_context.tables, path, self.table_schema)
        evolve.ensure(self.batch_context.tables, definition, rewrite=True)
        self.batch_context.append(source.deletes, path, TOMBSTONES)

    def merge(self, source: MergeInput) -> Applied:
        """Apply an outcome to the replica, once."""
        tables, path = self.batch_context.tables, self.batch_context.layout.replica
        counts: dict[str, int] = {}
        if self.first:
            live = all_new(source.rows, self.table_schema)  # nothing to compare with, so append instead of MERGE
            self.batch_context.append(live, path, MERGE)
        else:
            with self.batch_context.once(MERGE):
                within = self._within(at("t", self.table_schema.keys[0]))
                counts = merge(tables, path, source, self.table_schema, within)
        main = MainCounts(**counts) if counts else self._counts()
        return Applied(main=main, warnings=source.warnings, late=source.late)

    def append_only(self) -> Applied:
        """For tables without keys: append the changes to the replica."""
        gddl, soft = F.col(GDDL), self.table_schema.spec.delete == "soft"
        struct = gddl.withField("deleted", F.lit(False)).alias(GDDL) if soft else gddl
        vanished = gddl["generation"] < self.table_schema.swept
        late = self.changes().where(vanished).count() if self.table_schema.swept > 1 else 0
        rows = self.changes().where(~vanished).select(*map(name, self.table_schema.columns), struct)
        self.batch_context.append(rows, self.batch_context.layout.replica, MERGE)
        return Applied(main=self._counts(), late=late)

    def _counts(self) -> MainCounts:
        """Counts of this batch's commit, made in this attempt or an earlier one."""
        return main_counts(self.batch_context.metrics(self.batch_context.layout.replica, MERGE))

    def _without_prior(self, rows: DataFrame, count: int) -> tuple[RunWarning, ...]:
        return update_without_prior(count, sample_keys(rows, self.table_schema)) if count else ()

    def _moves_lost(self, rows: DataFrame, count: int) -> tuple[RunWarning, ...]:
        return moved_row_deleted(count, sample_keys(rows, self.table_schema)) if count else ()


def _every_flag(rows: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Flags of rows that carry all columns."""
    flags = carried_names(table_schema).values()
    return rows.withColumns({flag: F.coalesce(F.col(flag), F.lit(True)) for flag in flags if flag in rows.columns})
