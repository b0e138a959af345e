"""`gddl schema` and `gddl catalog`: columns as SQL types or JSON Schema, and tables as catalogs have them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.commands import Group
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.job import Request, carry_out
from airflow_gddl.cli.screen import Cell, Screen
from airflow_gddl.contract.actions import CompareCatalogs
from airflow_gddl.contract.codes import REPLICA_MISSING
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.contract.sql_types import type_text
from airflow_gddl.contract.table_spec import lowered
from airflow_gddl.stores.delta_tables import schema_json

_JSON: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    **{key: {"type": "integer"} for key in ("long", "integer", "short", "byte")},
    **{key: {"type": "number"} for key in ("float", "double")},
    "boolean": {"type": "boolean"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    **{key: {"type": "string", "format": "date-time"} for key in ("timestamp", "timestamp_ntz")},
}
_DECIMAL = re.compile(r"decimal\(\d+,\s*\d+\)")


class SchemaFormat(StrEnum):
    """What `gddl schema` prints."""

    SQL = "sql"
    JSON_SCHEMA = "json-schema"


def schema(
    ctx: typer.Context,
    *,
    table: options.OneTable,
    form: Annotated[
        SchemaFormat,
        typer.Option(
            "--format",
            help="`sql`: names and types; `json-schema`: of a row.",
        ),
    ] = SchemaFormat.SQL,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
) -> None:
    """Print the schema of a table, as its replica has it now; no Spark, nothing is changed."""
    cli = context.of(ctx)
    loaded = metadata_folder.read(cli, metadata)
    (spec,), _ = metadata_folder.choose(cli, loaded, (table,), metadata)
    _print(cli, loaded.roots, spec, form, as_json=json)


def _print(cli: CliContext, roots: Roots, spec: TableSpec, form: SchemaFormat, *, as_json: bool) -> None:
    fields = fields_of(roots, spec, cli.environ)
    if form is SchemaFormat.SQL and not as_json:
        width = max(len(str(field["name"])) for field in fields)
        cli.screen.dictate("\n".join(f"{field['name']:<{width}}  {type_text(field['type'])}" for field in fields))
        return
    document: Mapping[str, Any] = {"table": spec.table, "columns": {f["name"]: type_text(f["type"]) for f in fields}}
    if form is SchemaFormat.JSON_SCHEMA:
        document = json_schema(spec, fields)
    if as_json:
        cli.screen.record(document)
    else:
        cli.screen.dictate(json.dumps(document, indent=2, ensure_ascii=False))


def fields_of(roots: Roots, spec: TableSpec, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """The columns of a replica as fields of Delta's schema.

    Raises:
        FatalError: `REPLICA_MISSING`: nothing was loaded yet; `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    path = Layout.of(roots, spec).replica
    text = schema_json(path, environ)
    if text is None:
        what, remedy = f"{spec.table} has no replica yet", f"load it: `gddl run --table '{spec.table}'`"
        raise FatalError(REPLICA_MISSING, what, where=path, remedy=remedy)
    return list(json.loads(text)["fields"])


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
        type_schema = _json_of_nested(kind)
    elif _DECIMAL.fullmatch(str(kind)):
        type_schema = {"type": "number"}
    else:
        type_schema = dict(_JSON.get(str(kind), {}))
    return {**type_schema, "type": [type_schema["type"], "null"]} if null and "type" in type_schema else type_schema


def _json_of_nested(kind: Mapping[str, Any]) -> dict[str, Any]:
    if kind["type"] == "array":
        return {"type": "array", "items": _json_type(kind["elementType"], null=bool(kind.get("containsNull", True)))}
    if kind["type"] == "map":
        return {"type": "object", "additionalProperties": _json_type(kind["valueType"], null=True)}
    return {"type": "object", "properties": {f["name"]: _json_type(f["type"], null=True) for f in kind["fields"]}}


def _described(type_schema: dict[str, Any], field: Mapping[str, Any], spec: TableSpec) -> dict[str, Any]:
    texts = {name.lower(): text for name, text in spec.column_descriptions.items()}
    text = texts.get(field["name"].lower())
    return {**type_schema, "description": text} if text else type_schema


app = Group("Tables in catalogs: compare them, or register them.")
_COLORS = {"missing": "red", "different": "yellow", "problem": "red", "registered": "green", "altered": "green"}


@app.command()
def diff(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
) -> None:
    """Show missing and different catalog entries; exit status 1 if there are any."""
    _compare(ctx, CompareCatalogs(), metadata, table, json)


@app.command()
def sync(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
) -> None:
    """Register missing tables, including dropped entries, and update different entries."""
    _compare(ctx, CompareCatalogs(mode="sync"), metadata, table, json)


def _compare(ctx: typer.Context, action: CompareCatalogs, metadata: str, table: list[str] | None, json: bool) -> None:
    request = Request(metadata, table, action, as_json=json)
    acted = action.mode == "sync"
    carry_out(context.of(ctx), request, partial(show, acted=acted), partial(is_different, acted=acted))


def show(screen: Screen, results: Sequence[JobResult], *, acted: bool) -> None:
    """Show one line for each difference or change, or that there is none; nothing where a catalog was not reached."""
    rows = [line for result in results for line in _lines(result, acted=acted)]
    if rows:
        titles = ("table", "catalog", "entry", "state", "what", "registered", "wanted")
        screen.table(titles, rows)
        return
    many = sum(len(_tables(result)) for result in results)
    if many:
        screen.say(f"{many} entries are up to date", "green")
    elif not any(result.warnings or result.status == "failed" for result in results):
        why = "rows name no catalog, nothing is loaded yet, or no Iceberg metadata is written (`gddl status` says why)"
        screen.say(f"no table to register: {why}", "yellow")


def is_different(result: JobResult, *, acted: bool) -> bool:
    """Whether a difference remains."""
    if result.warnings:
        return True
    return any(table["unaltered"] or (not acted and table["action"] != "none") for table in _tables(result))


def _lines(result: JobResult, *, acted: bool) -> Iterator[list[Cell | str]]:
    for table in _tables(result):
        first = [result.table, result.details["catalog"], table["name"]]
        if table["code"]:
            yield [*first, _state("problem"), table["code"], "", ""]
        if table["action"] == "create":
            yield [*first, _state("registered" if acted else "missing"), "", "", ""]
        state = "altered" if acted else "different"
        found = [(state, "", one) for one in table["differences"]]
        found += [("different", " (can't be altered)", one) for one in table["unaltered"]]
        for state, more, one in found:
            what = f"{one['aspect']} {one['name']}".strip() + more
            yield [*first, _state(state), what, one["registered"], one["wanted"]]


def _state(word: str) -> Cell:
    return Cell(word, _COLORS[word])


def _tables(result: JobResult) -> list[dict[str, Any]]:
    return list(result.details.get("tables", [])) if isinstance(result.details, dict) else []
