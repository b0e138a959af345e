"""What a change table tells of the files that it came from: the generations of a table whose ledger is lost."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.plan.types import ScalarType, SqlType, StructType
from spark_jobs.rules.sql import query
from spark_jobs.rules.value_text import json_writer

_STATEMENT = (
    f"SELECT {GDDL}.source_file AS path, {GDDL}.generation AS generation, max({GDDL}.applied_at) AS applied_at, "
    f"max({GDDL}.sequence) AS sequence FROM changes GROUP BY ALL"
)


def recorded_files(parts: Iterable[pa.Table], gddl: SqlType) -> list[RecordedFile]:
    """Each file and generation, as often as it is found in another part.

    Args:
        parts: rows of a change table; only `_gddl` is looked at.
        gddl: type of that.
    """
    return [file for part in parts for file in _of_part(part, gddl)]


def _of_part(rows: pa.Table, gddl: SqlType) -> Iterable[RecordedFile]:
    sequence = gddl.field("sequence") if isinstance(gddl, StructType) else None
    write = json_writer(ScalarType("string") if sequence is None else sequence.type)
    for row in query(_STATEMENT, {"changes": rows}).to_pylist():
        yield RecordedFile(
            path=row["path"],
            generation=row["generation"],
            applied_at=row["applied_at"].isoformat(),
            max_sequence=None if row["sequence"] is None else write(row["sequence"]),
        )
