"""Delta tables of the lake, read by the `deltalake` package where it is installed; no Spark."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_gddl.contract.codes import LAKE_UNREADABLE
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import table_url
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.sql_types import type_text
from airflow_gddl.stores import open_store


def schema_json(path: str, environ: Mapping[str, str]) -> str | None:
    """Delta's `schemaString` of a table; null when there is none.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        return None if table is None else str(table.schema().to_json())


def quarantined_codes(path: str, environ: Mapping[str, str]) -> dict[str, int] | None:
    """How many unresolved rows of an errors table have each code, sorted by code; null when there is no table.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        if table is None:
            return None
        codes: Counter[str] = Counter()
        for batch in _unresolved(table, ["code"]):
            codes.update(map(str, batch.column("code").to_pylist()))
        return dict(sorted(codes.items()))


def _unresolved(table: Any, columns: Sequence[str]) -> Any:
    """Record batches of the unresolved rows of an errors table.

    Not through a pyarrow dataset, which relies on missing statistics and does not support deletion vectors.
    """
    return table.scan(columns=list(columns), predicate="resolved_at IS NULL")


@contextmanager
def opened(path: str, environ: Mapping[str, str]) -> Iterator[Any]:
    """A `deltalake.DeltaTable`; null when there is none.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`: the log can't be read, or what the caller does with the table failed.
    """
    try:
        # What the caller does with the table may need more of its packages.
        with needed_by("reading Delta tables", install="airflow-gddl[spark]"):
            deltalake = importlib.import_module("deltalake")
            options = open_store(environ).options_of(path)
            exists = deltalake.DeltaTable.is_deltatable(table_url(path), storage_options=options)
            yield deltalake.DeltaTable(table_url(path), storage_options=options) if exists else None
    except GddlError:
        raise
    except Exception as error:  # the package raises errors of its dependencies; the page must still load
        what = f"{type(error).__name__}: {str(error)[:300]}"
        raise RetriableError(LAKE_UNREADABLE, what, where=path, remedy="check `lake` and its credentials") from error


_VERSIONS = 20
_SHOWN = ("occurred_at", "code", "reason", "column", "source_file", "batch_id", "record")
_GDDL = "_gddl"


def described(path: str, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Columns with types, the newest versions, rows and bytes; null when there is no table.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        if table is None:
            return None
        columns = [
            {"name": field["name"], "type": type_text(field["type"], {}), "nullable": field["nullable"]}
            for field in json.loads(table.schema().to_json())["fields"]
        ]
        versions = [_version(one) for one in table.history(_VERSIONS)]
        return {"version": table.version(), "columns": columns, "versions": versions}


def quarantined(path: str, code: str, limit: int, environ: Mapping[str, str]) -> dict[str, Any]:
    """Unresolved rows of an errors table: `codes`, how many rows each has, and the first `rows` of one code, as texts.

    Args:
        code: of which rows are wanted; empty: of all.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        codes: Counter[str] = Counter()
        rows: list[dict[str, Any]] = []
        for batch in [] if table is None else _unresolved(table, _SHOWN):
            part = importlib.import_module("pyarrow").record_batch(batch)
            names = part.column("code").to_pylist()
            codes.update(map(str, names))
            wanted = [at for at, name in enumerate(names) if not code or name == code][: limit - len(rows)]
            rows += [part.slice(at, 1).to_pylist()[0] for at in wanted]
        texts = [{name: None if value is None else str(value) for name, value in row.items()} for row in rows]
        return {"codes": dict(sorted(codes.items())), "rows": texts}


def first_rows(
    path: str, hides: Callable[[str], bool], limit: int, environ: Mapping[str, str]
) -> dict[str, Any] | None:
    """The first `rows` of a replica, lists of values in the order of `columns`, which are pairs of a name and whether
    it is hidden; null when there is no table. Hidden columns are not read, and null.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        if table is None:
            return None
        names = [field["name"] for field in json.loads(table.schema().to_json())["fields"] if field["name"] != _GDDL]
        read = [name for name in names if not hides(name)]
        rows = _first(table, read or names[:1], limit)
        values = [[_plain(row[name]) if name in read else None for name in names] for row in rows]
        return {"columns": [[name, name not in read] for name in names], "rows": values}


def _first(table: Any, columns: Sequence[str], limit: int) -> list[dict[str, Any]]:
    """Stops after the batch that completes them."""
    rows: list[dict[str, Any]] = []
    for batch in table.scan(columns=list(columns)):
        rows += importlib.import_module("pyarrow").record_batch(batch).slice(0, limit - len(rows)).to_pylist()
        if len(rows) == limit:
            break
    return rows


def _plain(value: Any) -> Any:
    """As JSON has it; moments, decimals and bytes as text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | dict):
        return json.loads(json.dumps(value, default=str))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _version(entry: dict[str, Any]) -> dict[str, Any]:
    moment = entry.get("timestamp")
    return {
        "version": entry.get("version"),
        "operation": str(entry.get("operation", "")),
        "at": moment / 1000 if isinstance(moment, int) else None,
    }
