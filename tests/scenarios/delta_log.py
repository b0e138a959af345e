"""What a Delta table's own log says, read without any engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage

_SQL = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def commits(storage: Storage, path: str) -> int:
    """How often the table was written; 0 when there is none."""
    return len(list(_commits(storage, path)))


def columns(storage: Storage, path: str) -> dict[str, str]:
    """Name to SQL type, in order; empty when there is no table."""
    schema: dict[str, Any] = {"fields": []}
    for commit in _commits(storage, path):
        for line in storage.read(commit).decode().splitlines():
            if meta := json.loads(line).get("metaData"):
                schema = json.loads(meta["schemaString"])
    return {field["name"]: _sql(field["type"]) for field in schema["fields"]}


def _commits(storage: Storage, path: str) -> Iterator[str]:
    for found in storage.list(join(path, "_delta_log")):
        if re.fullmatch(r"[0-9]{20}\.json", found.path.rpartition("/")[2]):
            yield found.path


def _sql(kind: Any) -> str:
    if isinstance(kind, str):
        return _SQL.get(kind, kind)
    if kind["type"] == "struct":
        return f"struct<{','.join(part['name'] + ':' + _sql(part['type']) for part in kind['fields'])}>"
    if kind["type"] == "array":
        return f"array<{_sql(kind['elementType'])}>"
    return f"map<{_sql(kind['keyType'])},{_sql(kind['valueType'])}>"
