"""`gddl schema`: the published columns of a table, as SQL types, as JSON Schema, or as a data contract."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as catalogs
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.published import Publication, ReplicaSchema
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.contract.sql_types import type_text
from airflow_gddl.contract.table_spec import lowered
from airflow_gddl.runtime.delta_tables import schema_json

_JSON: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    **{key: {"type": "integer"} for key in ("long", "integer", "short", "byte")},
    **{key: {"type": "number"} for key in ("float", "double")},
    "boolean": {"type": "boolean"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    **{key: {"type": "string", "format": "date-time"} for key in ("timestamp", "timestamp_ntz")},
}
_LOGICAL = {
    **dict.fromkeys(("long", "integer", "short", "byte"), "integer"),
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "timestamp"),
    **{name: name for name in ("string", "boolean", "date")},
}
_DECIMAL = re.compile(r"decimal\(\d+,\s*\d+\)")


class SchemaFormat(StrEnum):
    """What `gddl schema` prints."""

    SQL = "sql"
    JSON_SCHEMA = "json-schema"
    DATA_CONTRACT = "data-contract"


def schema(
    ctx: typer.Context,
    *,
    table: options.OneTable,
    form: Annotated[
        SchemaFormat,
        typer.Option(
            "--format",
            help="`sql`: names and types; `json-schema`: of a row; `data-contract`: Open Data Contract Standard.",
        ),
    ] = SchemaFormat.SQL,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
) -> None:
    """Print the schema of a table's published columns, as its replica has them now; no Spark, nothing is changed."""
    cli = context.of(ctx)
    catalog = catalogs.read(cli, metadata)
    (spec,), _ = catalogs.choose(cli, catalog, (table,), metadata)
    fields = published_fields(catalog.roots, spec, cli.environ)
    if form is SchemaFormat.SQL and not json:
        width = max(len(str(field["name"])) for field in fields)
        cli.screen.dictate("\n".join(f"{field['name']:<{width}}  {type_text(field['type'])}" for field in fields))
        return
    found: Mapping[str, Any] = {"table": spec.table, "columns": {f["name"]: type_text(f["type"]) for f in fields}}
    if form is SchemaFormat.JSON_SCHEMA:
        found = json_schema(spec, fields)
    elif form is SchemaFormat.DATA_CONTRACT:
        found = data_contract(spec, fields, Layout.of(catalog.roots, spec).replica)
    if json:
        cli.screen.record(found)
    else:
        cli.screen.dictate(_text(found, form))


