"""What a Delta table's own log says, read without any engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_SQL = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def commits(path: str) -> int:
    """How often the table was written; 0 when there is none."""
    return len(list(Path(path, "_delta_log").glob("*.json")))


def columns(path: str) -> dict[str, str]:
    """Name to SQL type, in order; empty when there is no table."""
    schema: dict[str, Any] = {"fields": []}
    for commit in sorted(Path(path, "_delta_log").glob("*.json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            if meta := json.loads(line).get("metaData"):
                schema = json.loads(meta["schemaString"])
    return {field["name"]: _sql(field["type"]) for field in schema["fields"]}


def _sql(kind: Any) -> str:
    if isinstance(kind, str):
        return _SQL.get(kind, kind)
    if kind["type"] == "struct":
        return f"struct<{','.join(part['name'] + ':' + _sql(part['type']) for part in kind['fields'])}>"
    if kind["type"] == "array":
        return f"array<{_sql(kind['elementType'])}>"
    return f"map<{_sql(kind['keyType'])},{_sql(kind['valueType'])}>"
