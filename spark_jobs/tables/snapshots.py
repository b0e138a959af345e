"""A Delta table at one version: its schema, its features, and its files with their statistics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import ROOT_UNUSABLE
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.features import ROW_TRACKING
from airflow_gddl.contract.layout import table_url
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.contract.sql_types import SqlType, StructType, parts
from airflow_gddl.stores import Storage
from spark_jobs.plan.baseline import BASELINE, Baseline
from spark_jobs.plan.table_schema import Column
from spark_jobs.rules.arrays import DeltaSchema, fields_of
from spark_jobs.rules.delta_values import PartitionText, value_text
from spark_jobs.tables.deletion_vectors import Descriptor
from spark_jobs.tables.delta_log import CDF, is_on
from spark_jobs.tables.places import DeclinedError
from spark_jobs.tables.replayed_log import Add, ReplayedLog
from spark_jobs.tables.row_ids import COLUMNS, FEATURES, RowIdColumns
from spark_jobs.tables.table_definition import CLUSTER_BY, WITH_VECTORS

NTZ, VECTORS, WIDENING, CLUSTERING = "timestampNtz", "deletionVectors", "typeWidening", "clustering"
CHECKPOINTS = "v2Checkpoint"
BESIDE_SPARK = frozenset({VECTORS, WIDENING, CLUSTERING})
"""Features of tables that Spark maintains, in which this engine writes batches."""
_READER = {NTZ, CHECKPOINTS}
_WRITER = {NTZ, CHECKPOINTS, "appendOnly", "invariants", "changeDataFeed", *FEATURES}
# Older protocols name no features; these settings and column properties imply them.
_REFUSED_SETTINGS = (
    "delta.constraints.",
    "delta.columnmapping.",
    "delta.appendonly",
    "delta.rowtrackingsuspended",
    "delta.enableincommittimestamps",
)
_WIDENS = "delta.enabletypewidening"
_REFUSED_COLUMNS = ("delta.generationExpression", "delta.identity", "delta.invariants", "delta.columnMapping",
                    "__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS")  # fmt: skip
_HARMLESS = {"", "false", "none"}
# Settings whose requirements on writers this engine meets.
_CREATABLE = {
    "delta.logretentionduration",
    "delta.deletedfileretentionduration",
    "delta.checkpointinterval",
    "delta.dataskippingnumindexedcols",
    "delta.dataskippingstatscolumns",
    "delta.enableexpiredlogcleanup",
    "delta.enablechangedatafeed",
    "delta.autooptimize.autocompact",
    "delta.autooptimize.optimizewrite",
    ROW_TRACKING.lower(),
}
_PLAIN = {("delta.checkpointpolicy", "classic"), (_WIDENS, "false")}
"""Values of settings that ask for no table feature, as others do."""


def require_known(log: ReplayedLog, others: frozenset[str] = frozenset()) -> None:
    """Require that this engine supports all features of a table.

    Args:
        others: features that are supported here in addition.

    Raises:
        DeclinedError: it has a feature that this engine doesn't support.
    """
    if reason := _reason(log, others):
        raise DeclinedError(reason)


def _reason(log: ReplayedLog, others: frozenset[str]) -> str:
    unknown = (log.reader_features - _READER | log.writer_features - _WRITER) - others
    if unknown:
        return f"it has the table features {', '.join(sorted(unknown))}"
    refused = _REFUSED_SETTINGS if WIDENING in others else (*_REFUSED_SETTINGS, _WIDENS)
    if setting := _refused_setting(log.properties, refused):
        return f"it has the table property {setting}"
    text = log.schema
    if column := next((name for name in _REFUSED_COLUMNS if f'"{name}' in text), None):
        return f"a column has the property {column}"
    if log.has_files_elsewhere:
        return "it has files outside of its folder, as a shallow clone has"
    return "a column may not be null" if '"nullable":false' in text.replace(" ", "") else ""


def _refused_setting(settings: Mapping[str, Any], refused: tuple[str, ...]) -> str:
    for key, value in settings.items():
        if key.lower().startswith(refused) and str(value or "").lower() not in _HARMLESS:
            return key
    return ""


def is_readable(log: ReplayedLog, *, vectors: bool) -> bool:
    """Whether the table's files are in its folder, and hold its rows under the names and in the types of its schema.

    Args:
        vectors: whether deletion vectors can be read.
    """
    if _refused_setting(log.properties, ("delta.columnmapping.",)) or log.has_files_elsewhere:
        return False
    return log.reader_features <= {NTZ, WIDENING, CHECKPOINTS, *([VECTORS] if vectors else [])}


def require_creatable(spec: TableSpec, tier: TierSpec, others: frozenset[str] = frozenset()) -> None:
    """Require that this engine can create the tables that a row and its tier ask for.

    Args:
        others: as for `require_known`.

    Raises:
        DeclinedError: the metadata asks for tables that this engine can't make.
    """
    if tier.deletion_vectors and VECTORS not in others:
        raise DeclinedError("its tier asks for deletion vectors")
    require_settable(spec.table_properties)


def require_settable(properties: Mapping[str, str]) -> None:
    """Require that this engine can set table properties.

    Raises:
        DeclinedError: a property requires more of a writer than this engine supports.
    """
    if key := next(_unsettable(properties), None):
        raise DeclinedError(f"table_properties has {key}")


def is_settable(properties: Mapping[str, str]) -> bool:
    """Whether no property requires more of a writer than `delta_log` does."""
    return not any(_unsettable(properties))


def _unsettable(properties: Mapping[str, str]) -> Iterator[str]:
    for key, value in properties.items():
        creatable = key.lower() in _CREATABLE or (key.lower(), value) in _PLAIN
        if key.lower().startswith("delta.") and not creatable:
            yield key


def missing_features(log: ReplayedLog, columns: Sequence[Column]) -> list[str]:
    """Table features that these columns need and the table lacks; a new table has those of its first columns."""
    scalars = {str(part) for column in columns for part in parts(column.type)}
    if "timestamp_ntz" in scalars and NTZ not in log.writer_features:
        return [NTZ]
    return []


@dataclass(frozen=True)
class StoredBaseline:
    """What rows without `_gddl` stand for, and the columns that tell it."""

    baseline: Baseline
    columns: pa.Schema


@dataclass(frozen=True)
class DataFile:
    """A file of a snapshot.

    Attributes:
        path: below the table's.
        low, high: bounds by column, empty where the log has no statistics.
        values: partition column to its value in this file.
        stored_path: `path` as written in the log.
        add: the action of the log; None: the file is in no log yet.
        baseline: what its rows without `_gddl` stand for; None: they have none.
        row_ids: columns of its table's row ids; None: there are none.
    """

    path: str
    size: int
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    stored_path: str = ""
    add: Add | None = None
    baseline: StoredBaseline | None = None
    row_ids: RowIdColumns | None = None

    @property
    def vector(self) -> Descriptor | None:
        """The vector of the file's deleted rows; null where none is."""
        return None if self.add is None else self.add.get("deletionVector")

    @property
    def partition(self) -> PartitionText:
        return tuple((name, value_text(value)) for name, value in self.values.items())


