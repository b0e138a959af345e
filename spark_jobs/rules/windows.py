"""Windows of time in which the source and the lake are compared (docs/repair.md, Windows). Pure.

A row belongs to the window of its time column in the source; a row that the source no longer has, to that of the
replica's. So an update that never came counts where it was made, not where its key was changed before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.actions import WindowLength
from airflow_gddl.contract.names import delivered_name

STEPS: Mapping[WindowLength, timedelta] = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
TIME_COLUMNS = (
    "updated_at", "modified_at", "changed_at", "last_modified", "last_updated", "last_update", "update_time",
    "modified_date", "updated_on", "updated",
)  # fmt: skip
"""Names under which sources keep when a row was changed last; the first that the table has."""
WindowState = Literal["ok", "missing", "different", "extra", "unsettled", "open", "not_compared"]


def time_column(columns: Iterable[str], wanted: str) -> str | None:
    """The column to compare by, as it is written; None: none. Case does not count.

    Args:
        wanted: the user's choice; empty: by its name.
    """
    there = {delivered_name(name).lower(): name for name in columns}
    return next((there[name] for name in ((wanted.lower(),) if wanted else TIME_COLUMNS) if name in there), None)


def changed_since(rows: pa.Table, column: str, moment: datetime) -> pa.Table:
    """Rows with a time at or after a moment, which has a zone."""
    times = rows.column(column)
    bound = moment if times.type.tz else _plain(moment)
    return rows.filter(pc.greater_equal(times, pa.scalar(bound, times.type)))


@dataclass(frozen=True, kw_only=True)
class Window:
    """One window, from `start` on and before `end`, ISO 8601 UTC.

    Attributes:
        source_rows, rows: of the source and of the replica with a time in it.
        missing, different: keys that the replica lacks, or has with other values; `extra`: that the source lacks.
        unsettled: differing keys, not counted as such, whose changes may be on their way.
        files: ingested files with commits in it, by the ledger.
        state: `open`: it is younger than changes may take. `extra`: deletes are missing, whose time is unknown: after
            that of the row. `not_compared`: nothing of the source tells the time of its rows.
    """

    start: str
    end: str
    source_rows: int = 0
    rows: int = 0
    missing: int = 0
    different: int = 0
    extra: int = 0
    unsettled: int = 0
    files: int = 0
    state: WindowState = "not_compared"

    @property
    def is_wrong(self) -> bool:
        return self.state in ("missing", "different", "extra")


@dataclass(frozen=True)
class Grid:
    """Windows of one length from `start` on, a whole hour or day of UTC; the last holds all later times.

    Times are naive, in UTC.
    """

    start: datetime
    step: timedelta
    count: int

    @classmethod
    def of(cls, since: datetime, until: datetime, step: timedelta) -> Grid:
        """Those that hold these times; both are aware."""
        first, last = _plain(since), _plain(until)
        start = first.replace(hour=first.hour if step < STEPS["day"] else 0, minute=0, second=0, microsecond=0)
        return cls(start, step, max(1, -(-(last - start) // step)))

    def number(self, moment: object) -> int | None:
        """Number of the window that holds a row's time; None: the time is before all windows, or the row has none.

        Args:
            moment: a time, or ISO 8601 text; without a zone UTC.
        """
        value = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        if not isinstance(value, datetime) or (at := _plain(value)) < self.start:
            return None
        return min(self.count - 1, (at - self.start) // self.step)

    def bounds(self, number: int) -> tuple[datetime, datetime]:
        start = (self.start + number * self.step).replace(tzinfo=UTC)
        return start, start + self.step

    def windows(self) -> list[Window]:
        return [Window(start=start.isoformat(), end=end.isoformat())
                for start, end in map(self.bounds, range(self.count))]  # fmt: skip


def _plain(moment: datetime) -> datetime:
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def judged(window: Window, *, closed: bool) -> Window:
    """With its state, of what was compared.

    Args:
        closed: all its changes would have come.
    """
    if not closed:
        return replace(window, state="open")
    holds: tuple[tuple[WindowState, int], ...] = (
        ("missing", window.missing), ("different", window.different), ("extra", window.extra),
        ("unsettled", window.unsettled),
    )  # fmt: skip
    return replace(window, state=next((state for state, count in holds if count), "ok"))


def proven_until(windows: Sequence[Window]) -> str | None:
    """End of the last window before which, and in which, nothing differs; None: there is none."""
    until = None
    for window in windows:
        if window.state != "ok":
            break
        until = window.end
    return until


def missing_from(windows: Sequence[Window]) -> str | None:
    """Start of the first window that is wrong; None: none is."""
    return next((window.start for window in windows if window.is_wrong), None)


def with_files(windows: Sequence[Window], grid: Grid, spans: Iterable[tuple[str, str]]) -> list[Window]:
    """With the number of files that have commits in each window.

    Args:
        spans: least and greatest commit time of each file, ISO 8601.
    """
    counts = [0] * grid.count
    end = grid.bounds(grid.count - 1)[1]
    for least, greatest in spans:
        last = grid.number(greatest)
        if last is None or datetime.fromisoformat(least) >= end:
            continue
        for number in range(grid.number(least) or 0, last + 1):
            counts[number] += 1
    return [replace(window, files=count) for window, count in zip(windows, counts, strict=True)]
