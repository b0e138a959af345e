"""Watermarks of large landing folders, so that a poll lists only files that can be new.

A watermark stands for all files up to a name. Names of change files that state their time sort by it, so that new files
come after the watermark, except those later than `lookback`: a full listing, once a day and for each manual run, finds
them. A job lists by the same rule. Folders with other names, or with few files, have no watermark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.name_times import change_time, digits_of, moment
from airflow_gddl.stores import Storage, read_document

LISTED_IN_PART = 10_000
"""Files above which only a part of a folder is listed; a job does the same, see `spark_jobs.discovery.listing`."""
SWEPT_EVERY = timedelta(days=1)
LOOKBACK = timedelta(days=7)
"""Default of the dialects' `lookback`; a row may set a longer one."""


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """Watermark of one table.

    Attributes:
        after: name of the last file that it covers, below the table's folder.
        files, total: number and sum of the digests of the files up to it.
        swept: when the folder was listed in full, ISO 8601.
    """

    after: str
    files: int
    total: int
    swept: str

    def holds(self, now: datetime) -> bool:
        """Whether the next full listing is not yet due; a time in the future (the clock was set back) counts as due."""
        return timedelta(0) <= now - datetime.fromisoformat(self.swept) < SWEPT_EVERY


@dataclass(frozen=True, kw_only=True)
class Watermarks:
    """Watermarks of a pipeline's tables, by name."""

    tables: Mapping[str, Watermark] = field(default_factory=dict)
    format: int = 1


def watermark_of(digests: Mapping[str, int], lookback: timedelta, swept: str) -> Watermark | None:
    """The watermark after a full listing; null where the next poll has to list everything, too.

    Args:
        digests: of all files, by name.
        lookback: how far behind the newest change file later files may arrive.
    """
    if len(digests) <= LISTED_IN_PART:
        return None
    newest = max((time for name in digests if (time := _sorting_time(name)) is not None), default="")
    moment_ = moment(newest)
    if moment_ is None:
        return None
    limit, last, count, total = digits_of(moment_ - max(lookback, LOOKBACK)), "", 0, 0
    for name in sorted(digests):
        time = _sorting_time(name)
        if time is None or time >= limit:
            break
        last, count, total = name, count + 1, total + digests[name]
    return Watermark(after=last, files=count, total=total, swept=swept) if last else None


def read(store: Storage, lake: str, dag_id: str) -> Watermarks:
    """Stored watermarks of a DAG; empty when nothing is stored, or when it is damaged.

    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    return read_document(store, _place(lake, dag_id), Watermarks) or Watermarks()


def write(store: Storage, lake: str, dag_id: str, watermarks: Watermarks) -> None:
    """Store the watermarks of a DAG.

    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    store.write(_place(lake, dag_id), to_json(watermarks).encode())


def held(watermarks: Watermarks, tables: Iterable[str], now: datetime) -> dict[str, Watermark]:
    """Watermarks of the tables whose next full listing is not yet due, by table."""
    return {name: found for name in tables if (found := watermarks.tables.get(name)) is not None and found.holds(now)}


def _sorting_time(name: str) -> str | None:
    """The time in a name if names like it sort by their times: flat, or in folders of year, month, day and the like."""
    time = change_time(name)
    folders = re.sub(r"\D", "", name.rpartition("/")[0])
    return time if time is not None and name[0].isdigit() and time.startswith(folders) else None


def _place(lake: str, dag_id: str) -> str:
    return join(lake, STATE, "airflow", "watermarks", f"{dag_id}.json")
