"""Options of the dialect `dms`: how AWS DMS was configured to write its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from airflow_gddl.contract.table_spec import STRICT

DatePartition = Literal["none", "YYYYMMDD", "YYYYMMDDHH", "YYYYMM", "MMYYYYDD", "DDMMYYYY"]
DateDelimiter = Literal["slash", "dash", "underscore", "none"]
DATE_DELIMITERS: Mapping[DateDelimiter, str] = {"slash": "/", "dash": "-", "underscore": "_", "none": ""}
DATES_IN_ORDER: Mapping[DatePartition, tuple[str, ...]] = {
    "YYYYMMDD": ("%Y", "%m", "%d"),
    "YYYYMMDDHH": ("%Y", "%m", "%d", "%H"),
    "YYYYMM": ("%Y", "%m"),
}
"""Date partitions whose folders sort by time, as formats of `strftime`."""
DATES_OUT_OF_ORDER: Mapping[DatePartition, tuple[str, ...]] = {
    "MMYYYYDD": ("%m", "%Y", "%d"),
    "DDMMYYYY": ("%d", "%m", "%Y"),
}
TOTAL_ORDER = ("AR_H_CHANGE_SEQ", "transact_seq")
"""Columns that may order changes; the first that exists is used."""
COMMIT_TIMES = ("AR_H_COMMIT_TIMESTAMP", "AR_H_TIMESTAMP", "dms_timestamp")
"""Columns that hold the commit time, where the row names none."""


@dataclass(frozen=True, kw_only=True)
class DmsOptions:
    """Defaults are those of DMS; set only what the task's settings change."""

    __pydantic_config__ = STRICT

    date_partition: DatePartition = "none"
    """`DatePartitionSequence`, with `DatePartitionEnabled`; optional, limits listings."""
    date_delimiter: DateDelimiter = "slash"
    """`DatePartitionDelimiter`."""
    op_column: str = "Op"
    """Column that holds the operation."""
    timestamp_column: str | None = None
    """`TimestampColumnName`: the commit time. Null: recognised by its usual names."""
    missing_op: Literal["quarantine", "insert"] = "quarantine"
    """Operation of changes that state none (`CdcInsertsOnly` without `IncludeOpForFullLoad`)."""
    csv_header: bool = False
    """`AddColumnName`: the first line of a CSV file holds the names."""
    csv_columns: tuple[str, ...] = ()
    """Names of the source columns in order, for CSV without a header; the operation, if any, comes before them."""
    csv_delimiter: str = ","
    """`CsvDelimiter`."""
    csv_null: str = "NULL"
    """`CsvNullValue`; an empty unquoted field is null too."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Column to SQL type (`decimal(12,2)`, `boolean`, ...) for values that come as text; others keep their type."""
    lookback: str = "7d"
    """How far behind the newest change file a run over many files lists for late files; once a day all are listed."""
    missing_folder: Literal["report", "empty", "ignore"] = "report"
    """Meaning of a missing folder: a warning, an empty table, or no new files."""
    verify_connection: str | None = None
    """Name of the connection to the source that `gddl verify` compares with; null: none. Never its content."""


def date_folder(partition: DatePartition, delimiter: DateDelimiter, time: datetime) -> str:
    """Folder of change files that were written at `time`; empty for `none`."""
    parts = (*DATES_IN_ORDER.get(partition, ()), *DATES_OUT_OF_ORDER.get(partition, ()))
    return DATE_DELIMITERS[delimiter].join(time.strftime(part) for part in parts)
