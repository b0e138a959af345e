"""Kinds of parts that packages can add, dialects and runners: one descriptor each, found by an entry point
(docs/extending.md).

Descriptors name classes and functions, `module:attribute`, and import none, so that neither side loads what it doesn't
need, and no entry point is searched for a part of this project. Here are also the descriptors of dialects, and the
kinds of catalogs, which both sides use; those of runners are with them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from airflow_gddl.contract.basics import STRICT
from airflow_gddl.contract.codes import (
    CATALOG_DENIED,
    CATALOG_REFUSED,
    CATALOG_UNREACHABLE,
    DIALECT_BROKEN,
    DIALECT_UNKNOWN,
)
from airflow_gddl.contract.codes.code import Code
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.file_names import LOOKBACK
from airflow_gddl.contract.names import rendered
from airflow_gddl.contract.table_spec import TableSpec

D = TypeVar("D")


class ProbeSkippedError(Exception):
    """A check of `gddl check` that is not needed, or can't be made from here; the text says why."""


@dataclass(frozen=True)
class ExtensionPoint(Generic[D]):
    """The parts of one kind.

    Attributes:
        what: the kind, for messages, e.g. `dialect`.
        group: of the entry points: a name is the part's, a value `module:attribute` of a `descriptor`.
        descriptor: class of the descriptors.
        built_in: descriptors of this project, by name.
        unknown_code, broken_code: of the errors of a name that nothing brings, and of a part that can't be loaded.
        referenced: `module:attribute` of further descriptors of this project, imported when they are asked for.
    """

    what: str
    group: str
    descriptor: type[D]
    built_in: Mapping[str, D]
    unknown_code: Code
    broken_code: Code
    referenced: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Names that metadata may use, built-in ones first."""
        return (*self.built_in, *self.referenced, *sorted(self.installed()))

    def is_removed(self, name: str) -> bool:
        """Whether this installation lacks the package of a part of this project; `get` says so."""
        module = self.referenced.get(name, "").partition(":")[0]
        try:
            return bool(module) and importlib.util.find_spec(module) is None
        except ModuleNotFoundError:
            return True

    def get(self, name: str) -> D:
        """The extension with a name: built in, referenced by its path, or installed by another package.

        Raises:
            MetadataError: `unknown_code`.
            FatalError: `broken_code`.
        """
        if name in self.built_in:
            return self.built_in[name]
        reference = self.referenced.get(name) or self._installed_reference(name)
        loaded = self.load(reference)
        with self._loading(reference):
            if not isinstance(loaded, self.descriptor):
                raise TypeError(f"it is a {type(loaded).__name__}, not a {self.descriptor.__name__}")
            return loaded

    def installed(self) -> Mapping[str, importlib.metadata.EntryPoint]:
        """Entry points of other packages. One with the name of a part of this project is ignored."""
        project_names = {*self.built_in, *self.referenced}
        return {name: point for name, point in _entry_points(self.group).items() if name not in project_names}

    def _installed_reference(self, name: str) -> str:
        point = self.installed().get(name)
        if point is None:
            raise MetadataError(
                self.unknown_code,
                f"no {self.what} {name!r}; there are {', '.join(self.names())}",
                remedy=f"correct the name of the {self.what}, or install the package that brings it where it is used",
            )
        return point.value

    def load(self, reference: str) -> Any:
        """Load `module:attribute` of a descriptor.

        Raises:
            FatalError: `broken_code`.
        """
        module, _, attribute = reference.partition(":")
        with self._loading(reference):
            return getattr(importlib.import_module(module), attribute)

    @contextmanager
    def _loading(self, reference: str) -> Iterator[None]:
        """Any error while importing another package's code is reported as `broken_code`."""
        try:
            yield
        except Exception as error:
            raise FatalError(
                self.broken_code,
                f"the {self.what}'s {reference} can't be loaded: {type(error).__name__}: {error}",
                remedy="fix or reinstall the package that brings it, with what it needs",
            ) from error


@functools.cache
def part(module: str, name: str) -> Any:
    """What a module of this package has under a name; None: this installation lacks the module."""
    return getattr(importlib.import_module(module), name) if importlib.util.find_spec(module) else None


