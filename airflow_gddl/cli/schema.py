"""`gddl schema` and `gddl catalog`: published columns as SQL types or JSON Schema, and tables as catalogs have them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from airflow_gddl.cli import context, options
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.commands import Group
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.job import Request, answer, ask, carry_out, each, show_plans
from airflow_gddl.cli.screen import Cell, Screen
from airflow_gddl.contract.actions import Action, CatalogDiff, CatalogSync, Plan, Rebuild, SchemaApply
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.published import published_columns
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, Roots, TableSpec
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


_OURS = ("_gddl", "_rescued_data", "_source")
"""Columns that no schema is applied to."""


class SchemaFormat(StrEnum):
    """What `gddl schema` prints."""

    SQL = "sql"
    JSON_SCHEMA = "json-schema"


def schema(  # noqa: PLR0913 - typer reads each option of the command from one parameter
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
    apply: Annotated[
        str | None,
        typer.Option(
            "--apply",
            metavar="FILE",
            help="Give the tables the columns of this file (name and type a line, as this command prints them) before "
            "data has them: new columns, wider types. `-` reads standard input.",
        ),
    ] = None,
    drop_column: Annotated[
        list[str] | None,
        typer.Option("--drop-column", metavar="NAME", help="Drop a column that the source has dropped, for good."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --apply or --drop-column: only say what would be done.")
    ] = False,
    yes: options.Yes = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Print the schema of a table's published columns, as its replica has them now; no Spark, nothing is changed.

    With --apply new columns and wider types come into the tables before their data; Delta's rules are asked first, and
    both schemas are shown. With --drop-column change table, replica and history lose a column, which asks first.
    """
    cli = context.of(ctx)
    if apply is not None and drop_column:
        raise MetadataError("OPTION_INVALID", "--apply and --drop-column are given", remedy="do one after the other")
    request = Request(metadata=metadata, tables=(table,), options=JobOptions(wait_seconds=wait), as_json=json)
    if apply is not None:
        _apply(cli, request, _columns_of(apply), dry_run=dry_run)
    if drop_column:
        if not dry_run:
            ask(f"Drop {', '.join(drop_column)} of {table} for good, with all values?", yes=yes)
        _drop(cli, request, drop_column, dry_run=dry_run)
    loaded = metadata_folder.read(cli, metadata)
    (spec,), _ = metadata_folder.choose(cli, loaded, (table,), metadata)
    _print(cli, loaded.roots, spec, form, as_json=json)


def _print(cli: CliContext, roots: Roots, spec: TableSpec, form: SchemaFormat, *, as_json: bool) -> None:
    fields = published_fields(roots, spec, cli.environ)
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


def _apply(cli: CliContext, request: Request, columns: Mapping[str, str], *, dry_run: bool) -> NoReturn:
    job_options = replace(request.options, action=SchemaApply(columns=columns, dry_run=dry_run))
    carry_out(cli, replace(request, options=job_options), each(show_applied))


def _drop(cli: CliContext, request: Request, names: Sequence[str], *, dry_run: bool) -> NoReturn:
    rebuild = Rebuild(drop_columns=tuple(names))
    action: Action = Plan(of=rebuild) if dry_run else rebuild
    job_options = replace(request.options, action=action, full_listing=True)
    carry_out(cli, replace(request, options=job_options), show_plans if dry_run else each(show_dropped))


def _columns_of(file: str) -> dict[str, str]:
    """Names and SQL types of a file's lines; lines that begin with `#` and those of our own columns are left out.

    Raises:
        MetadataError: `SCHEMA_FILE_INVALID`.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise _no_schema(f"it can't be read: {reason}", file) from error
    columns: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, kind = [*re.split(r"\s{2,}|\t|(?<=\S) (?!.*\s{2,})", line.strip(), maxsplit=1), ""][:2]
        if not name or name.startswith("#") or name in _OURS:
            continue
        if not kind.strip() or name.lower() in lowered(columns):
            raise _no_schema(f"{line.strip()!r} is no name and type, or names a column again", f"{file}:{number}")
        columns[name] = kind.strip()
    if not columns:
        raise _no_schema("it has no columns", file)
    return columns


def _no_schema(what: str, where: str) -> MetadataError:
    remedy = "write a name and a type a line, as `gddl schema --table T` prints them"
    return MetadataError("SCHEMA_FILE_INVALID", what, where=where, remedy=remedy)


def show_applied(screen: Screen, result: JobResult) -> None:
    """Both schemas, and what is new."""
    details = answer(result)
    if not details:
        return
    before, after = details["before"], details["after"]
    rows = [[name, before.get(name, "missing"), kind] for name, kind in after.items()]
    screen.table(["column", "before", "would be" if details["dry_run"] else "after"], rows)
    changed = [*details["added"], *details["widened"]]
    word = "would be applied" if details["dry_run"] else "applied"
    screen.say(f"{result.table}: {word}: {', '.join(changed) or 'nothing, it has this schema'}", "green")


def show_dropped(screen: Screen, result: JobResult) -> None:
    """Which columns went, and which are left."""
    details = answer(result).get("rebuild")
    if details:
        left = ", ".join(details["columns"])
        screen.say(f"{result.table}: dropped {', '.join(details['dropped'])}; it has {left}", "green")


def published_fields(roots: Roots, spec: TableSpec, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """The published columns as fields of Delta's schema.

    Raises:
        FatalError: `REPLICA_MISSING`: nothing was loaded yet; `PUBLISHED_COLUMN_MISSING`; `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    path = Layout.of(roots, spec).replica
    text = schema_json(path, environ)
    if text is None:
        what, remedy = f"{spec.table} has no replica yet", f"load it: `gddl run --table '{spec.table}'`"
        raise FatalError("REPLICA_MISSING", what, where=path, remedy=remedy)
    known = {field["name"]: field for field in json.loads(text)["fields"]}
    return [known[name] for name in published_columns(spec, list(known))]


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
    text = _description(field, spec)
    return {**type_schema, "description": text} if text else type_schema


def _description(field: Mapping[str, Any], spec: TableSpec) -> str:
    texts = {name.lower(): text for name, text in spec.column_descriptions.items()}
    return texts.get(field["name"].lower(), "")


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
    _compare(ctx, CatalogDiff(), metadata, table, json)


@app.command()
def sync(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
) -> None:
    """Register missing tables, including dropped entries, and update different entries."""
    _compare(ctx, CatalogSync(), metadata, table, json)


def _compare(ctx: typer.Context, action: Action, metadata: str, table: list[str] | None, json: bool) -> None:
    request = Request(metadata=metadata, tables=tuple(table or ()), options=JobOptions(action=action), as_json=json)
    acted = isinstance(action, CatalogSync)
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
        for one in table["differences"]:
            what = f"{one['aspect']} {one['name']}".strip()
            yield [*first, _state("altered" if acted else "different"), what, one["registered"], one["wanted"]]
        for one in table["unaltered"]:
            what = f"{one['aspect']} {one['name']}".strip()
            yield [*first, _state("different"), f"{what} (can't be altered)", one["registered"], one["wanted"]]


def _state(word: str) -> Cell:
    return Cell(word, _COLORS[word])


def _tables(result: JobResult) -> list[dict[str, Any]]:
    return list(result.details.get("tables", [])) if isinstance(result.details, dict) else []
