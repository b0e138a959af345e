"""Parts of a landing folder that can hold change files from a given time on; pure.

Flat names and the date sequences that begin with the year sort by time: one listing from a name on. The others
(`MMYYYYDD`, `DDMMYYYY`) don't: a listing for each day. Full-load files sort after digits either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from airflow_gddl.contract.dms import DmsOptions
from spark_jobs.dialects.window import EVERYTHING, Window

_DAY = timedelta(days=1)
_MOST_DAYS = 60
_AFTER_DIGITS = ":"
_DELIMITERS = {"slash": "/", "dash": "-", "underscore": "_", "none": ""}
_SORTED = {"YYYYMMDD": ("%Y", "%m", "%d"), "YYYYMMDDHH": ("%Y", "%m", "%d", "%H"), "YYYYMM": ("%Y", "%m")}
_UNSORTED = {"MMYYYYDD": ("%m", "%Y", "%d"), "DDMMYYYY": ("%d", "%m", "%Y")}


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
    if partition in _UNSORTED and end - start > _MOST_DAYS * _DAY:
        return EVERYTHING
    found = [_flat(since)] if flat else []
    if partition in _SORTED:
        return (*found, Window(start_after=f"{_folder(options, _SORTED[partition], start)}/{_name(start)}"))
    days = (Window(folder=_folder(options, _UNSORTED[partition], day)) for day in _days(start, end))
    return (*found, *days, Window(start_after=_AFTER_DIGITS))


def _flat(since: datetime) -> Window:
    return Window(start_after=_name(since))


def _name(time: datetime) -> str:
    """Whole seconds: sorts before every name of that second, however many digits follow."""
    return f"{time:%Y%m%d-%H%M%S}"


def _folder(options: DmsOptions, parts: tuple[str, ...], time: datetime) -> str:
    return _DELIMITERS[options.date_delimiter].join(f"{time:{part}}" for part in parts)


def _days(start: datetime, end: datetime) -> Iterator[datetime]:
    for number in range((end.date() - start.date()).days + 1):
        yield start + number * _DAY