@functools.cache
def _entry_points(group: str) -> Mapping[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=group)}


def forget_entry_points() -> None:
    """Discover newly installed packages."""
    _entry_points.cache_clear()


TableKind = Literal["replica", "history", "changes", "errors"]
ICEBERG_KINDS: tuple[TableKind, ...] = ("replica", "history")
"""Tables that have Iceberg metadata under `iceberg`."""
TOKEN_PREFIX = "GDDL_CATALOG_"  # noqa: S105 - prefix of variable names
"""Prefix of variables that may hold a catalog's token: metadata may name no other secret of the process."""
_GLUE_DENIED = ("AccessDenied", "UnauthorizedOperation", "LakeFormation", "GlueEncryption")
_GLUE_PASSING = (
    *("Throttl", "Internal", "ServiceUnavailable", "OperationTimeout", "RequestLimit", "TooManyRequests"),
    *("ExpiredToken", "UnrecognizedClient", "InvalidSignature", "InvalidClientTokenId"),
)
"""Glue is down, or the credentials are to be renewed."""


CatalogKind = Literal["hive", "glue", "unity", "iceberg_rest", "iceberg_glue"]


@dataclass(frozen=True, kw_only=True)
class CatalogSpec:
    """A catalog of `gddl.yaml`. See docs/catalogs.md for the fields that each kind needs."""

    __pydantic_config__ = STRICT

    kind: CatalogKind
    """`hive` (a Hive metastore, by the job's Spark), `glue` (AWS Glue Data Catalog), `unity` (Unity Catalog),
    `iceberg_rest` (Iceberg's REST protocol), or `iceberg_glue`."""
    database: str = "{schema}"
    """Name of the database (Unity: schema); placeholders `{schema}` and `{source}`."""
    table: str = "{table}"
    """Name of the replica; placeholders `{schema}`, `{source}` and `{table}` (without the schema)."""
    tables: tuple[TableKind, ...] = ("replica", "history")
    """Delta tables of a row to register; names other than the replica's get a suffix such as `__history`."""
    timeout: str = "5s"
    """Timeout of a request to the catalog."""
    region: str | None = None
    """`glue`, `iceberg_glue`: AWS region; null: from the environment."""
    endpoint: str | None = None
    """`glue`, `iceberg_glue`: endpoint URL; null: AWS's default."""
    catalog_id: str | None = None
    """`glue`, `iceberg_glue`: AWS account of the catalog; null: that of the job's credentials."""
    url: str | None = None
    """`unity`: the server, e.g. `https://unity.example.com:8080`."""
    catalog_name: str | None = None
    """`unity`: the catalog that holds the schemas; it must exist."""
    token_env: str | None = None
    """`unity`: environment variable of the job that holds the token, `GDDL_CATALOG_...`; null: no token is sent."""
    uri: str | None = None
    """`iceberg_rest`: the server, e.g. `https://catalog.example.com`. `hive`: e.g. `thrift://metastore:9083`; null:
    Spark's configuration (`hive-site.xml`, or the platform's)."""
    warehouse: str | None = None
    """`iceberg_rest`: the warehouse to ask the server for; null: its default."""
    connection: str | None = None
    """`iceberg_rest`: Airflow connection with the credentials, `GDDL_CATALOG_...` in any case; null: none are sent."""


@dataclass(frozen=True, kw_only=True)
class CatalogDescriptor:
    """What differs by the kind of a catalog.

    Attributes:
        port: reference of a function of a `CatalogSpec` and a
            `spark_jobs.rooms.catalogs.catalog_port.CatalogContext` that gives the `CatalogPort`; loaded only by
            the job.
        names: regular expression of the names that it can hold, and the same for messages.
        fields: fields of `CatalogSpec` that belong to this kind; `needed`: those among them that it needs.
        is_iceberg: it holds Iceberg tables, so rows that name it need `iceberg`.
        refused_versions: of Iceberg's format, in which it can't be committed to.
    """

    port: str
    names: tuple[str, str]
    fields: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    is_iceberg: bool = False
    refused_versions: tuple[int, ...] = ()