_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


@dataclass(frozen=True)
class TableSnapshot:
    """A table at a version."""

    path: str
    log: ReplayedLog
    schema: DeltaSchema
    storage: Storage

    def opened(self) -> DeltaTable:
        """This version of the table, opened by `deltalake`.

        Raises:
            FatalError: `ROOT_UNUSABLE`: `deltalake` would open, and clean up, another folder.
        """
        if _ESCAPE.search(self.path):
            what = f"{self.path} has a percent sign before two hexadecimal digits, which deltalake reads as one sign"
            remedy = "rename the folder of the lake, or copy its prefix, and name it so in `lake`; loads work without"
            raise FatalError(ROOT_UNUSABLE, what, remedy=remedy)
        options = self.storage.options_of(self.path)
        return DeltaTable(table_url(self.path), version=self.log.version, storage_options=options)

    @property
    def has_vectors(self) -> bool:
        """Whether its files may have deletion vectors."""
        return VECTORS in self.log.reader_features

    @property
    def writes_vectors(self) -> bool:
        """Whether deleted rows are named by vectors, and their files stay."""
        return self.has_vectors and is_on(self.properties, WITH_VECTORS)

    @cached_property
    def files(self) -> tuple[DataFile, ...]:
        types, baseline, row_ids = self.schema.types, self.stored_baseline, self.row_ids
        return tuple(_data_file(path, add, types, baseline, row_ids) for path, add in self.log.files.items())

    @cached_property
    def row_ids(self) -> RowIdColumns | None:
        """Columns of the data files with row ids that this engine keeps; None: there are none."""
        return RowIdColumns.of(self.properties) if ROW_TRACKING in self.properties else None

    @property
    def whole_rows(self) -> pa.Schema:
        """Columns of rows that are written again: those of the table, and its row ids."""
        return self.with_row_ids(self.schema.arrow)

    def with_row_ids(self, schema: pa.Schema) -> pa.Schema:
        """A schema with `ROW_ID` and `ROW_VERSION`, if the table has row ids."""
        return schema if self.row_ids is None else pa.schema([*schema, *COLUMNS])

    @property
    def stored_baseline(self) -> StoredBaseline | None:
        """What rows without `_gddl` stand for; None: every row has `_gddl`."""
        text = self.properties.get(BASELINE)
        if not text:
            return None
        baseline = codec.from_json(Baseline, text)
        kinds = self.schema.arrow
        return StoredBaseline(baseline, fields_of(kinds, baseline.sequence))

    def require_vectors(self) -> None:
        """Require that `deltalake` finds the same files in the log, if the table has deletion vectors.

        Raises:
            DeclinedError: `deltalake` finds other files in the log, so that a vector might be missed.
        """
        if self.has_vectors:
            known = pa.table(self.opened().get_add_actions()).column("path").to_pylist()
            if set(map(unquote, known)) != self.log.files.keys():
                raise DeclinedError(f"its log names {len(known)} files to deltalake, and {len(self.log.files)} to us")

    @property
    def size(self) -> int:
        """Bytes of its data files."""
        return sum(add["size"] for add in self.log.files.values())

    @property
    def properties(self) -> Mapping[str, str | None]:
        return self.log.properties

    @property
    def comments(self) -> Mapping[str, str]:
        """Every column with its comment; empty: none."""
        return {name: str(self.schema.metadata.get(name, {}).get("comment", "")) for name in self.schema.names}

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self.log.partition_by

    @property
    def cluster_by(self) -> tuple[str, ...]:
        """Columns that the rows of each written file are ordered by."""
        return tuple(json.loads(self.properties.get(CLUSTER_BY) or "[]"))

    @property
    def feeds_changes(self) -> bool:
        """Whether the table has a change data feed."""
        return is_on(self.properties, CDF)


