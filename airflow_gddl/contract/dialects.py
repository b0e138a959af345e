"""Registry of dialects: writers of landing files, with their options and readers.

Used by both sides: the Airflow side checks a row's options, the job loads the reader. Classes are named,
not imported, so that neither side loads what it doesn't need. Other packages add theirs by an entry point of the group
`airflow_gddl.dialects`: its name is the dialect's, its value `module:attribute` of a `Registered` (docs/extending.md).
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, cast

from airflow_gddl.contract.errors import FatalError
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
    lookback: str = "7d"
    """How far behind the newest folder each run lists for late files; needs `path_format`, else all are listed."""
    missing_folder: Literal["report", "empty", "ignore"] = "report"
    """Meaning of a missing folder: a warning, an empty table, or no new files."""
    verify_connection: str | None = None
    """Name of the connection to the source that `gddl verify` compares with; null: none. Never its content."""


GROUP = "airflow_gddl.dialects"


@dataclass(frozen=True)
class Registered:
    """A dialect by the names of its two classes, `module:Class`.

    Attributes:
        options: class of the row's `options`, a frozen dataclass with defaults, among its fields `types`, `lookback`,
            `missing_folder` and `verify_connection`, as `DmsOptions` has them. Loaded on both sides.
        reading: the subclass of `spark_jobs.dialects.base.Dialect`; loaded only by the job.
    """

    options: str
    reading: str


BUILT_IN: Mapping[str, Registered] = {
    "dms": Registered("airflow_gddl.contract.dialects:DmsOptions", "spark_jobs.dialects.dms:DmsDialect"),
    "debezium": Registered(
        "airflow_gddl.contract.dialects:DebeziumOptions", "spark_jobs.dialects.debezium:DebeziumDialect"
    ),
}


def names() -> tuple[str, ...]:
    """Names that a row's `dialect` may have, built-in ones first."""
    return (*BUILT_IN, *sorted(set(_entry_points()) - set(BUILT_IN)))


def registered(name: str) -> Registered:
    """
    Raises:
        FatalError: `DIALECT_UNKNOWN`, `DIALECT_BROKEN`.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    found = _entry_points().get(name)
    if found is None:
        raise FatalError(
            "DIALECT_UNKNOWN",
            f"no dialect {name!r}; there are {', '.join(names())}",
            remedy="correct `dialect`, or install the package that brings it where the job runs",
        )
    with _told(found.value):
        return cast("Registered", found.load())


def options_class(name: str) -> type[Any]:
    """The class of a dialect's options.

    Raises:
        FatalError: `DIALECT_UNKNOWN`, `DIALECT_BROKEN`.
    """
    return cast("type[Any]", load(registered(name).options))


def load(reference: str) -> Any:
    """Load `module:attribute`.

    Raises:
        FatalError: `DIALECT_BROKEN`.
    """
    module, _, attribute = reference.partition(":")
    with _told(reference):
        return getattr(importlib.import_module(module), attribute)


@contextmanager
def _told(reference: str) -> Iterator[None]:
    """Any error while importing another package's code is reported as `DIALECT_BROKEN`."""
    try:
        yield
    except Exception as error:
        raise FatalError(
            "DIALECT_BROKEN",
            f"the dialect's {reference} can't be loaded: {type(error).__name__}: {error}",
            remedy="fix or reinstall the package that brings it, with what it needs",
        ) from error


def forget() -> None:
    """Discover newly installed packages."""
    _entry_points.cache_clear()


@functools.cache
def _entry_points() -> Mapping[str, importlib.metadata.EntryPoint]:
    return {found.name: found for found in importlib.metadata.entry_points(group=GROUP)}
