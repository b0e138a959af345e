"""File names of sinks; pure.

- Confluent's S3 sink: `<topic>+<partition>+<offset>.json`, below `partition=0` or folders of time.
- Aiven's: `<topic>-<partition>-<offset>`, with `.gz` and the suffix of its template.
- Lenses' and others: `<offset>.json` below folders of topic and partition.
- Any other name that ends in `.json`, `.jsonl`, `.ndjson` or `.parquet`: ordered by its path.
"""

from __future__ import annotations

import re

from airflow_gddl.contract.file_names import Names, is_temporary

_ENDING = r"(?:\.(?:snappy|gz|zstd))?\.(?:jsonl?|ndjson|parquet)(?:\.gz)?"
_OFFSET = re.compile(rf"(?:.*[+-](?P<partition>\d+)[+-])?(?P<offset>\d+)(?:{_ENDING}|\.gz)?", re.IGNORECASE)
_AIVEN = re.compile(r".+-\d+-\d+(?:\.gz)?")
_DATA = re.compile(rf".*{_ENDING}", re.IGNORECASE)
_BESIDE = re.compile(r".*\.(?:keys|headers)(?:\.\w+)+", re.IGNORECASE)


def classify(relative_path: str) -> Names | None:
    """Kind, format and order of a file by its path below the landing folder; None unless it is a data file.

    The order is that of the Kafka offsets in the names, which is the order of the changes of each key.
    """
    name = relative_path.rpartition("/")[2]
    if is_beside(relative_path) or not (_DATA.fullmatch(name) or _AIVEN.fullmatch(name)):
        return None
    found = _OFFSET.fullmatch(name)
    offset, partition = (found["offset"], found["partition"] or "") if found else ("", "")
    order = (offset.zfill(20), partition.zfill(10), relative_path)
    return "change", "parquet" if ".parquet" in name.lower() else "json", order


def offset_order(path: str) -> str | None:
    """Sort key by the Kafka offset in a file's name; None for other files."""
    found = _OFFSET.fullmatch(path.rpartition("/")[2])
    return None if found is None else f"{found['offset'].zfill(20)}/{(found['partition'] or '').zfill(10)}/{path}"


def partition_of(path: str) -> str:
    """The topic's partition in a file's name; empty: its name has none."""
    found = _OFFSET.fullmatch(path.rpartition("/")[2])
    return "" if found is None else found["partition"] or ""


def is_beside(relative_path: str) -> bool:
    """Hidden and unfinished files, and separate files of sinks with the keys and headers of records."""
    return is_temporary(relative_path) or _BESIDE.fullmatch(relative_path.rpartition("/")[2]) is not None
