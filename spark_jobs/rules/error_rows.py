"""Rows of the errors table for what a batch could not take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.plan.columns import Column
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.arrays import flat
from spark_jobs.rules.arrow_schema import arrow_type
from spark_jobs.rules.decode import DecodedGroup, Stamp
from spark_jobs.rules.errors_table import COLUMNS, ROW_MASK

TABLE = tuple(Column(name, parse_type(kind)) for name, kind in COLUMNS.items())
SCHEMA = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in TABLE])


def of_rows(group: DecodedGroup, stamp: Stamp) -> pa.Table:
    """A row for each bad row of a decoded group, in the order of `DecodedGroup.bad`."""
    gddl = flat(group.rows.column(GDDL)).take(pa.array(group.bad, pa.int64()))
    position = gddl.field("position")
    return _table(
        len(group.bad),
        stamp,
        {
            "id": pc.binary_join_element_wise(stamp.batch_id, position.cast(pa.string()), "/"),
            "record": pa.array([r.json for r in group.records], pa.string()),
            "record_schema": pa.array([r.schema for r in group.records], pa.string()),
            "code": pa.array([p.code for p in group.problems], pa.string()),
            "reason": pa.array([p.reason for p in group.problems], pa.string()),
            "column": pa.array([p.column for p in group.problems], pa.string()),
            "source_file": gddl.field("source_file"),
            "position": pc.bit_wise_and(position, ROW_MASK),
            "kind": pa.repeat(group.kind, len(group.bad)),
            "generation": gddl.field("generation"),
        },
    )


def of_files(files: Sequence[Unreadable], stamp: Stamp) -> pa.Table:
    """A row for each file that could not be read."""
    return _table(
        len(files),
        stamp,
        {
            "id": pa.array([f"{stamp.batch_id}/{u.file.path}" for u in files], pa.string()),
            "code": pa.array([u.code for u in files], pa.string()),
            "reason": pa.array([u.reason for u in files], pa.string()),
            "source_file": pa.array([u.file.path for u in files], pa.string()),
            "kind": pa.array([u.file.kind for u in files], pa.string()),
            "generation": pa.array([u.file.generation for u in files], pa.int32()),
        },
    )


def _table(count: int, stamp: Stamp, values: dict[str, pa.Array]) -> pa.Table:
    occurred = pa.scalar(datetime.fromisoformat(stamp.applied_at), SCHEMA.field("occurred_at").type)
    values |= {"batch_id": pa.repeat(stamp.batch_id, count), "occurred_at": pa.repeat(occurred, count)}
    columns = [values.get(f.name, pa.nulls(count, f.type)) for f in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)
