"""A first load in one pass: tasks write the data files of all tables, see `file_parts`."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules.figures import Appended
from spark_jobs.rules.outcome import Applied
from spark_jobs.rules.redelivery import Overlap
from spark_jobs.tables import table_definition
from spark_jobs.tables.batch_by_ranges import PartsTables, PartsWork
from spark_jobs.tables.data_files import Target
from spark_jobs.tables.delta_log import (
    APPEND,
    MERGE,
)
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.file_parts import CHANGES, ERRORS, REPLICA, PartBounds, PartsReader
from spark_jobs.tables.places import Place
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.whole_tables import BatchContext


@dataclass(frozen=True, kw_only=True)
class FirstLoadReader:
    """Decodes and writes the files of a table's first batch."""

    context: TableContext
    plan: BatchPlan
    state: TableState
    tables: Tables
    place: Place
    bounds: PartBounds = field(default_factory=PartBounds)

    def suits(self) -> bool:
        """Whether the batch is a first load that can be written so: new tables, of no features that others decide."""
        spec, layout = self.context.spec, self.context.layout
        if self.state.keys is not None or spec.shard is not None or self.plan.source != "files":
            return False
        if any(file.kind != "load" for file in self.plan.files):
            return False
        paths = (layout.changes, layout.replica, layout.history)
        # The last step of a batch removes the reports of its parts.
        is_begun = self.context.resumed and (self.context.has_appended(self.plan) or self._parts.are_begun())
        return is_begun or not any(map(self.context.tables.exists, paths))

    @property
    def _parts(self) -> PartsReader:
        return PartsReader(
            context=self.context,
            plan=self.plan,
            state=self.state,
            place=self.place,
            targets_of=self._targets,
            bounds=self.bounds,
        )

    def _targets(self, schema: TableSchema) -> dict[str, Target]:
        layout, tier = self.context.layout, self.context.tier
        return {
            CHANGES: self.tables.target_of(table_definition.changes(schema, layout.changes, tier)),
            REPLICA: self.tables.target_of(table_definition.replica(schema, layout.replica, tier)),
            ERRORS: self.tables.target_of(table_definition.errors(layout.errors)),
        }

    def decode_files(self) -> tuple[FirstLoad | None, tuple[Unreadable, ...]] | None:
        """See `Engine.decode_files`; None: rows repeat, so that they have to be compared, and nothing is left of it."""
        parts, unreadable = self._parts.read()
        if parts is None:
            return None, unreadable
        schema = parts.batch.schema.table_schema
        if parts.batch.figures.may_repeat(schema):
            parts.discard()
            return None
        context = BatchContext.of(self.context, self.tables, self.plan, schema)
        return FirstLoad(batch_context=context, parts=parts), unreadable


@dataclass(kw_only=True)
class FirstLoad(PartsWork):
    """See `BatchWork`: the rows of a first load need no comparison."""

    @property
    def tables(self) -> _NewTables:
        return _NewTables(self.batch_context, self.parts)

    def append(self, overlap: Overlap) -> None:  # noqa: ARG002 - no earlier batch had rows
        self._commit(self.batch_context.layout.changes, APPEND, CHANGES)

    @property
    def appended(self) -> Appended:
        return self.decoded_batch.figures.appended(self._good, self._good, batch=self.batch_context.plan.number)

    @property
    def _good(self) -> int:
        return self.decoded_batch.figures.good

    def decide(self) -> None:
        """All rows are new."""

    def tombstones(self) -> None:
        """A full load deletes nothing."""

    def replica(self) -> Applied:
        self._commit(self.batch_context.layout.replica, MERGE, REPLICA)
        if not self.batch_context.table_schema.spec.history:
            self.parts.forget()
        return Applied(main=MainCounts(inserted=self._good))

    def stale_rows(self) -> tuple[RunWarning, ...]:
        """No row was loaded before."""
        return ()

    def _commit(self, path: str, app: str, table: str) -> None:
        context, metrics = self.batch_context, {"numOutputRows": self._good}
        context.tables.add_files(path, (app, context.transaction), self.parts.files[table], metrics)


@dataclass(frozen=True)
class _NewTables(PartsTables):
    """For tables that are created in folders with data files."""

    def ensure_tables(self) -> None:
        context = self.batch_context
        for definition in table_definition.definitions(context.table_schema, context.layout, context.tier):
            context.tables.create(definition)
        super().ensure_tables()
