"""Tables that this engine supports, checked before any write: `deltalake` refuses some Delta features
and ignores others silently (columns of a column-mapped table are read as nulls).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deltalake import DeltaTable, TableFeatures

from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.contract.sql_types import parts
from spark_jobs.engines.base import DeclinedError
from spark_jobs.plan.columns import Column

NTZ, VECTORS, WIDENING, CLUSTERING = "timestampNtz", "deletionVectors", "typeWidening", "clustering"
BESIDE_SPARK = frozenset({VECTORS, WIDENING, CLUSTERING, "domainMetadata"})
"""Features of tables that Spark maintains, in which this engine writes batches."""
_READER = {NTZ}
_WRITER = {NTZ, "appendOnly", "invariants", "changeDataFeed"}
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
    return "a column may not be null" if '"nullable":false' in text.replace(" ", "") else ""


def _refused_setting(settings: Mapping[str, Any], refused: tuple[str, ...]) -> str:
    for key, value in settings.items():
        if key.lower().startswith(refused) and str(value or "").lower() not in _HARMLESS:
            return key
    return ""


def is_readable(delta: DeltaTable, *, vectors: bool) -> bool:
    """Whether the table's files hold its rows under the names and in the types of its schema.

    Args:
        vectors: whether deletion vectors can be read.
    """
    needed, settings = set(delta.protocol().reader_features or ()), delta.metadata().configuration
    if _refused_setting(settings, ("delta.columnmapping.",)):
        return False
    return needed <= {NTZ, WIDENING, "v2Checkpoint", *([VECTORS] if vectors else [])}


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
    return (key for key in properties if key.lower().startswith("delta.") and key.lower() not in _CREATABLE)


def missing_features(delta: DeltaTable, columns: Sequence[Column]) -> list[TableFeatures]:
    """Table features that these columns need and the table lacks; a new table has those of its first columns."""
    scalars = {str(part) for column in columns for part in parts(column.type)}
    if "timestamp_ntz" in scalars and NTZ not in (delta.protocol().writer_features or ()):
        return [TableFeatures.TimestampWithoutTimezone]
    return []
