"""Which runs had nothing to do, so that they leave no record."""

from __future__ import annotations

from airflow_gddl.contract.features import features
from airflow_gddl.contract.result import CATALOG_PROBLEMS, JobResult

RECORDED_WHEN_IDLE = CATALOG_PROBLEMS.union(
    ("CATALOG_REGISTERED", "FOREIGN_COMMIT", "SNAPSHOT_CLEARED", "SNAPSHOT_HELD"),
    *(feature.when_idle for feature in features().values()),
)
"""Codes of warnings for which an idle run still writes a record."""


def is_idle(result: JobResult) -> bool:
    """Whether the run had no work, and no warning that needs a record."""
    return result.status == "skipped" and not any(w.code in RECORDED_WHEN_IDLE for w in result.warnings)
