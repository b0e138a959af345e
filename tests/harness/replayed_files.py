"""Files of a Delta table as the project reads its log."""

from __future__ import annotations

from airflow_gddl.stores import Storage
from spark_jobs.tables.replayed_log import Add, ReplayedLog, replayed


def log_of(path: str, version: int | None = None) -> ReplayedLog:
    """The log at a version; null: the newest."""
    log = replayed(Storage(), path, version)
    assert log is not None, path
    return log


def files_at(path: str, version: int) -> dict[str, Add]:
    """`add` actions by path."""
    return dict(log_of(path, version).files)
