"""Dialects: writers of landing files, each with one descriptor, and the options of those of this project.

Used by both sides: the Airflow side checks a row's options and knows technical columns, the job loads the reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from airflow_gddl.contract.extensions import ExtensionPoint
from airflow_gddl.contract.file_names import LOOKBACK
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
    lookback: str = LOOKBACK
    """How far behind the newest change file a run over many files lists for late files; once a day all are listed."""
    missing_folder: Literal["report", "empty", "ignore"] = "report"
    """Meaning of a missing folder: a warning, an empty table, or no new files."""
    verify_connection: str | None = None
    """Name of the connection to the source that `gddl verify` compares with; null: none. Never its content."""


def date_folder(partition: DatePartition, delimiter: DateDelimiter, time: datetime) -> str:
    """Folder of change files that were written at `time`; empty for `none`."""
    parts = (*DATES_IN_ORDER.get(partition, ()), *DATES_OUT_OF_ORDER.get(partition, ()))
    return DATE_DELIMITERS[delimiter].join(time.strftime(part) for part in parts)


@dataclass(frozen=True, kw_only=True)
class DebeziumOptions:
    """Defaults are Debezium's own; set only what the connector's settings change."""

    __pydantic_config__ = STRICT

    unavailable: str = "__debezium_unavailable_value"
    """`unavailable.value.placeholder`: placeholder of a value that the source left out; the stored value is kept."""
    semantic_types: Mapping[str, str] = field(default_factory=dict)
    """Column to Connect type name (`io.debezium.time.MicroTimestamp`, ...), for files without type names."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Column to SQL type (`decimal(12,2)`, `date`, ...) for values that come as text; others keep their type."""
    path_format: str | None = None
    """`path.format` of a sink that makes folders of time (`'year'=YYYY/'month'=MM/'day'=dd`), for shorter listings."""
    log_began: tuple[str, ...] = ()
    """When the source's log was reset (failover, reset, restored backup), ISO 8601: later changes come after all."""
    snapshots: Literal["reload", "merge"] = "reload"
    """Meaning of a snapshot after the first: the whole table, whose rows replace all before; or rows to be merged."""
    lookback: str = LOOKBACK
    """How far behind the newest folder each run lists for late files; needs `path_format`, else all are listed."""
    missing_folder: Literal["report", "empty", "ignore"] = "report"
    """Meaning of a missing folder: a warning, an empty table, or no new files."""
    verify_connection: str | None = None
    """Name of the connection to the source that `gddl verify` compares with; null: none. Never its content."""


@dataclass(frozen=True, kw_only=True)
class LandedColumns:
    """How `gddl onboard` recognises columns in files of the service that are not named as by default.

    Attributes:
        operations: names of the column that holds the operation.
        times: names of the column that holds the commit time, in lower case.
        before_prefixes: prefixes of before images.
        service: further columns that are never the source's.
    """

    operations: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    before_prefixes: tuple[str, ...] = ()
    service: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DialectDescriptor:
    """All that one dialect brings.

    Attributes:
        options: class of the row's `options`, a frozen dataclass with defaults, among its fields `types`, `lookback`,
            `missing_folder` and `verify_connection`, as `DmsOptions` has them. Loaded on both sides.
        reading: the subclass of `spark_jobs.dialects.protocol.Dialect`, which states the roles of columns; loaded only
            by the job.
        technical: columns that the service adds to those of the source: they are not published, and their change alone
            opens no version of a history. A `*` at the end: all names that begin so. Case does not count.
        check: function that yields the problems of `options` (a mapping, with correct types) beyond their types.
        onboarding: null: `gddl onboard` has no rules for its files.
    """

    options: str
    reading: str
    technical: tuple[str, ...]
    check: str | None = None
    onboarding: LandedColumns | None = None


def is_among(column: str, names: Iterable[str]) -> bool:
    """Whether `DialectDescriptor.technical` names the column."""
    found = column.lower()
    return any(found.startswith(n[:-1].lower()) if n.endswith("*") else found == n.lower() for n in names)


DIALECTS = ExtensionPoint(
    "dialect",
    "airflow_gddl.dialects",
    DialectDescriptor,
    {
        "dms": DialectDescriptor(
            options="airflow_gddl.contract.dialects:DmsOptions",
            reading="spark_jobs.dialects.dms:DmsDialect",
            technical=(*TOTAL_ORDER, *COMMIT_TIMES, "AR_H_*"),
            check="airflow_gddl.contract.checks:dms_problems",
            onboarding=LandedColumns(
                operations=(
                    "operation", "cdc_operation", "dml_type", "op_type", "__op", "AR_H_OPERATION", "AR_H_CHANGE_OPER",
                ),
                times=(
                    "commit_timestamp", "commit_time", "commit_ts", "committed_at", "dms_commit_timestamp",
                    "cdc_timestamp", "dms_ts",
                ),
                before_prefixes=("BI_", "bi_", "BEFORE_", "before_image_"),
                service=("Op", "AR_H_OPERATION", "AR_H_STREAM_POSITION", "AR_H_CHANGE_OPER"),
            ),
        ),
        "debezium": DialectDescriptor(
            options="airflow_gddl.contract.dialects:DebeziumOptions",
            reading="spark_jobs.dialects.debezium:DebeziumDialect",
            technical=("_dbz_*",),
            check="airflow_gddl.contract.checks:debezium_problems",
        ),
    },
    unknown_code="DIALECT_UNKNOWN",
    broken_code="DIALECT_BROKEN",
)  # fmt: skip
