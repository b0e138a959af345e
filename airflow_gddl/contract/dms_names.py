"""Parses names of landing files of AWS DMS; pure.

AWS DMS names full-load files by a hexadecimal counter (`LOAD00000009`, `LOAD0000000A`; under parallel load
`SEGMENT1_LOAD…`, `LOAD_1_…` or in a subfolder each) and change files by time (`20240131-235959123`), in the table's
folder or in date folders. Sources: user guide of AWS DMS, "Using Amazon S3 as a target"; help of Qlik Replicate,
"Amazon S3 target overview".
"""

from __future__ import annotations

import re

from airflow_gddl.contract.file_names import FileFormat, Names, is_temporary
from airflow_gddl.contract.name_times import TIMED, time_digits

_EXTENSION = r"\.(?P<format>parquet|csv)(?:\.gz)?"
_SUFFIX = r"(?:[._-].*?)?"
_LOAD = re.compile(
    rf"(?:SEGMENT_?(?P<segment>\d+)_)?LOAD(?:_(?P<part>\d+)_)?(?P<counter>[0-9A-F]+){_SUFFIX}{_EXTENSION}",
    re.IGNORECASE,
)
_CHANGE = re.compile(rf"{TIMED}{_EXTENSION}", re.IGNORECASE)


def classify(relative_path: str) -> Names | None:
    """Kind, format and order of a file by its path below the landing folder; None if it is not a data file.

    Loads are ordered by folder, segment and counter, changes by the time in the name, then by path.
    """
    if is_temporary(relative_path):
        return None
    folder, _, name = relative_path.rpartition("/")
    if match := _CHANGE.fullmatch(name):
        return "change", _format(match), (time_digits(match), relative_path)
    if match := _LOAD.fullmatch(name):
        segment = match["segment"] or match["part"] or ""
        return "load", _format(match), (folder, segment.zfill(10), match["counter"].upper().zfill(16), relative_path)
    return None


def _format(match: re.Match[str]) -> FileFormat:
    return "csv" if match["format"].lower() == "csv" else "parquet"
