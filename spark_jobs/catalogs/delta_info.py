"""A Delta table's columns, comments and location from its log, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from airflow_gddl.stores import Storage
from spark_jobs.catalogs.base import DeltaTableInfo, TableColumn
from spark_jobs.rules.arrow_schema import SQL_NAMES


def read_info(storage: Storage, path: str) -> DeltaTableInfo | None:
    """The newest version's; None where there is no table."""
    if "://" not in path and not Path(path, "_delta_log").is_dir():
        return None
    try:
        table = DeltaTable(path, storage_options=storage.options_of(path))
    except TableNotFoundError:
        return None
    fields = json.loads(table.schema().to_json())["fields"]
    comment = table.metadata().description or ""
    return DeltaTableInfo(location=path, columns=tuple(_column(field) for field in fields), comment=comment)


def _column(field: dict[str, Any]) -> TableColumn:
    comment = (field.get("metadata") or {}).get("comment") or ""
    return TableColumn(name=field["name"], type=field["type"], comment=comment, nullable=field.get("nullable", True))


def type_text(kind: Any, names: Mapping[str, str] = SQL_NAMES) -> str:
    """A type of the Delta log as Spark's `catalogString`; without comments of nested fields.

    Args:
        names: of scalar types; those that it lacks are spelled as in the log.
    """
    if isinstance(kind, str):
        return names.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{type_text(kind['elementType'], names)}>"
    if kind["type"] == "map":
        return f"map<{type_text(kind['keyType'], names)},{type_text(kind['valueType'], names)}>"
    fields = ",".join(f"{field['name']}:{type_text(field['type'], names)}" for field in kind["fields"])
    return f"struct<{fields}>"


def hive_type(kind: Any) -> str:
    """The same as Hive, Glue and Athena write it."""
    return type_text(kind, _HIVE)


_HIVE = {**SQL_NAMES, "timestamp_ntz": "timestamp"}


def same_place(location: str) -> str:
    """A location in normal form, for comparison: no `file:`, `s3a` as `s3`, no slash at the end."""
    text = location.removeprefix("file:")
    if location != text:
        text = "/" + text.lstrip("/")
    for scheme in ("s3a://", "s3n://"):
        text = text.replace(scheme, "s3://", 1) if text.startswith(scheme) else text
    return text.rstrip("/")
