"""What the name of a file below a table's landing folder tells; pure.

AWS DMS names full-load files by a hexadecimal counter (`LOAD00000009`, `LOAD0000000A`; under parallel load
`SEGMENT1_LOAD…`, `LOAD_1_…` or in a subfolder each) and change files by time (`20240131-235959123`), in the table's
folder or in date folders. Sources: user guide of AWS DMS, "Using Amazon S3 as a target"; help of Qlik Replicate,
"Amazon S3 target overview".
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Literal

from airflow_gddl.contract.dms import DmsOptions

_EXTENSION = r"\.(?P<format>parquet|csv)(?:\.gz)?"
_SUFFIX = r"(?:[._-].*?)?"
_LOAD = re.compile(
    rf"(?:SEGMENT_?(?P<segment>\d+)_)?LOAD(?:_(?P<part>\d+)_)?(?P<counter>[0-9A-F]+){_SUFFIX}{_EXTENSION}",
    re.IGNORECASE,
)
_CHANGE = re.compile(rf"(?P<day>\d{{8}})-(?P<time>\d{{6,}}){_SUFFIX}{_EXTENSION}", re.IGNORECASE)
_TEMPORARY = re.compile(r".*(~|\.(tmp|temp|crc|part|partial|filepart|swp|_COPYING_)|_\$folder\$)", re.IGNORECASE)
_TIME_DIGITS = 17

FileKind = Literal["load", "change"]
FileFormat = Literal["parquet", "csv"]
Names = tuple[FileKind, FileFormat, tuple[str, ...]]


def classify(relative_path: str, options: DmsOptions) -> Names | None:  # noqa: ARG001  every dialect has this signature
    """Kind, format and order of a file by its path below the landing folder; None for what is no data file.

    Loads are ordered by folder, segment and counter, changes by the time in the name, then by path.
    """
    if is_temporary(relative_path):
        return None
    folder, _, name = relative_path.rpartition("/")
    if match := _CHANGE.fullmatch(name):
        return "change", _format(match), (_digits(match), relative_path)
    if match := _LOAD.fullmatch(name):
        segment = match["segment"] or match["part"] or ""
        return "load", _format(match), (folder, segment.zfill(10), match["counter"].upper().zfill(16), relative_path)
    return None


def is_temporary(relative_path: str) -> bool:
    """Hidden and unfinished files, which no warning should mention."""
    parts = relative_path.split("/")
    return any(part.startswith((".", "_")) for part in parts) or _TEMPORARY.fullmatch(parts[-1]) is not None


def change_time(path: str) -> str | None:
    """The time in a change file's name as digits, `YYYYMMDDHHMMSSfff`, which compare as times; None for other files."""
    match = _CHANGE.fullmatch(path.rpartition("/")[2])
    return None if match is None else _digits(match)


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


def _digits(match: re.Match[str]) -> str:
    return (match["day"] + match["time"]).ljust(_TIME_DIGITS, "0")


def _format(match: re.Match[str]) -> FileFormat:
    return "csv" if match["format"].lower() == "csv" else "parquet"