_OF_ATHENA = "[a-z0-9_]{1,255}", "1 to 255 letters a-z, digits and _, as Athena reads them"
_OF_PATHS = r"[^\x00-\x20\x7f./]{1,255}", "1 to 255 characters without blanks, `.` and `/`"
CATALOGS: Mapping[CatalogKind, CatalogDescriptor] = {
    "hive": CatalogDescriptor(
        port="spark_jobs.rooms.catalogs.hive_catalog:HiveCatalog",
        names=("[a-z0-9_]{1,128}", "1 to 128 letters a-z, digits and _"),
        fields=("uri",),
    ),
    "glue": CatalogDescriptor(
        port="spark_jobs.rooms.catalogs.glue_catalog:GlueCatalog",
        names=_OF_ATHENA,
        fields=("region", "endpoint", "catalog_id"),
    ),
    "unity": CatalogDescriptor(
        port="spark_jobs.rooms.catalogs.unity_catalog:UnityCatalog",
        names=_OF_PATHS,
        fields=("url", "catalog_name", "token_env"),
        needed=("url", "catalog_name"),
    ),
    "iceberg_rest": CatalogDescriptor(
        port="spark_jobs.rooms.catalogs.iceberg_catalog:iceberg_rest_catalog",
        names=_OF_PATHS,
        fields=("uri", "warehouse", "connection"),
        needed=("uri",),
        is_iceberg=True,
    ),
    "iceberg_glue": CatalogDescriptor(
        port="spark_jobs.rooms.catalogs.iceberg_catalog:iceberg_glue_catalog",
        names=_OF_ATHENA,
        fields=("region", "endpoint", "catalog_id"),
        is_iceberg=True,
        refused_versions=(3,),
    ),
}


@dataclass(frozen=True, order=True)
class EntryName:
    """Name of a table in a catalog; both parts are in lower case."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


def entry_name(catalog: CatalogSpec, spec: TableSpec, kind: TableKind = "replica") -> EntryName:
    """The name of one of a row's tables. Names compare without case in every catalog, so they are in lower case."""
    database, table = (rendered(text, spec.source, spec.table).lower() for text in (catalog.database, catalog.table))
    return EntryName(database, table if kind == "replica" else f"{table}__{kind}")


def code_of_status(status: int) -> Code:
    """Code of an HTTP status from 300 on that Unity Catalog answers."""
    if status in (401, 403):
        return CATALOG_DENIED
    return CATALOG_UNREACHABLE if status == 429 or status >= 500 else CATALOG_REFUSED


def code_of_glue(error: str, message: str) -> Code:
    """Code of an error that Glue answers, by AWS's own code and message."""
    if error.startswith(_GLUE_PASSING):
        return CATALOG_UNREACHABLE
    is_denied = error.startswith(_GLUE_DENIED) or "not authorized" in message.lower()
    return CATALOG_DENIED if is_denied else CATALOG_REFUSED


def token_of(catalog: CatalogSpec, environ: Mapping[str, str]) -> str | None:
    """The token to send; empty: none is sent; None: its variable holds no token that can be sent."""
    if catalog.token_env is None:
        return ""
    token = environ.get(catalog.token_env, "").strip()
    return token if token and token.isascii() and token.isprintable() else None


