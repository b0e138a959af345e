"""Debezium's change events, as sinks write them to object stores: JSON lines or parquet, in Connect's wrapper or not.

    names ─► events (JSON) or structs (parquet) ─► connect_types ─► table, with position's sequence

What comes out is a table of rows with an operation each, which engines decode like any other (docs/debezium.md).
"""

from spark_jobs.rooms.dialects.debezium.dialect import DebeziumDialect

__all__ = ["DebeziumDialect"]
