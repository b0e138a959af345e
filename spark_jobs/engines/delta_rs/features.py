"""What this engine can take: it looks at a table before touching it, for `deltalake` refuses some features of Delta
and passes over others without a word (a column-mapped table's columns read as nulls).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltalake import DeltaTable, TableFeatures
from deltalake.exceptions import DeltaError

from airflow_gddl.contract.spec import TableSpec, TierSpec
from spark_jobs.engines.base import DeclinedError
from spark_jobs.plan.columns import Column
from spark_jobs.plan.types import MapType, parts

NTZ = "timestampNtz"
_READER = {NTZ}
_WRITER = {NTZ, "appendOnly", "invariants"}
# Older protocols name no features; these settings and column properties stand for them.
_REFUSED_SETTINGS = (
    "delta.constraints.",
    "delta.columnmapping.",
    "delta.enablechangedatafeed",
    "delta.appendonly",
    "delta.enablerowtracking",
    "delta.enabletypewidening",
    "delta.enableincommittimestamps",
)
_REFUSED_COLUMNS = ("delta.generationExpression", "delta.identity", "delta.invariants", "delta.columnMapping")
_HARMLESS = {"", "false", "none"}
# Settings that ask nothing of a writer but what this engine does.
_CREATABLE = {
    "delta.logretentionduration",
    "delta.deletedfileretentionduration",
    "delta.checkpointinterval",
    "delta.dataskippingnumindexedcols",
    "delta.dataskippingstatscolumns",
    "delta.enableexpiredlogcleanup",
}


def require_known(found: DeltaTable | Exception) -> DeclinedError:
    """Look at an opened table, or at why it can't be opened.

    Raises:
        DeclinedError: it has something that this engine doesn't know.

    Returns:
        the error to raise for a table that can't be opened; nothing of use for others.
    """
    if isinstance(found, DeltaTable):
        reason = _reason(found)
        if reason:
            raise DeclinedError(reason)
        return DeclinedError("")
    if isinstance(found, DeltaError | OSError | ValueError):
        return DeclinedError(f"deltalake can't open it: {str(found).splitlines()[0][:200]}")
    raise found


def _reason(delta: DeltaTable) -> str:
    protocol, metadata = delta.protocol(), delta.metadata()
    unknown = set(protocol.reader_features or ()) - _READER | set(protocol.writer_features or ()) - _WRITER
    if unknown:
        return f"it has the table features {', '.join(sorted(unknown))}"
    if metadata.partition_columns:
        return "it is partitioned"
    if setting := _refused_setting(metadata.configuration):
        return f"it has the table property {setting}"
    text = delta.schema().to_json()
    if column := next((name for name in _REFUSED_COLUMNS if f'"{name}' in text), None):
        return f"a column has the property {column}"
    return "a column may not be null" if '"nullable":false' in text.replace(" ", "") else ""


def _refused_setting(settings: Mapping[str, Any]) -> str:
    for key, value in settings.items():
        if key.lower().startswith(_REFUSED_SETTINGS) and str(value or "").lower() not in _HARMLESS:
            return key
    return ""


def require_creatable(spec: TableSpec, tier: TierSpec) -> None:
    """
    Raises:
        DeclinedError: the metadata asks for tables that this engine can't make.
    """
    if spec.cluster_by:
        raise DeclinedError("cluster_by is set")
    if tier.deletion_vectors:
        raise DeclinedError("its tier asks for deletion vectors")
    require_settable(spec.table_properties)


def require_creatable_types(columns: Sequence[Column]) -> None:
    """`deltalake` 1.6 doesn't see times without zone inside maps: the table it creates lacks their table feature.

    Raises:
        DeclinedError: a map holds such times.
    """
    maps = [part for column in columns for part in parts(column.type) if isinstance(part, MapType)]
    if any(str(inner) == "timestamp_ntz" for found in maps for inner in parts(found)):
        raise DeclinedError("a map holds times without zone")


def require_settable(properties: Mapping[str, str]) -> None:
    """
    Raises:
        DeclinedError: a property asks a writer for more than this engine does.
    """
    for key in properties:
        if key.lower().startswith("delta.") and key.lower() not in _CREATABLE:
            raise DeclinedError(f"table_properties has {key}")


def missing_features(delta: DeltaTable, columns: Sequence[Column]) -> list[TableFeatures]:
    """Table features that these columns need and the table lacks: it is created with those of its first columns."""
    scalars = {str(part) for column in columns for part in parts(column.type)}
    if "timestamp_ntz" in scalars and NTZ not in (delta.protocol().writer_features or ()):
        return [TableFeatures.TimestampWithoutTimezone]
    return []
