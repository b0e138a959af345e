"""Properties of Delta tables that a row may set: no expressions, and nothing that forbids a merge."""

from __future__ import annotations

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
"""How others begin: names without a meaning to Delta, and table features."""


def is_allowed(name: str) -> bool:
    """Whether a row may set this property."""
    return name.lower() in _PROPERTIES or name.lower().startswith(_PREFIXES)