def name_fault(catalog: CatalogDescriptor, name: EntryName) -> str:
    """Why a catalog of this kind can't hold the name; empty when it can."""
    form, shown = catalog.names
    bad = next((part for part in (name.database, name.table) if not re.fullmatch(form, part)), None)
    return "" if bad is None else f"{bad!r} is not {shown}"


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
    date_partition_timezone: str | None = None
    """`DatePartitionTimezone`, in which names of change files are too; null: UTC, or one that is not stated."""
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
    csv_added: tuple[str, ...] = ()
    """Those of `csv_columns` that were added at the source later, oldest first: lines from before lack them."""
    csv_delimiter: str = ","
    """`CsvDelimiter`; `\\xHH` stands for the character of this number, as in `csv_row_delimiter`."""
    csv_null: str = "NULL"
    """`CsvNullValue`; an empty field is null where this is the empty text, else it is the empty text."""
    csv_no_sup: str | None = "NOT_SUPPLIED"
    """`CsvNoSupValue`: what updates have in place of a column that is not logged; the stored value is kept."""
    csv_row_delimiter: str = "\n"
    """`CsvRowDelimiter`: other line breaks are part of a field."""
    csv_quotes: bool | None = None
    """`Rfc4180`; false: a quotation mark is a character like any other. Null: true, and files that look otherwise are
    refused."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Column to SQL type (`decimal(12,2)`, `boolean`, ...) for values that come as text; others keep their type."""
    lookback: str = LOOKBACK
    """How far behind the newest change file a run over many files lists for late files; once a day all are listed."""
    missing_folder: Literal["report", "empty", "ignore"] = "report"
    """Meaning of a missing folder: a warning, an empty table, or no new files."""
    verify_connection: str | None = None
    """Name of the connection to the source that `gddl verify` compares with; null: none. Never its content."""
    path_format: str | None = None
    """Folder of a snapshot below the table's, `'dt='yyyy-MM-dd`; for `mode: snapshots` alone."""
    complete: str = "_SUCCESS"
    """What shows that a snapshot is complete: the name of a file in its folder, a number of files, or `settle`."""

    def __post_init__(self) -> None:
        for name in ("csv_delimiter", "csv_row_delimiter"):
            object.__setattr__(self, name, unescaped(getattr(self, name)))


