"""The time in the name of a change file, `20240131-235959123.parquet`: AWS DMS names its files so, and others may.

Names that tell their time keep listings short and let old rows of the ledger go to an archive. Files without such names
are found all the same: by listing everything.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

TIMED = r"(?P<day>\d{8})-(?P<time>\d{6,})(?:[._-].*?)?"
_TIMED = re.compile(rf"{TIMED}\.[A-Za-z]+(?:\.gz)?")
_TIME_DIGITS = 17


def change_time(path: str) -> str | None:
    """The time in a change file's name as digits, `YYYYMMDDHHMMSSfff`, which compare as times; None for other files."""
    match = _TIMED.fullmatch(path.rpartition("/")[2])
    return None if match is None else time_digits(match)


def timed_order(path: str) -> str | None:
    """What sorts change files that tell a time in the order of their changes; None for other files."""
    time = change_time(path)
    return None if time is None else f"{time}/{path}"


def moment(digits: str) -> datetime | None:
    """The time that `change_time` digits stand for, without zone; None when there is no such time."""
    try:
        whole = datetime.strptime(digits[:14], "%Y%m%d%H%M%S")  # noqa: DTZ007  names carry no zone
        return whole + timedelta(milliseconds=int(digits[14:_TIME_DIGITS]))
    except (ValueError, OverflowError):
        return None


def digits_of(time: datetime) -> str:
    """The inverse of `moment`."""
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"


def time_digits(match: re.Match[str]) -> str:
    """Of a match of `TIMED`."""
    return (match["day"] + match["time"]).ljust(_TIME_DIGITS, "0")
