"""A stand-in for the Unity Catalog server, which could not be downloaded: it holds requests to the published OpenAPI.

The schemas are those of `api/all.yaml` in github.com/unitycatalog/unitycatalog, as far as this project sends them; a
field that they do not have is refused.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft202012Validator

_TEXT = {"type": "string"}
_INT = {"type": "integer"}
_MAP = {"type": "object", "additionalProperties": _TEXT}
_TYPE_NAMES = [
    "BOOLEAN",
    "BYTE",
    "SHORT",
    "INT",
    "LONG",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "STRING",
    "BINARY",
    "DECIMAL",
    "INTERVAL",
    "ARRAY",
    "STRUCT",
    "MAP",
    "VARIANT",
    "CHAR",
    "NULL",
    "USER_DEFINED_TYPE",
    "TABLE_TYPE",
]


def _object(required: str, **properties: Any) -> Draft202012Validator:
    schema = {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}
    return Draft202012Validator(schema)


_COLUMN = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **dict.fromkeys(("name", "type_text", "type_json", "type_interval_type", "comment"), _TEXT),
        **dict.fromkeys(("type_precision", "type_scale", "position", "partition_index"), _INT),
        "type_name": {"enum": _TYPE_NAMES},
        "nullable": {"type": "boolean"},
    },
}
CREATE_TABLE = _object(
    "name catalog_name schema_name table_type columns",
    **dict.fromkeys(("name", "catalog_name", "schema_name", "storage_location", "comment"), _TEXT),
    table_type={"enum": ["MANAGED", "EXTERNAL"]},
    data_source_format={"enum": ["DELTA", "CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT"]},
    columns={"type": "array", "items": _COLUMN},
    properties=_MAP,
)
UPDATE_TABLE = _object("", comment=_TEXT, properties=_MAP)
CREATE_SCHEMA = _object("name catalog_name", name=_TEXT, catalog_name=_TEXT, comment=_TEXT, properties=_MAP)


@dataclass
class UnityWorld:
    """Attributes:
    status: answered to every request; null: as the request deserves.
    asked: method and path of each request.
    tokens: as the requests brought them.
    """

    url: str = ""
    schemas: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    status: int | None = None
    asked: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if self.status is not None:
            return self.status, {"error_code": "NO", "message": "refused for the test"}
        kind, _, name = path.removeprefix("/api/2.1/unity-catalog/").partition("/")
        held: dict[str, Any] = {"tables": self.tables, "schemas": self.schemas}[kind]
        if method == "POST":
            return self._made(kind, held, body)
        if name not in held:
            return 404, {"error_code": "TABLE_NOT_FOUND", "message": f"{name} does not exist"}
        if method == "PATCH":
            UPDATE_TABLE.validate(body)
            held[name] |= body
        return 200, held[name]

    def _made(self, kind: str, held: dict[str, Any], body: Mapping[str, Any]) -> tuple[int, Any]:
        (CREATE_TABLE if kind == "tables" else CREATE_SCHEMA).validate(body)
        if body["catalog_name"] != "lake":
            return 404, {"error_code": "CATALOG_NOT_FOUND", "message": f"no catalog {body['catalog_name']}"}
        name = ".".join(body[part] for part in ("catalog_name", "schema_name", "name") if part in body)
        if kind == "tables" and f"lake.{body['schema_name']}" not in self.schemas:
            return 404, {"error_code": "SCHEMA_NOT_FOUND", "message": "no such schema"}
        if name in held:
            return 409, {"error_code": "ALREADY_EXISTS", "message": name}
        held[name] = dict(body)
        return 200, held[name]


@contextmanager
def unity_server() -> Iterator[UnityWorld]:
    world = UnityWorld()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            world.asked.append(f"{self.command} {self.path}")
            world.tokens.add(self.headers.get("Authorization"))
            try:
                status, found = world.answer(self.command, unquote(self.path), body)
            except Exception as error:  # noqa: BLE001 - a request against the API is the test's failure, by its answer
                status, found = 400, {"error_code": "INVALID_ARGUMENT", "message": f"{type(error).__name__}: {error}"}
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - names of the library

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    world.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield world
    finally:
        server.shutdown()
        server.server_close()
