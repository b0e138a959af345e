"""Files as AWS DMS writes them: names below a table's folder, and rows with their operation as parquet."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.simulate.source import COMMIT_TIME, OPERATION, SEQUENCE, TIMESTAMP, SimulatedChange
from airflow_gddl.simulate.values import SimulatedColumns


def load_name(index: int) -> str:
    """Name of full-load file `index`, from 0."""
    return f"LOAD{index + 1:08X}.parquet"


def change_name(moment: datetime) -> str:
    return f"{moment:%Y%m%d-%H%M%S}{moment.microsecond // 1000:03d}.parquet"


def changes_table(columns: SimulatedColumns, rows: Sequence[SimulatedChange]) -> pa.Table:
    named: dict[str, pa.Array] = {OPERATION: pa.array([row.op for row in rows], pa.string())}
    for column in columns.schema:
        named[column.name] = pa.array([row.row.get(column.name) for row in rows], column.type)
    named[SEQUENCE] = pa.array([row.sequence for row in rows], pa.string())
    named[COMMIT_TIME] = pa.array([row.commit for row in rows], TIMESTAMP)
    return pa.table(named)


def load_table(rows: pa.Table, moment: datetime) -> pa.Table:
    """A full load: without operations and sequences, every row committed at `moment`."""
    sequences = pa.nulls(rows.num_rows, pa.string())
    commits = pa.repeat(pa.scalar(moment, TIMESTAMP), rows.num_rows)
    return rows.append_column(SEQUENCE, sequences).append_column(COMMIT_TIME, commits)


def parquet_bytes(table: pa.Table) -> bytes:
    """Settings spelt out, and no Arrow schema inside, which the service doesn't write either."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="snappy", version="2.6", store_schema=False, row_group_size=1 << 20)
    return sink.getvalue()


def write(path: Path, data: bytes) -> None:
    """Whole or not at all, as an object store does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(data)
    os.replace(partial, path)  # noqa: PTH105 - same file system, one step
