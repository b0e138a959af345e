"""Columns as Unity Catalog's API has them: Spark's type texts, and Spark's JSON of a field."""

from __future__ import annotations

import json
from typing import Any

from spark_jobs.catalogs.base import TableColumn
from spark_jobs.catalogs.delta_info import type_text

_NAMES = {"integer": "INT"}


def column_info(position: int, column: TableColumn) -> dict[str, Any]:
    """The API's `ColumnInfo`."""
    metadata = {"comment": column.comment} if column.comment else {}
    field = {"name": column.name, "type": column.type, "nullable": column.nullable, "metadata": metadata}
    return {
        "name": column.name,
        "type_text": type_text(column.type),
        "type_json": json.dumps(field),
        "position": position,
        "nullable": column.nullable,
        **_named(column.type),
        **({"comment": column.comment} if column.comment else {}),
    }


def _named(kind: Any) -> dict[str, Any]:
    name = kind if isinstance(kind, str) else kind["type"]
    if name.startswith("decimal("):
        precision, scale = name[8:-1].split(",")
        return {"type_name": "DECIMAL", "type_precision": int(precision), "type_scale": int(scale)}
    return {"type_name": _NAMES.get(name, name.upper())}
