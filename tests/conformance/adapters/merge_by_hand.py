"""A job with the MERGE that people write by hand, in DuckDB: newest change of each key, delete, update or insert."""

from __future__ import annotations

from pathlib import Path

import duckdb

from tests.conformance.adapters.usual_job import newest, table_of
from tests.conformance.delivery import Delivery, Outcome
from tests.conformance.judging import NO_CODE


def play(delivery: Delivery, folder: Path) -> Outcome:
    """A statement for each arrival. What a file can't be read by ends the job, as it would on a schedule."""
    refused, connection = "", duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for arrival in delivery.arrivals:
        try:
            batch = table_of(delivery, newest(delivery, arrival))
            connection.register("batch", batch)
            _merge(connection, delivery, batch.column_names)
            refused = ""
        except Exception:  # noqa: BLE001 - a job that fails says so
            refused = NO_CODE
    if not connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 't'").fetchall():
        return Outcome(None, {}, refused)
    return Outcome(tuple(connection.sql("SELECT * FROM t").to_arrow_table().to_pylist()), {}, refused)


def _merge(connection: duckdb.DuckDBPyConnection, delivery: Delivery, columns: list[str]) -> None:
    names = [f'"{name}"' for name in columns if name != "_deleted"]
    connection.execute(f"CREATE TABLE IF NOT EXISTS t AS SELECT {', '.join(names)} FROM batch LIMIT 0")
    values = ", ".join(f"s.{name}" for name in names)
    on = " AND ".join(f't."{name}" = s."{name}"' for name in delivery.keys)
    changed = ", ".join(f"{name} = s.{name}" for name in names if name.strip('"') not in delivery.keys)
    connection.execute(
        f"MERGE INTO t USING batch AS s ON ({on}) "
        "WHEN MATCHED AND s._deleted THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {changed} "
        f"WHEN NOT MATCHED AND NOT s._deleted THEN INSERT ({', '.join(names)}) VALUES ({values})"
    )
