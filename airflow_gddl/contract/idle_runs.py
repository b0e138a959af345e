"""Which runs had nothing to do, so that they leave no record."""

from __future__ import annotations

from airflow_gddl.contract.endings import OwnCodes
from airflow_gddl.contract.features import features
from airflow_gddl.contract.result import CATALOG_PROBLEMS, JobResult
from airflow_gddl.contract.sources import sources

OWN_CODES: tuple[OwnCodes, ...] = (*features().values(), *sources().values())
"""Codes of features and sources."""
RECORDED_WHEN_IDLE = CATALOG_PROBLEMS.union(
    ("CATALOG_REGISTERED", "FOREIGN_COMMIT"),
    *(codes.when_idle for codes in OWN_CODES),
)
"""Codes of warnings for which an idle run still writes a record."""


def is_idle(result: JobResult) -> bool:
    """Whether the run had no work, and no warning that needs a record."""
    return result.status == "skipped" and not any(w.code in RECORDED_WHEN_IDLE for w in result.warnings)