def _data_file(
    path: str, add: Add, types: Mapping[str, SqlType], baseline: StoredBaseline | None, row_ids: RowIdColumns | None
) -> DataFile:
    stated = json.loads(add.get("stats") or "{}", parse_float=Decimal)
    low, high = ({n: _bound(v, types.get(n)) for n, v in (stated.get(ends) or {}).items()} for ends in _ENDS)
    values = {name: _of_partition(text, name, types) for name, text in (add.get("partitionValues") or {}).items()}
    return DataFile(path, add["size"], low, high, values, add["path"], add, baseline, row_ids)


def _of_partition(text: str | None, column: str, types: Mapping[str, SqlType]) -> Any:
    """Value of a partition column, from its text in the log.

    Raises:
        DeclinedError: it is no value of its column's type.
    """
    value = _value(text, types.get(column)) if text else None  # the empty text is null, too
    if text and value is None:
        raise DeclinedError(f"its log has the value {text!r:.100} of partition column {column}")
    return value


_ENDS = ("minValues", "maxValues")


def _bound(value: Any, kind: SqlType | None) -> Any:
    """A bound in its column's type; null where it is none that can be compared: then it bounds nothing."""
    if isinstance(kind, StructType):
        types = {part.name: part.type for part in kind.fields}
        return {name: _bound(part, types.get(name)) for name, part in value.items()}
    return None if value is None else _value(str(value), kind)


def _value(text: str, kind: SqlType | None) -> Any:
    """A value as the log spells it, in its column's type; null where it is none of that type."""
    try:
        return _READERS[str(kind).partition("(")[0]](text)
    except (KeyError, ValueError, ArithmeticError):
        return None


def _moment(text: str) -> datetime:
    """Without a zone it is UTC."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


_READERS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    **dict.fromkeys(("float", "double"), float),
    "string": str,
    "decimal": Decimal,
    "boolean": lambda text: text.lower() == "true",
    "date": date.fromisoformat,
    "timestamp": _moment,
    "timestamp_ntz": datetime.fromisoformat,
    "binary": lambda text: text.encode(),
}
