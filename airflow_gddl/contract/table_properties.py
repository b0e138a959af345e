"""Delta table properties that a row may set: no expressions, and nothing that prevents a merge."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import SpecProblem

_PROPERTIES = frozenset(
    f"delta.{name}".lower()
    for name in (
        "autoOptimize.autoCompact", "autoOptimize.optimizeWrite", "checkpoint.writeStatsAsJson",
        "checkpoint.writeStatsAsStruct", "checkpointInterval", "checkpointPolicy", "checkpointRetentionDuration",
        "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "deletedFileRetentionDuration",
        "enableChangeDataFeed", "enableDeletionVectors", "enableExpiredLogCleanup", "enableIcebergCompatV1",
        "enableIcebergCompatV2", "enableInCommitTimestamps", "enableRowTracking", "enableTypeWidening",
        "isolationLevel", "logRetentionDuration", "minReaderVersion", "minWriterVersion", "randomizeFilePrefixes",
        "randomPrefixLength", "targetFileSize", "tuneFileSizesForRewrites", "universalFormat.enabledFormats",
    )
)  # fmt: skip
"""In lower case, as Delta compares them."""
_PREFIXES = ("user.", "delta.feature.")
"""Prefixes of further allowed properties: user properties and table features."""
_HIDDEN = frozenset({"deletionvectors", "typewidening", "columnmapping"})
"""Features with which data files alone do not give the table's content."""


def is_allowed(name: str) -> bool:
    """Whether a row may set this property."""
    return name.lower() in _PROPERTIES or name.lower().startswith(_PREFIXES)


def iceberg_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """Delta features that Iceberg metadata can't represent."""
    if not spec.iceberg:
        return
    if spec.partition_by:
        message = "Iceberg readers read columns from data files, which lack partition columns"
        yield SpecProblem("ICEBERG_REFUSED", ("partition_by",), list(spec.partition_by), message, "drop one of the two")
    for key, value in spec.table_properties.items():
        feature = key.lower().removeprefix("delta.enable").removeprefix("delta.feature.")
        if feature in _HIDDEN and value.lower() != "false":
            message = "Iceberg readers read data files directly and ignore this feature"
            yield SpecProblem("ICEBERG_REFUSED", ("table_properties", key), value, message, "remove it, or iceberg")
