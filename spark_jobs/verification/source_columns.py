"""Which columns of a table compare with its source, and how far from it rows are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.errors import FatalError
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.verification.source_database import SourceTable
from spark_jobs.verification.source_values import Text, comparison, digest


@dataclass(frozen=True)
class Columns:
    """What is compared: names in the lake and in the source, keys first, and how."""

    lake: tuple[str, ...]
    source: tuple[str, ...]
    how: tuple[Text, ...]
    keys: int
    left_out: Mapping[str, str]

    @classmethod
    def of(cls, table: SourceTable, table_schema: TableSchema) -> Columns:
        """
        Raises:
            FatalError: `SOURCE_KEYS_NOT_COMPARABLE`.
        """
        types = {name.lower(): (name, kind) for name, kind in table.types.items()}
        masked = {name.lower() for name in table_schema.spec.mask}
        chosen: dict[str, tuple[str, Text]] = {}
        left_out: dict[str, str] = {}
        for column in sorted(table_schema.data, key=lambda c: c.name not in table_schema.keys):
            found = types.pop(column.name.lower(), None)
            if column.name.lower() in masked:
                left_out[column.name] = "masked"
            elif found is None:
                left_out[column.name] = "not in the source"
            elif (how := comparison(found[1], column.type)) is None:
                left_out[column.name] = f"{found[1].kind} in the source, {column.type} in the lake"
            else:
                chosen[column.name] = (found[0], how)
        left_out |= {name: "not in the lake" for name, _ in types.values()}
        if unfit := [f"{key}: {left_out[key]}" for key in table_schema.keys if key not in chosen]:
            raise FatalError(
                "SOURCE_KEYS_NOT_COMPARABLE",
                f"rows can't be matched by their key ({'; '.join(unfit)})",
                where=table_schema.spec.table,
                remedy="leave verify_connection out for this table",
            )
        order = [*table_schema.keys, *(name for name in chosen if name not in table_schema.keys)]
        pairs = [chosen[name] for name in order]
        return cls(
            tuple(order), tuple(p[0] for p in pairs), tuple(p[1] for p in pairs), len(table_schema.keys), left_out
        )

    def key(self, row: Sequence[Any]) -> tuple[str, ...]:
        return tuple(how(value) for value, how in zip(row[: self.keys], self.how, strict=False))

    def digest(self, row: Sequence[Any]) -> int:
        return digest(row, self.how)


def distance(
    table: SourceTable, table_schema: TableSchema, rows_of: Callable[[Sequence[str]], Iterable[Sequence[Any]]]
) -> int:
    """How many keys of some rows differ from the source, changes in delivery included.

    Raises:
        FatalError: `SOURCE_KEYS_NOT_COMPARABLE`.
    """
    columns = Columns.of(table, table_schema)
    here = {columns.key(row): columns.digest(row) for row in rows_of(columns.lake)}
    different = 0
    for row in table.rows(columns.source, columns.source[0], (None, None)):
        different += here.pop(columns.key(row), None) != columns.digest(row)
    return different + len(here)
