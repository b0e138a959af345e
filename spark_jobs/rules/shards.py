"""The column that names a row's source in tables of several: its values, and the rows of one source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.codes import SHARD_COLUMN_TAKEN
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from spark_jobs.rules.file_groups import FileGroup
from spark_jobs.rules.file_rows import RawGroup


def with_shard_column(groups: Sequence[FileGroup], *, replayed: bool) -> list[FileGroup]:
    """Groups of files as if each had the column.

    Args:
        replayed: they are records of the quarantine, which have it.

    Raises:
        FatalError: `SHARD_COLUMN_TAKEN`: a file has a column of this name.
    """
    return [_with_column(group, replayed=replayed) for group in groups]


def _with_column(group: FileGroup, *, replayed: bool) -> FileGroup:
    others = tuple((name, kind) for name, kind in group.columns if name.lower() != SHARD_COLUMN)
    if len(others) != len(group.columns) and not replayed:
        raise FatalError(
            SHARD_COLUMN_TAKEN,
            f"the file has a column {SHARD_COLUMN}, which tables with `shards` keep for the name of the source",
            where=group.label,
            remedy="rename the column at the source or in the CDC task; or load each source into a table of its own",
        )
    return replace(group, columns=((SHARD_COLUMN, "string"), *others))


def with_shard(raw: RawGroup, shard: str) -> RawGroup:
    """The rows of a group with the column filled in."""
    others = {name: values for name, values in raw.columns.items() if name.lower() != SHARD_COLUMN}
    return replace(raw, columns={SHARD_COLUMN: pa.repeat(shard, raw.rows), **others})


def of_shard(rows: pa.Table, shard: str | None) -> pa.Table:
    """Rows of one source; None: all."""
    return rows if shard is None else rows.filter(pc.equal(rows.column(SHARD_COLUMN), shard))


def not_of_shard(rows: pa.Table, shard: str) -> pa.Table:
    """Rows of the other sources."""
    return rows.filter(pc.fill_null(pc.not_equal(rows.column(SHARD_COLUMN), shard), True))
