"""The JSON Schemas that are checked in: up to date, valid, and of one mind with the catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from airflow_gddl.metadata.json_schema import main, rendered, schemas
from tests.unit.metadata_folder import loaded
from tests.unit.test_catalog_load import FULL_JSON

FOLDER = Path(__file__).parents[2] / "metadata" / "schema"


def errors(name: str, value: Any) -> list[str]:
    return [error.json_path for error in Draft202012Validator(schemas()[name]).iter_errors(value)]


def test_the_files_checked_in_are_what_the_classes_say() -> None:
    expected = {name: rendered(schema) for name, schema in schemas().items()}
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert there == expected, "run: python -m airflow_gddl.metadata.json_schema --write metadata/schema"


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write", str(tmp_path / "new")]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{tmp_path}/new/{name}" for name in sorted(schemas())]
    assert (tmp_path / "new" / "tables.json").read_bytes() == (FOLDER / "tables.json").read_bytes()
    assert main([]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"gddl.json", "keys.json", "tables.json"}


@pytest.mark.parametrize("name", sorted(schemas()))
def test_they_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(schemas()[name])


def test_every_field_is_described() -> None:
    definitions = {**schemas()["tables.json"]["$defs"], **schemas()["gddl.json"]["$defs"]}
    runners = {
        "DatabricksSettings",
        "DatabricksTier",
        "EmrSettings",
        "EmrTier",
        "GlueSettings",
        "GlueTier",
        "SparkSubmitSettings",
    }
    options = {"DebeziumOptions", "DmsOptions"}
    own = {
        "CaptureSpec",
        "CatalogSpec",
        "Defaults",
        "Expectation",
        "InitialLoad",
        "LandingRetention",
        "NewTableLimits",
        "SchemaEvolution",
        "SchemaGate",
        "SourceSpec",
        "Table",
        "Tier",
    }
    assert set(definitions) == own | options | runners
    fields = {
        f"{kind}.{name}": field for kind, schema in definitions.items() for name, field in schema["properties"].items()
    }
    assert [name for name, field in fields.items() if not field.get("description")] == []


def test_sound_metadata_passes() -> None:
    assert errors("tables.json", FULL_JSON) == []
    assert errors("tables.json", {"defaults": {"size": "large"}, "tables": [{"table": "a.b"}]}) == []
    assert (
        errors("tables.json", {"tables": [{"table": "a.b", "keys": "id", "columns": "v", "depends_on": "a.c"}]}) == []
    )
    assert errors("keys.json", {"keys": {"a.b": ["id"], "a.c": [], "a.d": "id"}}) == []
    settings = """
landing: /a
lake: s3://b
runner: local
defaults: {owner: me, mask: {email: null}}
tiers: {small: {cores: 4, memory: 8g}, huge: null}
runners:
  local: null
  elsewhere: {host: h}
  databricks: {wheel: /Volumes/a.whl, node_type: n}
  spark_submit: {master: yarn, conf: {spark.a: true, spark.b: 1}}
"""
    assert errors("gddl.json", yaml.safe_load(settings)) == []


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ({"keys": ["id"]}, "$.tables[0]"),
        ({"table": "orders", "keys": ["id"]}, "$.tables[0].table"),
        ({"table": "a.b", "keys": 1}, "$.tables[0].keys"),
        ({"table": "a.b", "keys": ["id"], "colour": 1}, "$.tables[0]"),
        ({"table": "a.b", "keys": ["id"], "history": "yes"}, "$.tables[0].history"),
        ({"table": "a.b", "keys": ["id"], "delete": "sotf"}, "$.tables[0].delete"),
        ({"table": "a.b", "keys": ["id"], "mask": {"a": "x"}}, "$.tables[0].mask.a"),
        ({"table": "a.b", "keys": ["id"], "options": {"lookbak": "1d"}}, "$.tables[0].options"),
        (
            {"table": "a.b", "keys": ["id"], "schema_evolution": {"new_column": 1}},
            "$.tables[0].schema_evolution.new_column",
        ),
        ({"table": "a.b", "keys": ["id"], "schedule": 5}, "$.tables[0].schedule"),
    ],
)
def test_what_the_schema_refuses_the_catalog_refuses(tmp_path: Path, row: dict[str, Any], path: str) -> None:
    assert set(errors("tables.json", {"tables": [row]})) == {path}
    catalog = loaded(tmp_path, {"tables/a.json": json.dumps({"tables": [row]})})
    assert (catalog.tables, len(catalog.problems)) == ((), 1)


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("tables.json", {"source": "a"}, "$"),
        ("tables.json", {"tables": [], "default": {}}, "$"),
        ("tables.json", {"tables": [], "defaults": {"keys": ["id"]}}, "$.defaults"),
        ("keys.json", {"keys": {"a.b": 1}}, "$.keys['a.b']"),
        ("keys.json", {"key": {}}, "$"),
        ("gddl.json", {"landig": "a"}, "$"),
        ("gddl.json", {"tiers": {"small": {"cores": 0}}}, "$.tiers.small"),
        ("gddl.json", {"runners": {"spark_submit": {"master": "yarn", "mastr": "yarn"}}}, "$.runners.spark_submit"),
        ("gddl.json", {"defaults": {"table": "a.b"}}, "$.defaults"),
    ],
)
def test_wrong_files_are_refused(name: str, value: Any, path: str) -> None:
    assert errors(name, value) == [path]