_ESCAPE = re.compile(r"\\x([0-7][0-9A-Fa-f])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def unescaped(delimiter: str) -> str:
    """A delimiter with characters in place of their numbers, `\\x01`: metadata hold no control characters."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), delimiter)


def escaped(delimiter: str) -> str:
    """A delimiter as metadata may hold it; tabs and line breaks stay."""
    return "".join(f"\\x{ord(one):02x}" if _CONTROL.match(one) and one not in "\t\r\n" else one for one in delimiter)


def with_defaults_of_mode(spec: TableSpec) -> dict[str, Any]:
    """The row's options, with those defaults that its mode changes: DMS writes no exports, and what does leaves fields
    of CSV empty where they are null.
    """
    exported = {"csv_null": ""} if spec.mode == "snapshots" and spec.dialect == "dms" else {}
    return {**exported, **spec.options}


def date_folder(partition: DatePartition, delimiter: DateDelimiter, time: datetime) -> str:
    """Folder of change files that were written at `time`; empty for `none`."""
    parts = (*DATES_IN_ORDER.get(partition, ()), *DATES_OUT_OF_ORDER.get(partition, ()))
    return DATE_DELIMITERS[delimiter].join(time.strftime(part) for part in parts)


ConnectorName = Literal["postgresql", "mysql", "sqlserver", "oracle", "mongodb"]
PartitionDropped = Literal["report", "keep"]
PLACEHOLDER = "__gddl_unavailable_value_5d1c9e0b7f4a4c38a6e2d8f013b97c64"
"""What events of a log that jobs read have for a value that the log left out; Debezium's own may be a value."""


@dataclass(frozen=True, kw_only=True)
class CaptureSpec:
    """How jobs read the log of a source, by Debezium's engine (docs/capture.md)."""

    __pydantic_config__ = STRICT

    connector: ConnectorName
    """Debezium's connector."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    """Further properties of the connector, e.g. the slot's name; address and credentials are those of `connection`."""
    partition_dropped: PartitionDropped = "report"
    """What becomes of a table of which partitions were dropped or detached, with their rows: `report` stops it, `keep`
    goes on and keeps the rows."""


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
    replace_null_with_default: bool | None = None
    """The converter's setting of the name with dots; null: values that may stand for null are counted."""
    source_tables: Literal["one", "several"] = "one"
    """Whether events of several tables of the source may be in the files: keys must be unique among all of them."""
    flat_prefix: str = "__"
    """`add.fields.prefix` of `ExtractNewRecordState`, for flat events."""
    flat_fields: Mapping[str, str] = field(default_factory=dict)
    """Field of the event to its new name, for `add.fields` with names of one's own (`op:OP`); without the prefix."""
    flat_deletes: Literal["rewrite", "drop"] = "rewrite"
    """`delete.tombstone.handling.mode` of `ExtractNewRecordState`; `drop`: its files need not show deletes."""
    lookback: str = LOOKBACK
    """How far behind the newest folder each run lists for late files; needs `path_format`, else all are listed."""
    missing_folder: Literal["report", "empty", "ignore"] = "report"
    """Meaning of a missing folder: a warning, an empty table, or no new files."""
    verify_connection: str | None = None
    """Name of the connection to the source that `gddl verify` compares with; null: none. Never its content."""
    topic: str | None = None
    """Kafka topic that jobs read changes from, e.g. `crm.{schema}.{table}`; null: a sink connector writes the files."""
    bootstrap_servers: str | None = None
    """Kafka's brokers, `host:9092`, for `topic`; null: those that `kafka_connection` states."""
    schema_registry: str | None = None
    """URL of Confluent's Schema Registry, for a topic of Avro; null: its messages are JSON."""
    kafka_connection: str | None = None
    """Name of the connection with settings of Kafka's client (credentials, TLS); null: none. Never its content."""
    capture: CaptureSpec | None = None
    """`capture` of the row's source, by which jobs read its log themselves; null: they don't."""

    @property
    def placeholder(self) -> str:
        """Stands for a value that the source left out."""
        return PLACEHOLDER if self.capture else self.unavailable


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
        reading: the subclass of `spark_jobs.rooms.dialects.protocol.Dialect`, which states the roles of columns; loaded
            only by the job.
        technical: columns that the service adds to those of the source: their change alone opens no version of a
            history. A `*` at the end: all names that begin so. Case does not count.
        check: function that yields the problems of `options` (a mapping, with correct types) beyond their types.
        onboarding: of `dms` alone: no other dialect has rules in `gddl onboard`.
        takes_source_rows: it reads files that jobs write of rows of the source (`gddl load`, `gddl resync`).
        sources: options that belong to a source that jobs read themselves, each with the source.
    """

    options: str
    reading: str
    technical: tuple[str, ...]
    check: str | None = None
    onboarding: LandedColumns | None = None
    takes_source_rows: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)


def is_among(column: str, names: Iterable[str]) -> bool:
    """Whether `DialectDescriptor.technical` names the column."""
    return _is_among(column.lower(), tuple(names))


@functools.lru_cache(maxsize=10_000)
def _is_among(lowered: str, names: tuple[str, ...]) -> bool:
    """A batch asks for each column many times, and tables of a job have many columns in common."""
    return any(lowered.startswith(n[:-1].lower()) if n.endswith("*") else lowered == n.lower() for n in names)


DIALECTS = ExtensionPoint(
    "dialect",
    "airflow_gddl.dialects",
    DialectDescriptor,
    {
        "dms": DialectDescriptor(
            options="airflow_gddl.contract.extensions:DmsOptions",
            reading="spark_jobs.rooms.dialects.dms:DmsDialect",
            technical=(*TOTAL_ORDER, *COMMIT_TIMES, "AR_H_*", "_dms_carried"),
            check="airflow_gddl.contract.option_checks:dms_problems",
            takes_source_rows=True,
            sources=dict.fromkeys(("path_format", "complete"), "snapshots"),
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
            options="airflow_gddl.contract.extensions:DebeziumOptions",
            reading="spark_jobs.rooms.dialects.debezium:DebeziumDialect",
            technical=(
                "_dbz_op", "_dbz_sequence", "_dbz_ts", "_dbz_carried", "_dbz_number", "_dbz_shard", "_dbz_table",
            ),
            check="airflow_gddl.contract.option_checks:debezium_problems",
            takes_source_rows=True,
            sources={
                "capture": "capture",
                **dict.fromkeys(("topic", "bootstrap_servers", "schema_registry", "kafka_connection"), "kafka"),
            },
        ),
    },
    unknown_code=DIALECT_UNKNOWN,
    broken_code=DIALECT_BROKEN,
)  # fmt: skip
