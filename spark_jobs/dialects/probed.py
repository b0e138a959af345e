"""A probed file: columns, format and row count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from airflow_gddl.contract.dms import DmsOptions
from spark_jobs.dialects.arrow_types import column_type, is_nanos
from spark_jobs.plan.files import PlannedFile


@dataclass(frozen=True)
class Probed:
    """A readable file.

    Attributes:
        columns: (name, SQL type) in file order; all `string` for CSV.
        rows: how many; null for CSV, whose rows are not counted before they are read.
        nanos: timestamp columns in nanoseconds, which are read as whole numbers.
        wrapped: a parquet file inside a gzip stream.
        row_groups: rows of each row group of a parquet file that can be read in parts; empty for other files.
        translated: the dialect has translated its content, which is no table, into rows.
        table: those rows, until an engine has read them.
        malformed: of translated rows, the original text of those that are no rows (null elsewhere); null: all are.
        csv: how a CSV file is written; null unless it is CSV.
    """

    file: PlannedFile
    columns: tuple[tuple[str, str], ...]
    rows: int | None = None
    nanos: tuple[str, ...] = ()
    wrapped: bool = False
    row_groups: tuple[int, ...] = field(default=(), compare=False)
    translated: bool = False
    table: pa.Table | None = field(default=None, compare=False, repr=False)
    malformed: pa.Array | None = field(default=None, compare=False, repr=False)
    csv: DmsOptions | None = None

    @classmethod
    def of_table(cls, file: PlannedFile, table: pa.Table, malformed: pa.Array | None = None) -> Probed:
        """A file that the dialect has translated."""
        columns = tuple((f.name, column_type(f.type)) for f in table.schema)
        nanos = tuple(f.name for f in table.schema if is_nanos(f.type))
        return cls(file, columns, table.num_rows, nanos, translated=True, table=table, malformed=malformed)

    @property
    def signature(self) -> tuple[object, ...]:
        """Files with equal signatures are read together."""
        return (self.file.format, self.file.kind, self.columns, self.nanos)


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
