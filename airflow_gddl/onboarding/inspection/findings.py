"""Findings of `gddl inspect`, with the AWS DMS setting that fixes each.

Sources: user guide of AWS DMS, "Using Amazon S3 as a target", "Using transformation rule expressions", "Transformation
rules and actions", "Target metadata task settings"; API reference, `S3Settings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem of the service's configuration.

    Attributes:
        code: stable, listed in docs/codes.md.
        level: `error`: rows or their order are lost; `warning`: performance or risk.
        message: the problem and its effect.
        file, evidence: location and value.
        setting: setting to change in the task or its target endpoint.
    """

    table: str
    code: str
    level: Level
    message: str
    file: str
    evidence: str
    setting: str


@dataclass(frozen=True)
class KnownFinding:
    """A finding without its location."""

    code: str
    level: Level
    message: str
    setting: str

    def at(self, table: str, file: str, evidence: str) -> Finding:
        return Finding(table=table, file=file, evidence=evidence, **vars(self))


_ADD_SEQUENCE = (
    'table mapping: a rule of type "transformation", rule-target "column", rule-action "add-column", value'
    ' "AR_H_CHANGE_SEQ", expression "$AR_H_CHANGE_SEQ", data-type {"type": "string", "length": 35}'
)
NO_SEQUENCE = KnownFinding(
    "INSPECT_NO_SEQUENCE",
    "error",
    "change files have nothing that states the order of changes: the table can't be replicated",
    _ADD_SEQUENCE,
)
ORDER_BY_COMMIT_TIME = KnownFinding(
    "INSPECT_ORDER_BY_COMMIT_TIME",
    "error",
    "changes are ordered by their commit time, which all changes of a transaction share",
    _ADD_SEQUENCE,
)
TEXT_TIMESTAMPS = KnownFinding(
    "INSPECT_TEXT_TIMESTAMPS",
    "warning",
    "times come as text: no range of them can be pruned, and they are times only where the row declares it",
    'table mapping: data-type {"type": "datetime", "precision": 6} in the rule that adds the column (rule-action'
    ' "add-column"), or rule-action "change-data-type" for a column of the source; for the commit time the endpoint\'s'
    " TimestampColumnName with DataFormat parquet. Until then: options.types of the row",
)
SMALL_ROW_GROUPS = KnownFinding(
    "INSPECT_SMALL_ROW_GROUPS",
    "warning",
    "row groups are so small that reading costs more than the rows",
    "endpoint: RowGroupLength (rows of a row group; 10000 if not set), e.g. 100000; and MaxFileSize",
)
FULL_LOAD_WITHOUT_OP = KnownFinding(
    "INSPECT_FULL_LOAD_WITHOUT_OP",
    "warning",
    "full-load files have no operation column, but change files have one",
    "endpoint: IncludeOpForFullLoad true",
)
LOB_TRUNCATED = KnownFinding(
    "INSPECT_LOB_TRUNCATED",
    "error",
    "several values end at the same whole number of kilobytes: large objects have probably been cut",
    "task settings, TargetMetadata: a larger LobMaxSize (kilobytes) under LimitedSizeLobMode, or FullLobMode true; then"
    " load the table again",
)
MIXED_TIMESTAMP_UNITS = KnownFinding(
    "INSPECT_MIXED_TIMESTAMP_UNITS",
    "warning",
    "times come in different units: their precision depends on the file",
    "endpoint: the same ParquetTimestampInMillisecond for every task that writes here; then load the table again",
)
NO_BEFORE_IMAGES = KnownFinding(
    "INSPECT_NO_BEFORE_IMAGES",
    "error",
    "keys are updated, and nothing states the old key: the row under it stays in the replica",
    'table mapping: rule-action "add-before-image-columns", before-image-def {"column-prefix": "BI_", "column-suffix":'
    ' "", "column-filter": "pk-only"} (for Kinesis and Kafka the task setting BeforeImageSettings); then'
    " before_image_prefix: BI_ in the row",
)
NOT_PARQUET = KnownFinding(
    "INSPECT_NOT_PARQUET",
    "warning",
    "CSV has no types, and truncated files can't be detected; the content was not checked",
    "endpoint: DataFormat parquet, ParquetVersion parquet-2-0",
)
FILE_UNREADABLE = KnownFinding(
    "INSPECT_FILE_UNREADABLE",
    "error",
    "a file that can't be read; its content was not checked",
    "load the table again (`reload-tables`), so that the service rewrites it",
)
