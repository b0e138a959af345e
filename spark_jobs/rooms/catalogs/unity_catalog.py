"""Unity Catalog over its REST API: the open-source server's, which is a part of Databricks'."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from airflow_gddl.contract.codes import CATALOG_UNREACHABLE
from airflow_gddl.contract.extensions import CatalogSpec, EntryName, code_of_status, token_of
from airflow_gddl.contract.layout import same_place
from airflow_gddl.contract.sql_types import type_text
from airflow_gddl.contract.unity_rest import answer_of, message_of
from spark_jobs.rooms.catalogs.catalog_port import (
    CatalogContext,
    CatalogError,
    DeltaTableInfo,
    Entry,
    Registration,
    TableColumn,
    plain_entry,
)

_TYPE_NAMES = {"integer": "INT"}


class UnityCatalog:
    """See `CatalogPort`. The API has no call that changes columns or location of a table."""

    alters = frozenset({"comment", "properties"})

    def __init__(self, spec: CatalogSpec, around: CatalogContext) -> None:
        self._catalog = spec.catalog_name or ""
        self._http = _Http(spec, around.environ)
        self._schemas: set[str] = set()

    def entry_of(self, info: DeltaTableInfo, properties: Mapping[str, str]) -> Entry:
        return plain_entry(info, properties, type_text)

    def read(self, name: EntryName) -> Entry | None:
        table = self._http.ask("GET", f"/tables/{self._full(name.database, name.table)}", missing=True)
        if table is None:
            return None
        kind = f"{table.get('table_type', '')} {table.get('data_source_format', '')}"
        return Entry(
            location=same_place(table.get("storage_location") or ""),
            columns={c["name"]: (c.get("type_text") or "", c.get("comment") or "") for c in table.get("columns") or ()},
            comment=table.get("comment") or "",
            properties=table.get("properties") or {},
            problem="" if kind == "EXTERNAL DELTA" else f"it is no external Delta table ({kind.strip() or 'unknown'})",
        )

    def create(self, registration: Registration) -> None:
        name, entry, location = registration.name, registration.entry, registration.info.location
        self._require_schema(name.database)
        made = {
            "name": name.table,
            "catalog_name": self._catalog,
            "schema_name": name.database,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [_column_info(i, column) for i, column in enumerate(registration.info.columns)],
            "storage_location": location if "://" in location else f"file://{quote(location)}",
            "properties": dict(entry.properties),
            **({"comment": entry.comment} if entry.comment else {}),
        }
        self._http.ask("POST", "/tables", made, there=True)

    def alter(self, registration: Registration) -> None:
        name, entry = registration.name, registration.entry
        path = f"/tables/{self._full(name.database, name.table)}"
        table = self._http.ask("GET", path) or {}
        # The server replaces all properties: unnamed ones would be removed.
        changed: dict[str, Any] = {"properties": {**(table.get("properties") or {}), **entry.properties}}
        changed |= {"comment": entry.comment} if entry.comment else {}
        self._http.ask("PATCH", path, changed)

    def _require_schema(self, schema: str) -> None:
        if schema in self._schemas:
            return
        if self._http.ask("GET", f"/schemas/{self._full(schema)}", missing=True) is None:
            self._http.ask("POST", "/schemas", {"name": schema, "catalog_name": self._catalog}, there=True)
        self._schemas.add(schema)

    def _full(self, *names: str) -> str:
        return quote(".".join((self._catalog, *names)), safe="")


class _Http:
    """Requests, each over a new connection."""

    def __init__(self, spec: CatalogSpec, environ: Mapping[str, str]) -> None:
        self._spec, self._where = spec, urlsplit(spec.url or "").netloc
        token = token_of(spec, environ)
        if token is None:
            raise CatalogError(CATALOG_UNREACHABLE, f"{spec.token_env} holds no token where the job runs")
        self._token = token

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        missing: bool = False,
        there: bool = False,
    ) -> dict[str, Any] | None:
        """The answer.

        Args:
            missing: return None for 404.
            there: accept that the object to create exists.

        Raises:
            CatalogError: any other failure.
        """
        try:
            status, text = answer_of(self._spec, self._token, method, path, body)
        except (OSError, http.client.HTTPException) as error:
            message = f"{self._where} does not answer: {error or type(error).__name__}"
            raise CatalogError(CATALOG_UNREACHABLE, message) from error
        if (missing and status == 404) or (there and (status == 409 or "ALREADY_EXISTS" in text)):
            return None
        if status >= 300:
            message = message_of(text)
            shown = f"Unity Catalog answers {status}{f': {message}' if message else ''}"[:400]
            raise CatalogError(code_of_status(status), shown)
        try:
            answer = json.loads(text or "{}")
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise CatalogError(CATALOG_UNREACHABLE, f"{self._where} returned a response that is no JSON")
        return answer


def _column_info(position: int, column: TableColumn) -> dict[str, Any]:
    """The API's `ColumnInfo`: Spark's type texts, and Spark's JSON of a field."""
    return {
        "name": column.name,
        "type_text": type_text(column.type),
        "type_json": json.dumps(column.field(column.comment)),
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
    return {"type_name": _TYPE_NAMES.get(name, name.upper())}
