"""JSON Schemas of the metadata files, for editors: made from the same classes that validate the files.

`python -m airflow_gddl.metadata.json_schema --write metadata/schema` writes them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_gddl.contract import spec
from airflow_gddl.contract.extensions import DIALECTS
from airflow_gddl.metadata.settings import (
    AMOUNTS,
    COUNTS,
    DAG_PREFIX,
    TIER,
    settings_of_runner,
)
from airflow_gddl.metadata.sources import CATALOG, SOURCE
from airflow_gddl.metadata.validation import TABLE, FieldShape, options_of
from airflow_gddl.runners.descriptor import RUNNERS

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PRESETS = "a cron line of five fields, `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`, `@once`, `continuous`"
_NO_COMMA: Schema = {"pattern": "^[^,]*$"}
_COLUMNS: Schema = {
    "type": ["array", "string"],
    "minLength": 1,
    **_NO_COMMA,
    "items": {"type": "string", "minLength": 1},
}


def schemas() -> dict[str, Schema]:
    """Schema by file name."""
    return {"gddl.json": _settings(), "keys.json": _keys(), "tables.json": _tables()}


def rendered(schema: Schema) -> str:
    """The text that is checked in."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write(folder: Path) -> list[Path]:
    """Write every schema into a folder, created if missing; return the written files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, schema in schemas().items():
        paths.append(folder / name)
        paths[-1].write_text(rendered(schema), encoding="utf-8")
    return paths


def _tables() -> Schema:
    row, definitions = _row()
    source = "The source's short name, for every row of the file; without it, the defaults' or the file's name."
    properties = {
        "source": {"type": ["string", "null"], "description": source},
        "defaults": {"$ref": "#/$defs/Defaults"},
        "tables": {"type": ["array", "null"], "items": {"$ref": "#/$defs/Table"}, "description": "A row a table."},
    }
    definitions |= {"Table": row, "Defaults": _defaults(row)}
    return _file("A file of metadata/tables", properties, definitions, required=["tables"])


def _settings() -> Schema:
    row, definitions = _row()
    tier, tier_definitions = _split(TIER)
    for name in COUNTS:
        tier["properties"][name]["minimum"] = 1
    for name in AMOUNTS:
        tier["properties"][name]["pattern"] = f"^{spec.MEMORY.pattern}$"
    definitions |= {**tier_definitions, "Tier": tier, "Defaults": _defaults(row)}
    runners = _of_runners(definitions)
    root = "A local path (relative: to this folder) or s3://bucket/prefix; GDDL_{} overrides it."
    properties = {
        "landing": {"type": "string", "description": f"Where files land. {root.format('LANDING')}"},
        "lake": {"type": "string", "description": f"Where tables live. {root.format('LAKE')}"},
        "runner": {"type": "string", "default": "local", "description": "Where jobs run; GDDL_RUNNER overrides it."},
        "aws_conn_id": {
            "type": ["string", "null"],
            "description": "Airflow connection that reaches S3 for landing and lake; GDDL_AWS_CONN_ID overrides it.",
        },
        "dag_prefix": {
            "type": ["string", "null"],
            "pattern": f"^{DAG_PREFIX.pattern}$",
            "description": "Begins DAG ids and names of pools, so that metadata folders can share an Airflow.",
        },
        "defaults": {"$ref": "#/$defs/Defaults"},
        "tiers": _section(
            {"anyOf": [{"$ref": "#/$defs/Tier"}, {"type": "null"}]},
            "Settings of sizes: changes to `small`, `medium`, `large`, or further tiers.",
        ),
        "sources": _section(
            {"anyOf": [_source_schema(definitions), {"type": "null"}]},
            "Source databases by short name, with what holds for all of their tables.",
        ),
        "runners": _section({"type": ["object", "null"]}, "Settings by runner; never secrets.")
        | {"properties": runners},
        "catalogs": _section(
            _defined(CATALOG, definitions), "Catalogs in which tables may be registered, by the name that rows give."
        ),
    }
    return _file("metadata/gddl.yaml", properties, definitions, required=[])


def _section(entry: Schema, description: str) -> Schema:
    """A mapping whose entries are alike."""
    return {"type": ["object", "null"], "additionalProperties": entry, "description": description}


def _source_schema(definitions: Schema) -> Schema:
    schema = _defined(SOURCE, definitions)
    fields = definitions[SOURCE.name]["properties"]
    fields["defaults"] = {"$ref": "#/$defs/Defaults", "description": fields["defaults"]["description"]}
    return schema


def _of_runners(definitions: Schema) -> Schema:
    """Of the runners that have settings, by name."""
    shapes = {name: settings_of_runner(name) for name in RUNNERS.names() if not RUNNERS.is_removed(name)}
    return {name: _defined(shape, definitions) for name, shape in shapes.items() if shape is not None}


def _defined(shape: FieldShape[Any], definitions: Schema) -> Schema:
    """What refers to a class of settings, which is put among the definitions."""
    schema, more = _split(shape)
    definitions |= {**more, shape.name: schema}
    return {"$ref": f"#/$defs/{shape.name}"}


def _keys() -> Schema:
    keys = _section(_COLUMNS, "Key columns by table (`schema.name`); `[]` for a table without keys.")
    return _file("A file of metadata/keys", {"keys": keys}, {}, required=[])


def _file(title: str, properties: Schema, definitions: Schema, required: list[str]) -> Schema:
    schema = {"$schema": _DIALECT, "title": title, "type": "object", "additionalProperties": False}
    schema |= {"properties": properties, "required": required}
    return {**schema, "$defs": dict(sorted(definitions.items()))} if definitions else schema


def _row() -> tuple[Schema, Schema]:
    """Schema of a row, and the definitions it refers to."""
    row, definitions = _split(TABLE)
    fields = row["properties"]
    for name in TABLE.resolved:
        del fields[name]
    for name in ("Term", "Origin"):  # of resolved fields
        del definitions[name]
    # Any of them: the dialect may be set in the defaults.
    options = [_defined(options_of(name), definitions) for name in DIALECTS.built_in]
    fields["options"] = {"anyOf": options, "description": fields["options"]["description"]}
    fields["dialect"]["examples"] = list(DIALECTS.built_in)
    definitions["DmsOptions"]["properties"]["csv_delimiter"] |= {"pattern": r"^(.|\\x[0-7][0-9A-Fa-f])$"}
    fields["table"] |= {"pattern": r"^[^.]+\.[^.]+$"}
    fields["schedule"]["examples"] = ["*/15 * * * *", "@hourly", "continuous", {"assets": ["name"]}]
    del fields["schedule"]["anyOf"][1]["additionalProperties"]["pattern"]  # an asset's name may hold a comma
    fields["schedule"]["description"] += f" Texts: {_PRESETS}."
    # Unquoted `null` is accepted for the text.
    _or_null(fields["mask"]["additionalProperties"])
    _or_null(definitions["SchemaEvolution"]["properties"]["dropped_column"])
    row["required"] = ["table"]
    return row, definitions


def _defaults(row: Schema) -> Schema:
    fields = {name: field for name, field in row["properties"].items() if name not in {"table", "keys"}}
    description = "Fields for every row that does not set them; entries of mappings are merged."
    return {"type": ["object", "null"], "additionalProperties": False, "description": description, "properties": fields}


def _split(shape: FieldShape[Any]) -> tuple[Schema, Schema]:
    schema = _or_one(_untitled(shape.adapter.json_schema()), _NO_COMMA if shape.comma_refused else {})
    return schema, schema.pop("$defs", {})


def _untitled(value: Any) -> Any:
    """Without pydantic's titles, which repeat the names. A field called `title` is a mapping and stays."""
    if isinstance(value, dict):
        return {k: _untitled(v) for k, v in value.items() if k != "title" or isinstance(v, dict)}
    return [_untitled(item) for item in value] if isinstance(value, list) else value


def _or_one(value: Any, text: Schema) -> Any:
    """A single text is accepted wherever a list of texts is expected; see `FieldShape.listed`.

    Args:
        text: what such a text must be.
    """
    if isinstance(value, list):
        return [_or_one(item, text) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _or_one(item, text) for name, item in value.items()}
    if changed.get("type") == "array" and changed.get("items", {}).get("type") == "string":
        changed |= {"type": ["array", "string"], **text}
    return changed


def _or_null(schema: Schema) -> None:
    del schema["type"]
    schema["enum"] = [*schema["enum"], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; without `--write` all schemas go to standard output as one object."""
    parser = argparse.ArgumentParser(prog="python -m airflow_gddl.metadata.json_schema", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="DIR", help="write gddl.json, keys.json and tables.json there")
    folder = parser.parse_args(arguments).write
    text = rendered(schemas()) if folder is None else "".join(f"{path}\n" for path in write(folder))
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
