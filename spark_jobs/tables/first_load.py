"""A first load in one pass: tasks write the data files of all tables, see `file_parts`."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_gddl.contract.result import MainCounts, Warnings
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules.figures import Appended
from spark_jobs.rules.outcome import Applied
from spark_jobs.rules.redelivery import Overlap
from spark_jobs.tables import table_definition
from spark_jobs.tables.batch_by_ranges import PartsWork
from spark_jobs.tables.data_files import Target
from spark_jobs.tables.delta_log import APPEND, MERGE
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.file_parts import CHANGES, ERRORS, REPLICA, PartBounds, PartsReader
from spark_jobs.tables.places import Place
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.whole_tables import BatchContext


def first_load(
    context: TableContext, plan: BatchPlan, state: TableState, tables: Tables, place: Place, bounds: PartBounds
) -> tuple[FirstLoad | None, tuple[Unreadable, ...]] | None:
    """See `Engine.decode_files`; also writes the files of a table's first batch.

    None: it is no such batch, or rows repeat, so that they have to be compared. Then nothing is left of it.
    """

    def targets(schema: TableSchema) -> dict[str, Target]:
        layout, tier = context.layout, context.tier
        return {
            CHANGES: tables.target_of(table_definition.changes(schema, layout.changes, tier)),
            REPLICA: tables.target_of(table_definition.replica(schema, layout.replica, tier)),
            ERRORS: tables.target_of(table_definition.errors(layout.errors)),
        }

    reader = PartsReader(context=context, plan=plan, state=state, place=place, targets_of=targets, bounds=bounds)
    if not _suits(reader):
        return None
    parts, unreadable = reader.read()
    if parts is None:
        return None, unreadable
    schema = parts.batch.schema.table_schema
    if parts.batch.figures.may_repeat(schema):
        parts.discard()
        return None
    return FirstLoad(batch_context=BatchContext.of(context, tables, plan, schema), parts=parts), unreadable


def _suits(reader: PartsReader) -> bool:
    """Whether the batch is a first load that can be written so: new tables, of no features that others decide."""
    context, plan = reader.context, reader.plan
    if reader.state.keys is not None or context.spec.shard is not None or plan.source != "files":
        return False
    if any(file.kind != "load" for file in plan.files):
        return False
    paths = (context.layout.changes, context.layout.replica, context.layout.history)
    # The last step of a batch removes the reports of its parts.
    is_begun = context.resumed and (context.has_appended(plan) or reader.are_begun())
    return is_begun or not any(map(context.tables.exists, paths))


@dataclass(kw_only=True)
class FirstLoad(PartsWork):
    """See `BatchWork`: the rows of a first load need no comparison."""

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

    def stale_rows(self) -> Warnings:
        """No row was loaded before."""
        return ()

    def _commit(self, path: str, app: str, table: str) -> None:
        context, metrics = self.batch_context, {"numOutputRows": self._good}
        context.tables.add_files(path, (app, context.transaction), self.parts.files[table], metrics)
