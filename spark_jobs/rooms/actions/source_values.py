"""Values of a source's columns in files: of their column's type, or all of them as text where one is none of it.

Such a column of text states its type beside its name, so that a misfit concerns its row alone when the file is read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.codes import INITIAL_LOAD_REFUSED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.schema_evolution import STRING
from spark_jobs.rooms.dialects.probe import STATED
from spark_jobs.rooms.dialects.protocol import sql_type
from spark_jobs.rules.convert import fit

PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "single": pa.float32(), "double": pa.float64(), "date": pa.date32(), "text": pa.string(),
    "binary": pa.binary(), "naive": pa.timestamp("us"), "aware": pa.timestamp("us", tz="UTC"),
}  # fmt: skip
"""By `SourceType.kind`."""
INSTANT = PLAIN["aware"]
_BEYOND_PYTHON = ("date", "naive", "aware", "decimal")
"""Kinds of which PostgreSQL has values that Python's classes lack, or that drivers replace by others: infinity, years
before 1 and after 9999."""


def is_read_as_text(kind: str, database: str) -> bool:
    """Whether values are read as the texts that the database writes, whatever the driver makes of others."""
    return database == "postgresql" and kind in _BEYOND_PYTHON


def is_written_as_text(kind: pa.DataType) -> bool:
    """The same of values that a statement of ours makes, by their type in files."""
    return bool(pt.is_temporal(kind) or pt.is_decimal(kind))


_CONVERTED: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.float64(): float, pa.float32(): float, pa.binary(): bytes,
}  # fmt: skip


@dataclass(frozen=True)
class SourceColumn:
    """A column that is read.

    Attributes:
        in_files: its name there.
        as_text: its values are text in files, too; else those of `read_as_text` are converted.
        read_as_text: the database writes its values as text.
        sql: makes its values, with `{}` for the column; empty: they are read as they are.
        in_bytes: texts, read as the bytes that they have in a database without an encoding.
    """

    name: str
    in_files: str
    type: pa.DataType
    as_text: bool
    read_as_text: bool
    sql: str = ""
    in_bytes: bool = False

    def field(self, kind: pa.DataType | None = None) -> pa.Field:
        """Of a file; `kind`: of the values there, None: the column's own."""
        return _field(self.in_files, self.type, self.type if kind is None else kind)

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Values of the column's type; all as text where one is none of it.

        Raises:
            FatalError: `INITIAL_LOAD_REFUSED`: there is no text for it.
        """
        if self.in_bytes:
            # A text that is none in UTF-8 concerns its row alone when the file is read (`TEXT_NOT_UTF8`).
            texts = pa.array([None if value is None else bytes(value) for value in values], pa.binary())
            return pc.cast(texts, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))
        if self.read_as_text and not self.as_text:
            return _typed(pa.array(values, pa.string()), self.type)
        convert = Decimal if pt.is_decimal(self.type) else _CONVERTED.get(self.type)
        try:
            read = values if convert is None else [None if value is None else convert(value) for value in values]
            return pa.array(read, self.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError) as error:
            if pt.is_nested(self.type) or pt.is_binary(self.type) or pt.is_string(self.type):
                what = f"a value of column {self.name} is no {self.type}: {error}"
                remedy = "correct it in the source, or leave the column out by exclude_columns"
                raise FatalError(INITIAL_LOAD_REFUSED, what, where=self.name, remedy=remedy) from error
            return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _typed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    fitted = fit(texts, STRING, parse_type(sql_type(kind)))
    return texts if fitted.misfit is not None else fitted.values


def _text(value: Any) -> str:
    """As the grammar of texts reads it."""
    if isinstance(value, Decimal) and value.is_finite():
        return format(value, "f")
    return value.isoformat() if isinstance(value, date) else str(value)


def values_of(delivered: pa.Array | pa.ChunkedArray, column: SourceColumn) -> list[Any]:
    """Values of a column of a batch; null for those that are not of its type."""
    is_typed = delivered.type == column.type
    values: list[Any] = (
        delivered if is_typed else fit(delivered, STRING, parse_type(sql_type(column.type))).values
    ).to_pylist()
    return values


def in_one_schema(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Batches as one table; a column is text if it is in one of them."""
    common = reduce(_common, (batch.schema for batch in batches), schema)
    return pa.Table.from_batches([_recast(batch, common) for batch in batches], common)


class ParquetContent:
    """The content of a file of batches, whose columns become text with the first misfit."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self._begin(schema)

    def _begin(self, schema: pa.Schema) -> None:
        self._schema, self._content = schema, io.BytesIO()
        self._writer = pq.ParquetWriter(self._content, schema, compression="zstd")

    def add(self, batch: pa.RecordBatch) -> None:
        common = _common(self._schema, batch.schema)
        if common != self._schema:
            written = pq.ParquetFile(io.BytesIO(self.finished()), coerce_int96_timestamp_unit="us")
            former = written.read(use_threads=False)
            self._begin(common)
            for part in former.to_batches():
                self._writer.write_batch(_recast(part, common))
        self._writer.write_batch(_recast(batch, common))
        self.rows += batch.num_rows

    def finished(self) -> bytes:
        self._writer.close()
        return self._content.getvalue()


def _field(name: str, stated: pa.DataType, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata=None if kind == stated else {STATED: sql_type(stated).encode()})


def _common(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """The first schema, with the columns that are text in the other."""
    pairs = zip(one, other, strict=True)
    return pa.schema([theirs if pt.is_string(theirs.type) else mine for mine, theirs in pairs], metadata=one.metadata)


def _recast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [_as_text(values) if values.type != field.type else values
              for values, field in zip(batch.columns, schema, strict=True)]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_text(values: pa.Array) -> pa.Array:
    return fit(values, parse_type(sql_type(values.type)), STRING).values
