"""A Delta table at one version: its schema, its features, and its files with their statistics."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, TableFeatures

from airflow_gddl.contract.layout import join
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.contract.sql_types import parts
from airflow_gddl.stores import Storage
from spark_jobs.plan.table_schema import Column
from spark_jobs.rules.arrays import DeltaSchema
from spark_jobs.rules.delta_values import PartitionText, value_text
from spark_jobs.tables.deletion_vectors import Descriptor
from spark_jobs.tables.delta_log import CDF, is_on
from spark_jobs.tables.places import DeclinedError
from spark_jobs.tables.table_definition import CLUSTER_BY, WITH_VECTORS

NTZ, VECTORS, WIDENING, CLUSTERING = "timestampNtz", "deletionVectors", "typeWidening", "clustering"
CHECKPOINTS = "v2Checkpoint"
BESIDE_SPARK = frozenset({VECTORS, WIDENING, CLUSTERING, "domainMetadata"})
"""Features of tables that Spark maintains, in which this engine writes batches."""
_READER = {NTZ, CHECKPOINTS}
_WRITER = {NTZ, CHECKPOINTS, "appendOnly", "invariants", "changeDataFeed"}
# Older protocols name no features; these settings and column properties imply them.
_REFUSED_SETTINGS = (
    "delta.constraints.",
    "delta.columnmapping.",
    "delta.appendonly",
    "delta.enablerowtracking",
    "delta.enableincommittimestamps",
)
_WIDENS = "delta.enabletypewidening"
_REFUSED_COLUMNS = ("delta.generationExpression", "delta.identity", "delta.invariants", "delta.columnMapping")
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
}


def require_known(delta: DeltaTable, others: frozenset[str] = frozenset()) -> None:
    """
    Args:
        others: features that are supported here in addition.

    Raises:
        DeclinedError: it has a feature that this engine doesn't support.
    """
    if reason := _reason(delta, others):
        raise DeclinedError(reason)


def _reason(delta: DeltaTable, others: frozenset[str]) -> str:
    protocol, metadata = delta.protocol(), delta.metadata()
    unknown = set(protocol.reader_features or ()) - _READER | set(protocol.writer_features or ()) - _WRITER
    unknown -= others
    if unknown:
        return f"it has the table features {', '.join(sorted(unknown))}"
    refused = _REFUSED_SETTINGS if WIDENING in others else (*_REFUSED_SETTINGS, _WIDENS)
    if setting := _refused_setting(metadata.configuration, refused):
        return f"it has the table property {setting}"
    text = delta.schema().to_json()
    if column := next((name for name in _REFUSED_COLUMNS if f'"{name}' in text), None):
        return f"a column has the property {column}"
    if has_files_elsewhere(delta):
        return "it has files outside of its folder, as a shallow clone has"
    return "a column may not be null" if '"nullable":false' in text.replace(" ", "") else ""


def _refused_setting(settings: Mapping[str, Any], refused: tuple[str, ...]) -> str:
    for key, value in settings.items():
        if key.lower().startswith(refused) and str(value or "").lower() not in _HARMLESS:
            return key
    return ""


_SCHEME = re.compile(r"/[A-Za-z][A-Za-z0-9+.-]*:/")


def has_files_elsewhere(delta: DeltaTable) -> bool:
    """Whether the log names a data file by an absolute URI, which `deltalake` appends to the path of the table."""
    schemes = len(_SCHEME.findall(delta.table_uri.removeprefix("file://")))
    return any(len(_SCHEME.findall(uri)) > schemes for uri in delta.file_uris())


def is_readable(delta: DeltaTable, *, vectors: bool) -> bool:
    """Whether the table's files are in its folder, and hold its rows under the names and in the types of its schema.

    Args:
        vectors: whether deletion vectors can be read.
    """
    needed, settings = set(delta.protocol().reader_features or ()), delta.metadata().configuration
    if _refused_setting(settings, ("delta.columnmapping.",)) or has_files_elsewhere(delta):
        return False
    return needed <= {NTZ, WIDENING, CHECKPOINTS, *([VECTORS] if vectors else [])}


def require_creatable(spec: TableSpec, tier: TierSpec, others: frozenset[str] = frozenset()) -> None:
    """
    Args:
        others: as for `require_known`.

    Raises:
        DeclinedError: the metadata asks for tables that this engine can't make.
    """
    if tier.deletion_vectors and VECTORS not in others:
        raise DeclinedError("its tier asks for deletion vectors")
    require_settable(spec.table_properties)


def require_settable(properties: Mapping[str, str]) -> None:
    """
    Raises:
        DeclinedError: a property requires more of a writer than this engine supports.
    """
    if key := next(_unsettable(properties), None):
        raise DeclinedError(f"table_properties has {key}")


def is_settable(properties: Mapping[str, str]) -> bool:
    """Whether no property requires more of a writer than `log_commits` does."""
    return not any(_unsettable(properties))


def _unsettable(properties: Mapping[str, str]) -> Iterator[str]:
    """A policy of checkpoints other than `classic` is a table feature."""
    for key, value in properties.items():
        creatable = key.lower() in _CREATABLE or (key.lower(), value) == ("delta.checkpointpolicy", "classic")
        if key.lower().startswith("delta.") and not creatable:
            yield key


def missing_features(delta: DeltaTable, columns: Sequence[Column]) -> list[TableFeatures]:
    """Table features that these columns need and the table lacks; a new table has those of its first columns."""
    scalars = {str(part) for column in columns for part in parts(column.type)}
    if "timestamp_ntz" in scalars and NTZ not in (delta.protocol().writer_features or ()):
        return [TableFeatures.TimestampWithoutTimezone]
    return []


Add = Mapping[str, Any]
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)")


def active_files(storage: Storage, table: str, version: int) -> dict[str, Add]:
    """`add` actions of a version by the path that they state."""
    log = join(table, "_delta_log")
    names = _names(storage, log, _after(storage, log, version))
    start, parts = _checkpoint(names, version)
    if start < 0:  # the last checkpoint that the log names is gone, or not whole
        names = _names(storage, log, "")
        start, parts = _checkpoint(names, version)
    active: dict[str, Add] = {}
    for name in parts:
        for action in _checkpointed(storage, log, name):
            active[action["path"]] = action
    for name in names:
        match = _COMMIT.fullmatch(name)
        if match and start < int(match[1]) <= version:
            _apply(active, storage.read(join(log, name)))
    return active


def _names(storage: Storage, log: str, after: str) -> list[str]:
    return [item.path.rsplit("/", 1)[-1] for item in storage.list(log, after)]


def _after(storage: Storage, log: str, version: int) -> str:
    """Name in the log from which the last checkpoint and all commits since are listed; empty: all of it."""
    try:
        newest = int(json.loads(storage.read(join(log, "_last_checkpoint")))["version"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return ""
    return f"{newest:020d}" if newest <= version else ""


def _checkpoint(names: list[str], version: int) -> tuple[int, list[str]]:
    """Version and files of the newest checkpoint that is whole; -1 without any."""
    files_of: dict[tuple[int, int], list[str]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match and int(match[1]) <= version:
            files_of.setdefault((int(match[1]), int(match[3] or 0)), []).append(name)
    whole = {key: files for key, files in files_of.items() if key[1] in (0, len(files))}
    if not whole:
        return -1, []
    newest = max(whole)
    return newest[0], whole[newest] if newest[1] else whole[newest][:1]  # several of the second version are equal


def _checkpointed(storage: Storage, log: str, name: str) -> Iterator[dict[str, Any]]:
    data = storage.read(join(log, name))
    is_text = name.endswith(".json")
    for action in map(json.loads, data.splitlines()) if is_text else _parquet(data).to_pylist():
        if action.get("add"):
            yield _plain(action["add"])
        if action.get("sidecar"):
            rows = _parquet(storage.read(join(log, "_sidecars", action["sidecar"]["path"])))
            yield from (_plain(row["add"]) for row in rows.to_pylist() if row.get("add"))


def _parquet(data: bytes) -> pa.Table:
    file = pq.ParquetFile(io.BytesIO(data), coerce_int96_timestamp_unit="us")
    wanted = [name for name in ("add", "sidecar") if name in file.schema_arrow.names]
    return file.read(wanted, use_threads=False)


def _plain(add: Mapping[str, Any]) -> dict[str, Any]:
    """An action as commits spell it."""
    fields = {name: value for name, value in add.items() if value is not None and not name.endswith("_parsed")}
    maps = {name: dict(fields[name]) for name in ("partitionValues", "tags") if isinstance(fields.get(name), list)}
    vector = {name: value for name, value in (fields.get("deletionVector") or {}).items() if value is not None}
    return {**fields, **maps, **({"deletionVector": vector} if vector else {})}


def _apply(active: dict[str, Add], commit: bytes) -> None:
    """A commit's removals, then what it adds: one that replaces a file's vector has both."""
    actions = [json.loads(line) for line in commit.splitlines()]
    for action in actions:
        if "remove" in action:
            active.pop(action["remove"]["path"], None)
    for action in actions:
        if "add" in action:
            active[action["add"]["path"]] = action["add"]


@dataclass(frozen=True)
class DataFile:
    """A file of a snapshot.

    Attributes:
        path: below the table's.
        low, high: bounds by column, empty where the log has no statistics.
        values: partition column to its value in this file.
        stored_path: `path` as written in the log.
        add: the action of the log, where the table may have deletion vectors.
    """

    path: str
    size: int
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    stored_path: str = ""
    add: Add | None = None

    @property
    def vector(self) -> Descriptor | None:
        """The vector of the file's deleted rows; null where none is."""
        return None if self.add is None else self.add.get("deletionVector")

    @property
    def partition(self) -> PartitionText:
        return tuple((name, value_text(value)) for name, value in self.values.items())


