"""The files of a change table's rows, for the generations of a table whose ledger is lost."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from airflow_gddl.contract.sql_types import ScalarType, SqlType, StructType
from spark_jobs.plan.batch import number_of
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.codes import changes, row_codes, sortable, sorted_rows
from spark_jobs.rules.order import gddl_fields, that_count
from spark_jobs.rules.value_text import json_writer


def recorded_files(parts: Iterable[pa.Table], gddl: SqlType) -> list[RecordedFile]:
    """Each file and generation, as often as it is found in another part.

    Args:
        parts: rows of a change table; only `_gddl` is needed. Archived ones are left out.
        gddl: type of that.
    """
    return [file for part in parts for file in _of_part(part, gddl)]


def _of_part(rows: pa.Table, gddl: SqlType) -> Iterable[RecordedFile]:
    sequence = gddl.field("sequence") if isinstance(gddl, StructType) else None
    write = json_writer(ScalarType("string") if sequence is None else sequence.type)
    fields = gddl_fields(that_count(rows.select([GDDL])))
    file = row_codes([fields["source_file"], fields["generation"]], len(fields["generation"]))
    names = ("applied_at", "batch_id", "sequence")
    latest, newest, highest = (_greatest(file, sortable(fields[name])) for name in names)
    lowest = _least(file, sortable(fields["sequence"]))
    columns = [fields["source_file"].take(latest), fields["generation"].take(latest), fields["applied_at"].take(latest),
               fields["batch_id"].take(newest), fields["sequence"].take(highest),
               fields["sequence"].take(lowest)]  # fmt: skip
    for path, generation, applied_at, batch_id, greatest, least in zip(*(c.to_pylist() for c in columns), strict=True):
        yield RecordedFile(
            path=path,
            generation=generation,
            applied_at=applied_at.isoformat(),
            batch=number_of(batch_id),
            max_sequence=None if greatest is None else write(greatest),
            min_sequence=None if least is None else write(least),
        )


def _greatest(group: np.ndarray, values: list[pa.Array]) -> pa.Array:
    """For each group, in order, the row with its greatest value."""
    at = sorted_rows([pa.array(group), *values])
    return pa.array(at[np.roll(changes(group[at]), -1)])


def _least(group: np.ndarray, values: list[pa.Array]) -> pa.Array:
    """For each group, in order, the row with its least value; null counts as least."""
    at = sorted_rows([pa.array(group), *values])
    return pa.array(at[changes(group[at])])
