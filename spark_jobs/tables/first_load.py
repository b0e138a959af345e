"""A first load in one pass: tasks write the data files of all tables, see `file_parts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.dialects.protocol import Unreadable
from spark_jobs.plan.planned_batch import BatchPlan, GenerationFloor, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules import quarantine
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.figures import DecodedBatch
from spark_jobs.rules.step_results import Appended, Applied, Overlap
from spark_jobs.tables import table_definition
from spark_jobs.tables.batch_context import BatchContext
from spark_jobs.tables.data_files import Target
from spark_jobs.tables.delta_log import (
    APPEND,
    MERGE,
    QUARANTINE,
    Action,
    version_of,
)
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.engine import TableContext
from spark_jobs.tables.errors_table import ErrorsTable
from spark_jobs.tables.file_parts import CHANGES, ERRORS, REPLICA, PartBounds, PartsReader, WrittenParts
from spark_jobs.tables.places import Place
from spark_jobs.tables.table_definition import TableDefinition
from spark_jobs.tables.whole_tables import TableWriter


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
        spec, layout, engine = self.context.spec, self.context.layout, self.context.engine
        if self.state.keys is not None or spec.shard is not None or self.plan.source != "files":
            return False
        if any(file.kind != "load" for file in self.plan.files):
            return False
        paths = (layout.changes, layout.replica, layout.history)
        # The last step of a batch removes the reports of its parts.
        is_begun = self.context.resumed and (self.context.has_appended(self.plan) or self._parts.are_begun())
        return is_begun or not any(map(engine.tables.exists, paths))

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
        context = BatchContext(
            tables=self.tables, layout=self.context.layout, tier=self.context.tier, plan=self.plan,
            table_schema=schema, resumed=self.context.resumed,
        )  # fmt: skip
        return FirstLoad(batch_context=context, context=self.context, parts=parts), unreadable


@dataclass(frozen=True, kw_only=True)
class FirstLoad:
    """See `BatchWork`, `AppendedWork` and `Decision`: the rows of a first load need no comparison."""

    batch_context: BatchContext
    context: TableContext
    parts: WrittenParts

    @property
    def plan(self) -> BatchPlan:
        return self.batch_context.plan

    @property
    def new_tables(self) -> Tables:
        return self.batch_context.tables

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.parts.batch

    @property
    def tables(self) -> _NewTables:
        return _NewTables(self.batch_context, load=self)

    @property
    def _schema(self) -> TableSchema:
        return self.decoded_batch.schema.table_schema

    @property
    def definitions(self) -> tuple[TableDefinition, ...]:
        return table_definition.definitions(self._schema, self.context.layout, self.context.tier)

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        path, added = self.context.layout.errors, list(self.parts.files[ERRORS])
        if files or added:
            self.new_tables.create(table_definition.errors(path))
            rows = quarantine.of_files(files, Stamp.of(self.plan))
            now = version_of(self.plan) // 1000
            added += self.new_tables.target(path).write(self.context.storage, rows, now)
            self._commit(path, QUARANTINE, added, self.decoded_batch.figures.quarantined + len(files))
        ErrorsTable(self.new_tables, path).resolve_earlier(self.plan, again)

    def discard(self) -> None:
        self.parts.discard()

    def append(self, overlap: Overlap) -> FirstLoad:  # noqa: ARG002 - no earlier batch had rows
        self._commit(self.context.layout.changes, APPEND, self.parts.files[CHANGES], self._good)
        return self

    @property
    def appended(self) -> Appended:
        return self.decoded_batch.figures.appended(self._good, self._good, batch=self.plan.number)

    @property
    def _good(self) -> int:
        return self.decoded_batch.figures.good

    def resolve_rows(self) -> None:
        """Nothing was in quarantine before."""

    def stale_rows(self) -> tuple[RunWarning, ...]:
        """No row was loaded before."""
        return ()

    def decide(self) -> FirstLoad:
        """All rows are new."""
        return self

    def tombstones(self) -> None:
        """A full load deletes nothing."""

    def replica(self) -> Applied:
        self._commit(self.context.layout.replica, MERGE, self.parts.files[REPLICA], self._good)
        if not self.context.spec.history:
            self.parts.forget()
        return Applied(main=MainCounts(inserted=self._good))

    def history(self, floors: tuple[GenerationFloor, ...], *, swept: int) -> None:
        self.tables.history(floors, swept=swept)

    def _commit(self, path: str, app: str, files: Sequence[Action], rows: int) -> None:
        self.new_tables.add_files(path, (app, version_of(self.plan)), files, {"numOutputRows": rows})


@dataclass(frozen=True)
class _NewTables(TableWriter):
    """For tables that are created in folders with data files."""

    load: FirstLoad

    def ensure_tables(self) -> None:
        for definition in self.load.definitions:
            self.load.new_tables.create(definition)
        super().ensure_tables()

    def history(self, floors: tuple[GenerationFloor, ...], *, swept: int) -> None:
        super().history(floors, swept=swept)
        self.load.parts.forget()
