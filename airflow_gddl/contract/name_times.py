"""The time in the name of a change file, `20240131-235959123.parquet`: used by AWS DMS and others.

Names with a time limit listings and allow old ledger rows to be archived. Other files are found by full listings.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

TIMED = r"(?P<day>\d{8})-(?P<time>\d{6,})(?:[._-].*?)?"
_TIMED = re.compile(rf"{TIMED}\.[A-Za-z]+(?:\.gz)?")
TIME_DIGITS = 17


def change_time(path: str) -> str | None:
    """The time in a change file's name as digits, `YYYYMMDDHHMMSSfff`, which compare as times; None for other files."""
    match = _TIMED.fullmatch(path.rpartition("/")[2])
    return None if match is None else time_digits(match)


def timed_order(path: str) -> str | None:
    """Sort key of change files with a time, in the order of their changes; None for other files."""
    time = change_time(path)
    return None if time is None else f"{time}/{path}"


def moment(digits: str) -> datetime | None:
    """Parse `change_time` digits to a time without zone; None when they are not a valid time."""
    try:
        whole = datetime.strptime(digits[:14], "%Y%m%d%H%M%S")  # noqa: DTZ007  names carry no zone
        return whole + timedelta(milliseconds=int(digits[14:TIME_DIGITS]))
    except (ValueError, OverflowError):
        return None


def digits_of(time: datetime) -> str:
    """The inverse of `moment`."""
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"


def time_digits(match: re.Match[str]) -> str:
    """Of a match of `TIMED`."""
    return (match["day"] + match["time"]).ljust(TIME_DIGITS, "0")
