"""What Delta tables say of themselves, by the `deltalake` package; no Spark."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.s3 import S3Settings, is_s3

_VERSIONS = 20
_LONGEST_RECORD = 2000
_SHOWN = ("occurred_at", "code", "reason", "column", "source_file", "batch_id", "record")


def is_installed() -> bool:
    return importlib.util.find_spec("deltalake") is not None


def describe(path: str, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Columns with types, the newest versions, rows and bytes; null when there is no table.

    Raises:
        FatalError: `DELTALAKE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with _opened(path, environ) as table:
        if table is None:
            return None
        columns = [
            {"name": field["name"], "type": _type_text(field["type"]), "nullable": field["nullable"]}
            for field in json.loads(table.schema().to_json())["fields"]
        ]
        return {"version": table.version(), "columns": columns, "versions": [_version(one) for one in _history(table)]}


def quarantined(path: str, limit: int, environ: Mapping[str, str]) -> dict[str, Any]:
    """Unresolved rows of an errors table: how many, and some of them, long values cut.

    Raises:
        FatalError: `DELTALAKE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with _opened(path, environ) as table:
        if table is None:
            return {"unresolved": 0, "rows": []}
        rows: list[dict[str, Any]] = []
        count = 0
        # Not through a pyarrow dataset, which trusts statistics that are missing and reads no deletion vectors.
        for batch in table.scan(columns=list(_SHOWN), predicate="resolved_at IS NULL"):
            part = _pyarrow().record_batch(batch)
            count += part.num_rows
            rows += part.slice(0, limit - len(rows)).to_pylist()
        return {"unresolved": count, "rows": [_shown(row) for row in rows]}


def _shown(row: dict[str, Any]) -> dict[str, str | None]:
    return {name: None if value is None else str(value)[:_LONGEST_RECORD] for name, value in row.items()}


def _history(table: Any) -> list[dict[str, Any]]:
    return list(table.history(_VERSIONS))


def _version(entry: dict[str, Any]) -> dict[str, Any]:
    moment = entry.get("timestamp")
    return {
        "version": entry.get("version"),
        "operation": str(entry.get("operation", "")),
        "at": moment / 1000 if isinstance(moment, int) else None,
    }


def _type_text(kind: Any) -> str:
    """Delta's own words: `integer`, `array<string>`, `struct<a: integer>`."""
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


def _pyarrow() -> Any:
    return importlib.import_module("pyarrow")


@contextmanager
def _opened(path: str, environ: Mapping[str, str]) -> Iterator[Any]:
    """The table; null when there is none."""
    if not is_installed():
        remedy = "pip install 'airflow-gddl[spark]', or deltalake alone, where Airflow's API server runs"
        what = "schema, versions and quarantine are read with the package deltalake, which is not installed here"
        raise FatalError("DELTALAKE_MISSING", what, remedy=remedy)
    deltalake = importlib.import_module("deltalake")
    try:
        options = _options(path, environ)
        found = deltalake.DeltaTable.is_deltatable(path, storage_options=options)
        yield deltalake.DeltaTable(path, storage_options=options) if found else None
    except GddlError:
        raise
    except Exception as error:  # the package raises what its parts raise; a page must still be shown
        what = f"{type(error).__name__}: {str(error)[:300]}"
        raise RetriableError("LAKE_UNREADABLE", what, where=path, remedy="check `lake` and its credentials") from error


def _options(path: str, environ: Mapping[str, str]) -> dict[str, str] | None:
    """How S3 is reached; credentials too, since this process's own environment need not be the one that is meant."""
    if not is_s3(path):
        return None
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    keys = {name.lower(): environ[name] for name in names if name in environ}
    return {**S3Settings.of(environ).storage_options(), **keys}
