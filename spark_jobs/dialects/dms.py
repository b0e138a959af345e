"""AWS DMS: rows as parquet or CSV with an operation column.

Flat names and the date sequences that begin with the year sort by time: one listing from a name on. The others
(`MMYYYYDD`, `DDMMYYYY`) don't: a listing for each day. Full-load files sort after digits either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal

from airflow_gddl.contract.dms import (
    COMMIT_TIMES,
    DATES_IN_ORDER,
    DATES_OUT_OF_ORDER,
    TOTAL_ORDER,
    DmsOptions,
    date_folder,
)
from airflow_gddl.contract.dms_names import classify
from airflow_gddl.contract.file_names import Names
from spark_jobs.dialects.base import Dialect, InputOpener
from spark_jobs.dialects.probe import probe
from spark_jobs.dialects.probed import Probed
from spark_jobs.dialects.window import EVERYTHING, Window
from spark_jobs.plan.files import PlannedFile

_DAY = timedelta(days=1)
_MOST_DAYS = 60
_AFTER_DIGITS = ":"


@dataclass(frozen=True)
class DmsDialect(Dialect):
    """See `Dialect`."""

    options: DmsOptions

    title = "DMS"
    total_order = TOTAL_ORDER

    def classify(self, relative_path: str) -> Names | None:
        return classify(relative_path)

    def probe(self, storage: InputOpener, file: PlannedFile) -> Probed:
        return probe(storage, file, self.options)

    @property
    def op_column(self) -> str:
        return self.options.op_column

    @cached_property
    def commit_times(self) -> Sequence[str]:
        named = self.options.timestamp_column
        return ((named,) if named else ()) + COMMIT_TIMES

    @property
    def missing_op(self) -> Literal["quarantine", "insert"]:
        return self.options.missing_op

    def is_technical(self, column: str) -> bool:
        return column.lower().startswith("ar_h_")

    def windows(self, cursor: str, since: datetime, until: datetime) -> tuple[Window, ...]:
        return windows(self.options, cursor, since, until)


def windows(options: DmsOptions, cursor: str, since: datetime, until: datetime) -> tuple[Window, ...]:
    """Listings that find every change file whose name's time is from `since` on, and the folder's own full-load files.

    Args:
        cursor: relative path of a change file; shows a layout that the options don't state.
        until: a time after which no file has been written, in any time zone once a day is added.
    """
    partition = options.date_partition
    flat = "/" not in cursor
    if partition == "none":
        return (_flat(since),) if flat else EVERYTHING
    # A folder's date may be in another time zone than the names in it: a day earlier or later.
    start, end = since - _DAY, until + _DAY
    if partition in DATES_OUT_OF_ORDER and end - start > _MOST_DAYS * _DAY:
        return EVERYTHING
    found = [_flat(since)] if flat else []
    if partition in DATES_IN_ORDER:
        return (*found, Window(start_after=f"{_folder(options, start)}/{_name(start)}"))
    days = (Window(folder=_folder(options, day)) for day in _days(start, end))
    return (*found, *days, Window(start_after=_AFTER_DIGITS))


def _flat(since: datetime) -> Window:
    return Window(start_after=_name(since))


def _name(time: datetime) -> str:
    """Whole seconds: sorts before every name of that second, however many digits follow."""
    return f"{time:%Y%m%d-%H%M%S}"


def _folder(options: DmsOptions, time: datetime) -> str:
    return date_folder(options.date_partition, options.date_delimiter, time)


def _days(start: datetime, end: datetime) -> Iterator[datetime]:
    for number in range((end.date() - start.date()).days + 1):
        yield start + number * _DAY
