"""Rows of a replica that break `unique` or `foreign_key` of the row (docs/semantics.md, section 18).

As in SQL, rows with a null in one of the columns break neither. Rows that are marked deleted are not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.stores import Storage
from spark_jobs.plan.columns import Column
from spark_jobs.rules.arrays import DeltaSchema
from spark_jobs.rules.codes import ascending, row_codes, table_codes
from spark_jobs.rules.sweep import unmarked
from spark_jobs.rules.texts import rows_json

CHILD, PARENT = "child", "parent"
MOST_VALUES = 100_000
"""Of one constraint, that are named."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Where the values of a foreign key have to be.

    Attributes:
        path: of the table.
        columns: in the order of the foreign key's.
    """

    path: str
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Violations:
    """Of one constraint.

    Attributes:
        rows: that were checked.
        failed: rows whose values another row has, too; or that no row of the other table has.
        values: some of the values as JSON objects, lowest texts first, with the number of these rows that have them.
    """

    rows: int
    failed: int
    values: tuple[tuple[str, int], ...]


def not_checked(what: str, remedy: str) -> FatalError:
    return FatalError("CONSTRAINT_NOT_CHECKED", what, remedy=remedy)


def violations_of(reports: Iterable[bytes], most: int) -> Violations:
    """Of a whole table, from the reports of all ranges of its values."""
    found = [json.loads(report) for report in reports]
    values = sorted((text, rows) for _, _, values in found for text, rows in values)[:most]
    return Violations(rows=sum(f[0] for f in found), failed=sum(f[1] for f in found), values=tuple(values))


@dataclass(frozen=True, kw_only=True)
class CheckedValues:
    """The columns of a constraint, by place, of the rows that it is checked on; sent to tasks.

    Attributes:
        columns: as the table has them.
        schema: of the result.
    """

    columns: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, rows: pa.Table) -> pa.Table:
        rows = unmarked(rows)
        values = [rows.column(name).cast(kind) for name, kind in zip(self.columns, self.schema.types, strict=True)]
        filled = reduce(pc.and_, (column.is_valid() for column in values))
        return pa.table(values, schema=self.schema).filter(filled)


@dataclass(frozen=True, kw_only=True)
class BrokenConstraint:
    """Rows of one range of values that break a constraint; sent to tasks.

    Attributes:
        columns: names and types of the values.
        most: values that are named.
    """

    columns: tuple[Column, ...]
    most: int

    @property
    def schema(self) -> pa.Schema:
        """Of the values, by place: another table has other names for them."""
        return DeltaSchema(tuple(Column(f"value{i}", c.type) for i, c in enumerate(self.columns))).arrow

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - reads nothing
        mine = rows[CHILD]
        codes, failed = self._repeated(mine) if PARENT not in rows else self._orphaned(mine, rows[PARENT])
        return json.dumps([mine.num_rows, int(failed.sum()), self._named(mine, codes, failed)]).encode()

    def _repeated(self, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        codes = row_codes(rows.columns, rows.num_rows)
        return codes, np.bincount(codes)[codes] > 1 if rows.num_rows else np.zeros(0, bool)

    def _orphaned(self, rows: pa.Table, parents: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        codes, known = table_codes((rows, parents), self.schema.names)
        return codes, ~np.isin(codes, known)

    def _named(self, rows: pa.Table, codes: np.ndarray, failed: np.ndarray) -> list[tuple[str, int]]:
        """The lowest values, so that the next check names the same."""
        _, first, counts = np.unique(codes[failed], return_index=True, return_counts=True)
        values = rows.filter(pa.array(failed, pa.bool_())).take(pa.array(first))
        lowest = ascending(values, values.column_names)[: self.most]
        chosen = values.take(lowest)
        columns = [
            (own.name, column.combine_chunks(), own.type)
            for own, column in zip(self.columns, chosen.columns, strict=True)
        ]
        return list(zip(rows_json(columns, nulls=True), counts[lowest.to_numpy()].tolist(), strict=True))
