"""Arrow tables in memory with the metadata of a Delta table: columns and transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from airflow_gddl.contract.result import MainCounts
from airflow_gddl.contract.sql_types import SqlType, StructType
from spark_jobs.engines.table_definition import TableDefinition, marks_deletes
from spark_jobs.plan.columns import Column
from spark_jobs.plan.merging import grown
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.arrow_schema import arrow_type
from spark_jobs.rules.convert import with_texts
from spark_jobs.rules.history import END, START, retyped_bounds
from spark_jobs.rules.sweep import undeleted, unmarked


@dataclass(frozen=True, kw_only=True)
class MemoryTable:
    """One version of a table.

    Attributes:
        columns: `_gddl` included.
        transactions: application to its highest version.
        counts: of the newest transaction of each application that reports any.
    """

    columns: tuple[Column, ...]
    rows: pa.Table
    transactions: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, MainCounts] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def with_columns(self, columns: Sequence[Column]) -> MemoryTable:
        """The same rows in these columns; new ones are null."""
        schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in columns])
        return replace(self, columns=tuple(columns), rows=by_name(self.rows, schema))


class MemoryTables:
    """Tables by path. Not safe for concurrent writes to one table: a run holds its table's claim."""

    def __init__(self) -> None:
        self._tables: dict[str, MemoryTable] = {}

    def get(self, path: str) -> MemoryTable | None:
        return self._tables.get(path)

    def existing(self, path: str) -> MemoryTable:
        """
        Raises:
            FileNotFoundError: there is no table.
        """
        if path not in self._tables:
            raise FileNotFoundError(path)
        return self._tables[path]

    def rows(self, path: str) -> pa.Table:
        return self.existing(path).rows

    def ensure(self, definition: TableDefinition) -> MemoryTable:
        """Create the table, or evolve an existing one to the definition's columns and marks of deleted rows."""
        stored = self._tables.get(definition.path, MemoryTable(columns=(), rows=pa.table({})))
        there = {c.name: c.type for c in stored.columns}
        wanted = {c.name: c.type for c in definition.columns}
        if GDDL in there and marks_deletes(there[GDDL]) != marks_deletes(wanted[GDDL]):
            marked = marks_deletes(there[GDDL])
            stored = replace(stored, rows=unmarked(stored.rows) if marked else undeleted(stored.rows))
        retyped = [n for n in (START, END) if n in there and n in wanted and there[n] != wanted[n]]
        for name in retyped:
            bounds = retyped_bounds(stored.rows.column(name), wanted[name])
            stored = replace(stored, rows=stored.rows.set_column(stored.schema.get_field_index(name), name, bounds))
        there |= {name: wanted[name] for name in retyped}
        kept = [Column(n, _evolved(n, kind, wanted[n]) if n in wanted else kind) for n, kind in there.items()]
        stored = replace(stored, rows=with_texts(stored.rows, there, {c.name: c.type for c in kept}))
        columns = (*kept, *(c for c in definition.columns if c.name not in there))
        self._tables[definition.path] = stored.with_columns(columns)
        return self._tables[definition.path]

    def commit(
        self, path: str, transaction: tuple[str, int], change: Callable[[MemoryTable], tuple[pa.Table, MainCounts]]
    ) -> MainCounts:
        """Replace the rows by the result of `change`, once per transaction; returns its counts."""
        table = self.existing(path)
        app, version = transaction
        if table.transactions.get(app, -1) < version:
            rows, counts = change(table)
            table = replace(
                table, rows=by_name(rows, table.schema), transactions={**table.transactions, app: version},
                counts={**table.counts, app: counts},
            )  # fmt: skip
            self._tables[path] = table
        return table.counts[app]

    def append(self, path: str, transaction: tuple[str, int], rows: pa.Table) -> MainCounts:
        """Append rows, once per transaction."""

        def added(table: MemoryTable) -> tuple[pa.Table, MainCounts]:
            whole = pa.concat_tables([table.rows, by_name(rows, table.schema)])
            return whole, MainCounts(inserted=rows.num_rows)

        return self.commit(path, transaction, added)

    def replace_rows(self, path: str, rows: pa.Table) -> None:
        """Replace the rows outside a transaction; for idempotent steps."""
        self._tables[path] = replace(self.existing(path), rows=rows)


def _evolved(name: str, stored: SqlType, wanted: SqlType) -> SqlType:
    """Data columns are widened; `_gddl` is replaced, as it differs only by a null sequence's type and the mark."""
    return wanted if name == GDDL and isinstance(wanted, StructType) else grown(stored, wanted)
