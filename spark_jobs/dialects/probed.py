"""A probed file: columns, format and row count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.dialects import DmsOptions
from airflow_gddl.contract.spec import DEFAULT_TIERS
from airflow_gddl.contract.sql_types import MAX_PRECISION, quoted
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.plan.source_snapshots import SnapshotMarks

_SCALARS: dict[pa.DataType, str] = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)",
    pa.float16(): "float", pa.float32(): "float", pa.float64(): "double",
    pa.string(): "string", pa.large_string(): "string", pa.string_view(): "string",
    pa.binary(): "binary", pa.large_binary(): "binary", pa.binary_view(): "binary",
    pa.date32(): "date", pa.null(): "void",
}  # fmt: skip


UNSUPPORTED = "unsupported "
"""Prefix of the type text of a column that no SQL type represents."""


class UnsupportedTypeError(Exception):
    """No SQL type represents this Arrow type; the message names it."""


def column_type(kind: pa.DataType) -> str:
    """As `sql_type`; for an unsupported type its name, which plans refuse unless the column is excluded."""
    try:
        return sql_type(kind)
    except UnsupportedTypeError as error:
        return UNSUPPORTED + re.sub(r"[^A-Za-z0-9_ \[\]]+", " ", str(error)).strip()


def sql_type(kind: pa.DataType) -> str:
    """SQL type text, e.g. `decimal(12,2)`, `array<int>`; timestamps in any unit are named alike, see `is_nanos`.

    Raises:
        UnsupportedTypeError: durations, unions and the like.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return sql_type(kind.storage_type)
    if pt.is_dictionary(kind):
        return sql_type(kind.value_type)
    return _SCALARS.get(kind) or _with_parameters(kind) or _nested(kind)


def _with_parameters(kind: pa.DataType) -> str | None:
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pt.is_decimal(kind):
        return _decimal(kind)
    if pt.is_fixed_size_binary(kind):
        return "binary"
    return "string" if pt.is_time(kind) else None


def _decimal(kind: pa.DataType) -> str:
    """Decimals with too many digits for SQL are kept as text."""
    scale = max(kind.scale, 0)
    precision = max(kind.precision - kind.scale + scale, scale)
    return f"decimal({precision},{scale})" if precision <= MAX_PRECISION else "string"


def _nested(kind: pa.DataType) -> str:
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pt.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pt.is_struct(kind):
        return f"struct<{','.join(f'{quoted(f.name)}:{sql_type(f.type)}' for f in kind)}>"
    raise UnsupportedTypeError(str(kind))


def is_nanos(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.unit == "ns")


@dataclass(frozen=True, kw_only=True)
class ReadBounds:
    """How many bytes a file's content may have in memory, by its tier.

    Attributes:
        most: bytes.
        ratio: times the size of the file; contents of up to `FREE` bytes may be larger.
    """

    FREE: ClassVar[int] = 64 * 1024**2

    most: int = DEFAULT_TIERS["small"].inflated_bytes
    ratio: int = DEFAULT_TIERS["small"].max_inflation

    def inflated(self, size: int) -> int:
        """Of a gzip stream, which is inflated as a whole."""
        return min(self.most, max(self.FREE, self.ratio * size))

    def decoded(self, size: int) -> int:
        """Of a parquet file: large ones are read by row groups, and a repeated value is stored once."""
        return max(self.most, self.ratio * size)


DEFAULT_BOUNDS = ReadBounds()


@dataclass(frozen=True)
class Probed:
    """A readable file.

    Attributes:
        columns: (name, SQL type) in file order; all `string` for CSV.
        rows: how many; null for CSV, whose rows are not counted before they are read.
        stated: (name, SQL type) of columns of text that have another type by the file's own schema: a value that is
            none of it is a misfit.
        wrapped: a parquet file inside a gzip stream.
        row_groups: rows of each row group of a parquet file that can be read in parts; empty for other files.
        translated: the dialect has translated its content, which is no table, into rows.
        table: those rows, until an engine has read them.
        malformed: of translated rows, the original text of those that are no rows (null elsewhere); null: all are.
        csv: how a CSV file is written; null unless it is CSV.
        snapshot: what its events say of snapshots of the source; null: its dialect knows of none.
        bounds: of the tier, for reading it.
    """

    file: PlannedFile
    columns: tuple[tuple[str, str], ...]
    rows: int | None = None
    stated: tuple[tuple[str, str], ...] = ()
    wrapped: bool = False
    row_groups: tuple[int, ...] = field(default=(), compare=False)
    translated: bool = False
    table: pa.Table | None = field(default=None, compare=False, repr=False)
    malformed: pa.Array | None = field(default=None, compare=False, repr=False)
    csv: DmsOptions | None = None
    snapshot: SnapshotMarks | None = field(default=None, compare=False)
    bounds: ReadBounds = field(default=DEFAULT_BOUNDS, compare=False)

    @classmethod
    def of_table(
        cls,
        file: PlannedFile,
        table: pa.Table,
        malformed: pa.Array | None = None,
        stated: Mapping[str, pa.DataType] = MappingProxyType({}),
        snapshot: SnapshotMarks | None = None,
    ) -> Probed:
        """A file that the dialect has translated."""
        columns = tuple((f.name, column_type(f.type)) for f in table.schema)
        types = tuple((name, column_type(kind)) for name, kind in stated.items())
        return cls(file, columns, table.num_rows, types, translated=True, table=table, malformed=malformed,
                   snapshot=snapshot)  # fmt: skip

    @property
    def signature(self) -> tuple[object, ...]:
        """Files with equal signatures are read together."""
        return (self.file.format, self.file.kind, self.columns, self.stated)


@dataclass(frozen=True)
class Unreadable:
    file: PlannedFile
    code: str
    reason: str


def groups(files: Iterable[Probed]) -> list[tuple[Probed, ...]]:
    """Files by signature, groups in the order of their first file."""
    found: dict[tuple[object, ...], list[Probed]] = {}
    for file in files:
        found.setdefault(file.signature, []).append(file)
    return [tuple(group) for group in found.values()]


def begin_a_table(files: Iterable[Probed]) -> bool:
    """Whether these files can start a new table; files without rows don't show the types of its keys."""
    return any(not file.translated or file.rows for file in files)
