"""Reads details of Delta tables with the `deltalake` package, without Spark."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from airflow_gddl.runtime.delta_tables import opened, unresolved

_VERSIONS = 20
_SHOWN = ("occurred_at", "code", "reason", "column", "source_file", "batch_id", "record")


def describe(path: str, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Columns with types, the newest versions, rows and bytes; null when there is no table.

    Raises:
        FatalError: `DELTALAKE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        if table is None:
            return None
        columns = [
            {"name": field["name"], "type": _type_text(field["type"]), "nullable": field["nullable"]}
            for field in json.loads(table.schema().to_json())["fields"]
        ]
        versions = [_version(one) for one in table.history(_VERSIONS)]
        return {"version": table.version(), "columns": columns, "versions": versions}


def quarantined(path: str, code: str, limit: int, environ: Mapping[str, str]) -> dict[str, Any]:
    """Unresolved rows of an errors table: `codes`, how many rows each has, and the first `rows` of one code.

    Args:
        code: of which rows are wanted; empty: of all.

    Raises:
        FatalError: `DELTALAKE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        codes: Counter[str] = Counter()
        rows: list[dict[str, Any]] = []
        for batch in [] if table is None else unresolved(table, _SHOWN):
            part = importlib.import_module("pyarrow").record_batch(batch)
            names = part.column("code").to_pylist()
            codes.update(map(str, names))
            wanted = [at for at, name in enumerate(names) if not code or name == code][: limit - len(rows)]
            rows += [part.slice(at, 1).to_pylist()[0] for at in wanted]
        return {"codes": dict(sorted(codes.items())), "rows": rows}


def _version(entry: dict[str, Any]) -> dict[str, Any]:
    moment = entry.get("timestamp")
    return {
        "version": entry.get("version"),
        "operation": str(entry.get("operation", "")),
        "at": moment / 1000 if isinstance(moment, int) else None,
    }


def _type_text(kind: Any) -> str:
    """Type names as in Delta: `integer`, `array<string>`, `struct<a: integer>`."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "array":
            return f"array<{_type_text(kind['elementType'])}>"
        case "map":
            return f"map<{_type_text(kind['keyType'])}, {_type_text(kind['valueType'])}>"
        case _:
            fields = (f"{field['name']}: {_type_text(field['type'])}" for field in kind["fields"])
            return f"struct<{', '.join(fields)}>"