@dataclass(frozen=True)
class TableSnapshot:
    """A table at a version."""

    path: str
    delta: DeltaTable
    schema: DeltaSchema
    storage: Storage

    @property
    def has_vectors(self) -> bool:
        """Whether its files may have deletion vectors."""
        return VECTORS in (self.delta.protocol().reader_features or ())

    @property
    def writes_vectors(self) -> bool:
        """Whether deleted rows are named by vectors, and their files stay."""
        return self.has_vectors and is_on(self.properties, WITH_VECTORS)

    @cached_property
    def _adds(self) -> Mapping[str, Add]:
        return active_files(self.storage, self.path, self.delta.version()) if self.has_vectors else {}

    @cached_property
    def files(self) -> tuple[DataFile, ...]:
        actions = pa.table(self.delta.get_add_actions()).to_pylist()
        return tuple(
            DataFile(
                unquote(a["path"]), a["size_bytes"], a.get("min") or {}, a.get("max") or {},
                a.get("partition") or {}, a["path"], self._adds[a["path"]] if self.has_vectors else None,
            )
            for a in actions
        )  # fmt: skip

    def require_vectors(self) -> None:
        """
        Raises:
            DeclinedError: `active_files` finds other files in the log than `deltalake`, and might miss a vector.
        """
        known = pa.table(self.delta.get_add_actions()).column("path").to_pylist()
        if self.has_vectors and self._adds.keys() != set(known):
            raise DeclinedError(f"its log names {len(known)} files to deltalake, and {len(self._adds)} to us")

    @property
    def size(self) -> int:
        """Bytes of its data files."""
        return sum(pa.table(self.delta.get_add_actions()).column("size_bytes").to_pylist())

    @property
    def properties(self) -> Mapping[str, str | None]:
        return dict(self.delta.metadata().configuration)

    @property
    def comments(self) -> Mapping[str, str]:
        """Every column with its comment; empty: none."""
        return {name: str(self.schema.metadata.get(name, {}).get("comment", "")) for name in self.schema.names}

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self.delta.metadata().partition_columns)

    @property
    def cluster_by(self) -> tuple[str, ...]:
        """Columns that the rows of each written file are ordered by."""
        return tuple(json.loads(self.properties.get(CLUSTER_BY) or "[]"))

    @property
    def feeds_changes(self) -> bool:
        """Whether the table has a change data feed."""
        return is_on(self.properties, CDF)
