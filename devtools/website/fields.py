"""Every field of the metadata, from the classes that validate it: types, allowed values, defaults, descriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow_gddl.metadata.json_schema import schemas

Schema = Mapping[str, Any]
_HEAD = """# Every field

Made from the classes that check the metadata, as the JSON Schemas of `metadata/schema` are.
[metadata.md](metadata.md) tells what to do with these fields, with examples.

"""
_PARTS = (
    ("tables.json", "Table", "A row of `tables/`"),
    ("tables.json", "SchemaEvolution", "`schema_evolution` of a row"),
    ("tables.json", "DmsOptions", "`options` of a row, dialect `dms`"),
    ("tables.json", "DebeziumOptions", "`options` of a row, dialect `debezium`"),
    ("gddl.json", "", "`gddl.yaml`"),
    ("gddl.json", "CatalogSpec", "A catalog of `catalogs`"),
    ("gddl.json", "Tier", "A tier of `tiers`"),
    ("gddl.json", "DatabricksSettings", "`runners: databricks`"),
    ("gddl.json", "DatabricksTier", "`tiers` of `runners: databricks`"),
    ("gddl.json", "EmrSettings", "`runners: emr_serverless`"),
    ("gddl.json", "EmrTier", "`tiers` of `runners: emr_serverless`"),
    ("gddl.json", "GlueSettings", "`runners: glue`"),
    ("gddl.json", "GlueTier", "`tiers` of `runners: glue`"),
    ("gddl.json", "SparkSubmitSettings", "`runners: spark_submit`"),
)
"""File, definition (empty: the file itself) and title; definitions that nobody titled come last, by name."""
_NOT_SHOWN = {"Defaults"}


def page(_root: Path) -> str:
    """Markdown, a table for each class."""
    files = schemas()
    listed = {name for _, name, _ in _PARTS}
    parts = [*_PARTS, *((file, name, f"`{name}`") for file, name in _others(files, listed))]
    return _HEAD + "\n".join(_section(title, _definition(files[file], name)) for file, name, title in parts)


def _others(files: Mapping[str, Schema], listed: set[str]) -> Iterator[tuple[str, str]]:
    seen = set(listed) | _NOT_SHOWN
    for file in ("tables.json", "gddl.json"):
        for name, definition in sorted(files[file].get("$defs", {}).items()):
            if name not in seen and definition.get("properties"):
                seen.add(name)
                yield file, name


def _definition(schema: Schema, name: str) -> Schema:
    found: Schema = schema["$defs"][name] if name else schema
    return found


def _section(title: str, definition: Schema) -> str:
    required = set(definition.get("required", ()))
    rows = [
        f"| `{name}` | {_form(field)} | {_default(name, field, required)} | {_words(field)} |"
        for name, field in definition["properties"].items()
    ]
    return "\n".join([f"## {title}", "", "| field | form | default | |", "|---|---|---|---|", *rows, ""])


def _words(field: Schema) -> str:
    return " ".join(str(field.get("description", "")).split()).replace("|", "¦")


def _default(name: str, field: Schema, required: set[str]) -> str:
    if name in required:
        return "required"
    return f"`{json.dumps(field['default'], ensure_ascii=False)}`" if "default" in field else ""


def _form(field: Schema) -> str:
    """A field's type in words."""
    if "enum" in field:
        return " ".join(f"`{json.dumps(value) if value is None else value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if "$ref" in field:
        return f"as *{field['$ref'].rpartition('/')[2]}*"
    if "anyOf" in field:
        return " or ".join(_form(one) for one in field["anyOf"])
    kind = field.get("type", "anything")
    return " or ".join(_plain(one, field) for one in ([kind] if isinstance(kind, str) else kind))


def _plain(kind: str, field: Schema) -> str:
    if kind == "array" and "items" in field:
        return f"list of {_form(field['items'])}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict) and field["additionalProperties"]:
        return f"mapping to {_form(field['additionalProperties'])}"
    words = {"object": "mapping", "array": "list", "string": "text", "boolean": "`true` `false`", "number": "number"}
    least = f", {field['minimum']} or more" if "minimum" in field else ""
    return words.get(kind, kind) + least
