"""Settings of an AWS DMS task that writes what the rows of a source expect, as JSON for its console and API. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_gddl.contract.dialects import TOTAL_ORDER
from airflow_gddl.contract.s3 import is_s3, split
from airflow_gddl.contract.spec import TableSpec

TASK_SETTINGS: Mapping[str, Any] = {
    "Logging": {"EnableLogging": True},
    # A reload overwrites load files by name; change files that are not loaded yet must stay.
    "FullLoadSettings": {"TargetTablePrepMode": "DO_NOTHING"},
    # Large objects up to so many kilobytes; longer ones are cut, which `gddl inspect` finds.
    "TargetMetadata": {"SupportLobs": True, "FullLobMode": False, "LimitedSizeLobMode": True, "LobMaxSize": 65536},
}
_SEQUENCE = TOTAL_ORDER[0]
_ALL = {"schema-name": "%", "table-name": "%"}


def table_mapping(tables: Sequence[TableSpec]) -> dict[str, list[dict[str, Any]]]:
    """Selection of these tables, the column that orders changes, and before images where rows name their prefix."""
    rules: list[dict[str, Any]] = [
        {"rule-type": "selection", "object-locator": _locator(table), "rule-action": "include", "filters": []}
        for table in tables
    ]
    rules.append(
        {
            "rule-type": "transformation",
            "rule-target": "column",
            "object-locator": _ALL,
            "rule-action": "add-column",
            "value": _SEQUENCE,
            "expression": f"${_SEQUENCE}",
            "data-type": {"type": "string", "length": 35},
        }
    )
    rules += [_before_images(table, table.before_image_prefix) for table in tables if table.before_image_prefix]
    return {"rules": [{"rule-id": str(n), "rule-name": f"rule-{n}", **rule} for n, rule in enumerate(rules, 1)]}


def endpoint_settings(landing: str) -> dict[str, Any]:
    """Settings of the task's S3 target endpoint.

    Args:
        landing: the root; for a local root, bucket names are placeholders.
    """
    bucket, folder = split(landing) if is_s3(landing) else ("BUCKET", "FOLDER")
    return {
        "BucketName": bucket,
        "BucketFolder": folder,
        "DataFormat": "parquet",
        "ParquetVersion": "parquet-2-0",
        "TimestampColumnName": "dms_timestamp",
        "IncludeOpForFullLoad": True,
    }


def pasted(mapping: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A table mapping as JSON with a line for each rule."""
    rules = ",\n".join(f"  {json.dumps(rule)}" for rule in mapping["rules"])
    return f'{{"rules": [\n{rules}\n]}}'


def _locator(table: TableSpec) -> dict[str, str]:
    """Names with their underscores written as DMS reads them literally: alone, one stands for any character."""
    names = dict(zip(("schema-name", "table-name"), table.name_in_source.split(".", 1), strict=True))
    return {field: name.replace("_", "[_]") for field, name in names.items()}


def _before_images(table: TableSpec, prefix: str) -> dict[str, Any]:
    return {
        "rule-type": "transformation",
        "rule-target": "column",
        "object-locator": _locator(table),
        "rule-action": "add-before-image-columns",
        "before-image-def": {"column-prefix": prefix, "column-suffix": "", "column-filter": "pk-only"},
    }
