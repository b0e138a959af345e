"""A change event with times in nanoseconds, read: `python -m tests.debezium.nanoseconds` does so without pandas."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.extensions import DebeziumOptions
from airflow_gddl.contract.python_command import exit_process
from spark_jobs.rooms.dialects.debezium.parquet_table import read_parquet
from spark_jobs.spark.tasks import leave_pandas_out

_ROW = pa.struct([("id", pa.int64()), ("t", pa.time64("ns")), ("seen", pa.list_(pa.timestamp("ns")))])


def read() -> dict[str, str]:
    """The times as text."""
    row = pa.array([{"id": 1, "t": 1_500_000_001, "seen": [1]}], _ROW)
    columns = {"op": ["c"], "source": [{"ts_ms": 1}], "before": pa.nulls(1, _ROW), "after": row}
    data = io.BytesIO()
    pq.write_table(pa.table(columns), data)
    found = read_parquet(pq.ParquetFile(data), DebeziumOptions())[0].table
    numbers = found.column("seen").cast(pa.list_(pa.int64()))
    return {"t": str(found.column("t")[0]), "seen": str(numbers[0])}


if __name__ == "__main__":
    leave_pandas_out()
    print(json.dumps(read()))
    exit_process(0)
