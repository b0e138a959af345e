"""How long files that no version needs any more are kept; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec

DELETED_FILES = "delta.deletedFileRetentionDuration"
_PART = re.compile(r"\s*(\d+)\s+(week|day|hour|minute|second|millisecond|microsecond)s?", re.ASCII)
_LONGEST = 200
_SECONDS = {
    "week": 604800.0, "day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0, "millisecond": 1e-3,
    "microsecond": 1e-6,
}  # fmt: skip


def vacuum_hours(spec: TableSpec) -> int:
    """By `vacuum_retention`, or Delta's own setting where the row's `table_properties` ask for longer.

    Raises:
        FatalError: `RETENTION_UNREADABLE`.
    """
    return max(seconds(spec.vacuum_retention) // 3600, own_hours(spec.table_properties, spec.table))


def own_hours(properties: Mapping[str, str], where: str) -> int:
    """Whole hours, rounded up, for which Delta is configured to keep removed files; 0 when it is not.

    Raises:
        FatalError: `RETENTION_UNREADABLE`; what can't be read might ask for longer than anything else does.
    """
    asked = {key.lower(): value for key, value in properties.items()}.get(DELETED_FILES.lower())
    if asked is None:
        return 0
    text = asked.strip().lower().removeprefix("interval").strip().replace("'", "")
    if not text or len(text) > _LONGEST or _PART.sub("", text).strip():
        what = f"{DELETED_FILES} is {asked!r}, which is no length of time that can be read"
        raise FatalError("RETENTION_UNREADABLE", what, where=where, remedy="write it as e.g. interval 30 days")
    kept = sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    return -int(-kept // 3600)
