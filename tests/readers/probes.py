"""Filters that a test asks of every reader, and what each must find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

PER_COLUMN = 2
"""Values of a column that are looked for."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A filter on one column of a table, and how many rows it finds.

    Attributes:
        path: the column, and below it the field of a struct.
        value: what it equals; null: rows without a value.
    """

    path: tuple[str, ...]
    value: pa.Scalar | None
    rows: int

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} {'is null' if self.value is None else f'= {self.value}'}: {self.rows} rows"


def probes(rows: pa.Table, *deep: str) -> Iterator[Probe]:
    """Probes of every column whose values can be compared, and of the fields of the structs `deep`.

    Args:
        rows: the whole table, read without a filter.
    """
    for name in rows.column_names:
        yield from _of((name,), rows.column(name))
    for name in deep:
        if name in rows.column_names:
            struct = rows.column(name)
            for field in struct.type:
                yield from _of((name, field.name), pc.struct_field(struct, field.name))


def _of(path: tuple[str, ...], values: pa.ChunkedArray) -> Iterator[Probe]:
    yield Probe(path=path, value=None, rows=values.null_count)
    if pt.is_nested(values.type):
        return
    there = values.drop_null().unique()
    step = max(1, len(there) // PER_COLUMN)
    for value in there[::step][:PER_COLUMN]:
        if not _is_nan(value):
            yield Probe(path=path, value=value, rows=pc.sum(pc.equal(values, value)).as_py())


def _is_nan(value: pa.Scalar) -> bool:
    found: Any = value.as_py()
    return isinstance(found, float) and found != found  # noqa: PLR0124 - NaN alone differs from itself
