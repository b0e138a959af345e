"""Times that the names of change files tell, and which files are old by them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract.file_names import PathFormat, change_time, digits_of, moment
from airflow_gddl.contract.layout import below
from spark_jobs.plan.planned_batch import (
    FileEntry,
)

_CLOCK_SKEW = timedelta(days=1)


@dataclass(frozen=True)
class FileTimes:
    """Times are digits as `file_names.change_time` gives them, of one zone, whichever it is.

    Attributes:
        format: of folders that partition by time, as sinks make them: files of a folder have one time, when it begins.
            None: files are named as DMS names them.
    """

    format: PathFormat | None = None

    @property
    def rule(self) -> str:
        """Tells one rule from another: what was archived by one says nothing under another. Empty: names as DMS's."""
        return "" if self.format is None else self.format.text

    def of(self, relative: str) -> str | None:
        """Time of a change file from its path below the landing folder; None: the path has no time."""
        return change_time(relative) if self.format is None else self.format.time(relative)

    def floor(self, time: datetime) -> datetime:
        """The time that a file of this moment has."""
        return time if self.format is None else self.format.floor(time)


BY_NAME = FileTimes()


def time_of(times: FileTimes, relative: str | None) -> datetime | None:
    return moment(times.of(relative) or "") if relative else None


def reaching_back(times: FileTimes, cursor: str | None, reach: timedelta) -> str | None:
    """The time, as digits, from which on files are so near the newest one; null where that states no time.

    Whole folders: their files have no order among themselves.
    """
    newest = time_of(times, cursor)
    return None if newest is None else digits_of(times.floor(newest - reach))


def newest(times: FileTimes, names: Iterable[str], now: datetime, cursor: str | None = None) -> str | None:
    """The relative path with the latest time, among these and the newest one before; None: none has a time.

    Args:
        now: aware. A path from the far future would hide all that comes after.
    """
    latest = digits_of(now.astimezone(UTC) + _CLOCK_SKEW)
    timed = [(time, name) for name in names if (time := times.of(name)) is not None and time <= latest]
    if cursor is not None:
        timed.append((times.of(cursor) or "", cursor))
    return max(timed, default=("", None))[1]


@dataclass(frozen=True)
class FileAging:
    """Which rows of a ledger are old.

    Attributes:
        lookback: how far behind the cursor a file is not old; None: none is.
        landing: root of the files; what lies elsewhere is from before it moved.
    """

    lookback: timedelta | None = None
    times: FileTimes = BY_NAME
    landing: str = ""

    def horizon(self, cursor: str | None) -> str | None:
        """Change files of an earlier time are old."""
        return None if self.lookback is None else reaching_back(self.times, cursor, self.lookback)

    def is_before(self, row: FileEntry, horizon: str | None) -> bool:
        """Also of an unreadable file, false: it may be replayed, or dismissed, and there are few."""
        if row.state == "unreadable":
            return False
        time = self.times.of(below(self.landing, row.path)) if row.kind == "change" else None
        return horizon is not None and time is not None and time < horizon
