"""Which rows have a source that jobs read themselves, and which room reads it."""

from __future__ import annotations

from airflow_gddl.contract.capture import capture_of
from airflow_gddl.contract.kafka import topic_of
from airflow_gddl.contract.table_spec import TableSpec


def source_room(spec: TableSpec) -> str | None:
    """Package of `spark_jobs.sources`; None: a service writes the files."""
    if spec.mode == "snapshots":
        return "snapshots"
    if capture_of(spec):
        return "capture"
    return "kafka" if topic_of(spec) else None