def published_fields(roots: Roots, spec: TableSpec, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """The published columns as fields of Delta's schema.

    Raises:
        FatalError: `REPLICA_MISSING`: nothing was loaded yet; `PUBLISHED_COLUMN_MISSING`; `DELTALAKE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    path = Layout.of(roots, spec).replica
    text = schema_json(path, environ)
    if text is None:
        what, remedy = f"{spec.table} has no replica yet", f"load it: gddl run --table '{spec.table}'"
        raise FatalError("REPLICA_MISSING", what, where=path, remedy=remedy)
    known: dict[str, dict[str, Any]] = {field["name"]: field for field in json.loads(text)["fields"]}
    columns = Publication.of(spec).columns_of(ReplicaSchema.of_json(text))
    return [known[name] for name in columns]


def json_schema(spec: TableSpec, fields: list[dict[str, Any]]) -> dict[str, Any]:
    """JSON Schema of a row as a JSON object; keys are required, other columns may be null."""
    keys = lowered(spec.keys)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": spec.table,
        **({"description": spec.description} if spec.description else {}),
        "type": "object",
        "properties": {
            field["name"]: _described(_json_type(field["type"], null=field["name"].lower() not in keys), field, spec)
            for field in fields
        },
        "required": [field["name"] for field in fields if field["name"].lower() in keys],
    }


def _json_type(kind: Any, *, null: bool) -> dict[str, Any]:
    if isinstance(kind, Mapping):
        found = _json_of_nested(kind)
    elif _DECIMAL.fullmatch(str(kind)):
        found = {"type": "number"}
    else:
        found = dict(_JSON.get(str(kind), {}))
    return {**found, "type": [found["type"], "null"]} if null and "type" in found else found


def _json_of_nested(kind: Mapping[str, Any]) -> dict[str, Any]:
    if kind["type"] == "array":
        return {"type": "array", "items": _json_type(kind["elementType"], null=bool(kind.get("containsNull", True)))}
    if kind["type"] == "map":
        return {"type": "object", "additionalProperties": _json_type(kind["valueType"], null=True)}
    return {"type": "object", "properties": {f["name"]: _json_type(f["type"], null=True) for f in kind["fields"]}}


def _described(found: dict[str, Any], field: Mapping[str, Any], spec: TableSpec) -> dict[str, Any]:
    text = _description(field, spec)
    return {**found, "description": text} if text else found


def _description(field: Mapping[str, Any], spec: TableSpec) -> str:
    texts = {name.lower(): text for name, text in spec.column_descriptions.items()}
    return texts.get(field["name"].lower(), "")


def data_contract(spec: TableSpec, fields: list[dict[str, Any]], path: str) -> dict[str, Any]:
    """A data contract of the Open Data Contract Standard, version 3.0.2."""
    level = [{"property": "latency", "value": seconds(spec.freshness), "unit": "s"}] if spec.freshness else []
    team = [{"username": spec.owner, "role": "owner"}] if spec.owner else []
    return {
        "apiVersion": "v3.0.2",
        "kind": "DataContract",
        "id": spec.table,
        "name": spec.table,
        "version": "1.0.0",
        "status": "active" if spec.enabled else "deprecated",
        **({"description": {"purpose": spec.description}} if spec.description else {}),
        "tags": [f"{name}:{value}" if value else name for name, value in spec.tags.items()],
        "servers": [{"server": "lake", "type": "local", "path": path, "format": "delta"}],
        "schema": [_contract_table(spec, fields)],
        "slaProperties": level,
        "team": team,
    }


def _rules(spec: TableSpec) -> Iterator[tuple[str, str]]:
    """Name and text of what holds for rows."""
    yield from ((name, f"{one.rule} ({one.on})") for name, one in spec.expect.items())
    yield from ((name, f"unique: {', '.join(columns)}") for name, columns in spec.unique.items())
    for name, key in spec.foreign_key.items():
        yield name, f"foreign key: {', '.join(key.columns)} in {key.to} ({', '.join(key.to_columns)})"


def _contract_table(spec: TableSpec, fields: list[dict[str, Any]]) -> dict[str, Any]:
    keys = {name.lower(): place for place, name in enumerate(spec.keys, start=1)}
    masked = lowered(spec.mask)
    rules = [{"name": name, "type": "text", "description": text} for name, text in _rules(spec)]
    properties = []
    for field in fields:
        name, place, text = field["name"], keys.get(field["name"].lower()), _description(field, spec)
        properties.append({
            "name": name,
            "logicalType": _logical(field["type"]),
            "physicalType": type_text(field["type"]),
            **({"description": text} if text else {}),
            "required": place is not None,
            **({"primaryKey": True, "primaryKeyPosition": place} if place else {}),
            **({"classification": "masked"} if name.lower() in masked else {}),
        })  # fmt: skip
    return {"name": spec.name, "physicalName": spec.table, "physicalType": "table", "properties": properties,
            **({"quality": rules} if rules else {})}  # fmt: skip


def _logical(kind: Any) -> str:
    if isinstance(kind, Mapping):
        return "array" if kind["type"] == "array" else "object"
    return "number" if _DECIMAL.fullmatch(str(kind)) else _LOGICAL.get(str(kind), "string")


def _text(found: Mapping[str, Any], form: SchemaFormat) -> str:
    if form is SchemaFormat.DATA_CONTRACT:
        return str(yaml.safe_dump(dict(found), sort_keys=False, allow_unicode=True, width=120)).rstrip()
    return json.dumps(found, indent=2, ensure_ascii=False)
