"""Context of one table: its row, dialect, folders, and what the logs of its tables say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.names import is_before_image
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.stores import Storage
from spark_jobs.ledger.erasures import ErasureRegister
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import GDDL, RESCUED, Column, Schema, TableSchema
from spark_jobs.rooms.dialects.protocol import Dialect
from spark_jobs.rules.batch_schema import Stored, plan_batch
from spark_jobs.tables.delta_log import APPEND, DeltaCommit, version_of
from spark_jobs.tables.replayed_log import ReplayedLog
from spark_jobs.tables.table_definition import tells_events


class TableLogs(Protocol):
    """What the logs of Delta tables say, by path."""

    def exists(self, path: str) -> bool: ...

    def version(self, path: str) -> int | None: ...

    def recall(self, path: str, log: ReplayedLog | None) -> None:
        """Take over what the last run knew of the table's log, so that less of it is read; None: there was no table."""
        ...

    def known_log(self, path: str) -> ReplayedLog | None:
        """What the next run may take over; None: it reads the log itself."""
        ...

    def commits_since(self, path: str, version: int) -> list[DeltaCommit] | None:
        """Commits after a version, oldest first; None where the log lacks that commit and all later ones."""
        ...

    def forget_all(self) -> None:
        """Drop what is known of tables that another writer may have changed."""
        ...

    def last_transaction(self, path: str, app: str) -> int:
        """Highest transaction version that `app` committed to the table; -1 when none."""
        ...

    def data_columns(self, path: str) -> tuple[Column, ...]:
        """Columns of a table without `_gddl`."""
        ...

    def columns(self, path: str) -> tuple[Column, ...]:
        """All columns of a table, `_gddl` among them, in order."""
        ...


@dataclass(frozen=True, kw_only=True)
class TableContext:
    """Read-only context of one table during a run.

    Attributes:
        resumed: an earlier run may have written part of the current batch.
        begins_with: columns that the tables have from the first, where they don't exist yet; None: those of the files.
        replaces: data columns of the tables that these replace, with which policies compare; None: they replace none.
    """

    dialect: Dialect
    tier: TierSpec
    layout: Layout
    storage: Storage
    tables: TableLogs
    resumed: bool = True
    begins_with: Stored | None = None
    replaces: Schema | None = None

    @property
    def spec(self) -> TableSpec:
        return self.dialect.spec

    @property
    def erasures(self) -> ErasureRegister:
        return ErasureRegister(self.storage, self.layout.erased, self.spec)

    def has_appended(self, plan: BatchPlan) -> bool:
        """Whether the change table has the changes of a batch."""
        return self.tables.last_transaction(self.layout.changes, APPEND) >= version_of(plan)

    def stored_schema(self, state: TableState) -> TableSchema:
        """The schema that the table was last written with, as its change table and the ledger state it."""
        return plan_batch(self.dialect, (), self.stored_columns(), state).table_schema

    def stored_columns(self) -> Stored:
        """Current columns of the change table, split into data and before images."""
        if not self.tables.exists(self.layout.changes):
            return self.begins_with or Stored(data=None, before=None, live=self.replaces)
        stored = self.tables.columns(self.layout.changes)
        all_columns = [c for c in stored if c.name != GDDL]
        columns = [c for c in all_columns if c.name != RESCUED]
        prefix = self.spec.before_image_prefix
        images = tuple(c for c in columns if prefix and is_before_image(c.name, prefix))
        data = tuple(c for c in columns if not (prefix and is_before_image(c.name, prefix)))
        return Stored(data=Schema(data), before=Schema(images), rescued=len(columns) < len(all_columns),
            event_fields=tells_events(stored), live=self.replaces,
        )  # fmt: skip
