"""Registration in Unity Catalog over REST, each request held to the published OpenAPI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import CompareCatalogs
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.spec import JobOptions
from tests.catalogs.unity_server import UnityWorld, unity_server
from tests.catalogs.world import CatalogWorld, codes, row


@pytest.fixture
def unity() -> Iterator[UnityWorld]:
    with unity_server() as world:
        yield world


@pytest.fixture
def world(tmp_path: Path, unity: UnityWorld) -> CatalogWorld:
    spec = CatalogSpec(kind="unity", url=unity.url, catalog_name="lake", token_env="GDDL_CATALOG_T", timeout="2s")  # noqa: S106 - a name
    return CatalogWorld(tmp_path, {"main": spec}, environ={"GDDL_CATALOG_T": "tok"})


def test_a_table_is_registered_with_its_columns(world: CatalogWorld, unity: UnityWorld) -> None:
    spec = row("Orders", description="All orders", column_descriptions={"id": "the key"})
    world.lake.load(spec)
    assert codes(world.run(spec)) == []
    found = unity.tables["lake.s.orders"]
    assert found["storage_location"] == f"file://{world.lake.layout(spec).replica}"
    assert (found["table_type"], found["data_source_format"], found["comment"]) == ("EXTERNAL", "DELTA", "All orders")
    first = found["columns"][0]
    assert {name: first[name] for name in ("name", "type_text", "type_name", "position", "comment")} == {
        "name": "id",
        "type_text": "int",
        "type_name": "INT",
        "position": 0,
        "comment": "the key",
    }
    assert json.loads(first["type_json"])["type"] == "integer"
    assert unity.tokens == {"Bearer tok"}
    unity.asked.clear()
    assert codes(world.run(spec)) == []
    assert unity.asked == []


def test_unsupported_changes_are_reported(world: CatalogWorld, unity: UnityWorld) -> None:
    spec = row()
    world.lake.load(spec)
    world.run(spec)
    unity.tables["lake.s.orders"]["properties"]["by"] = "a person"
    unity.tables["lake.s.orders"]["comment"] = "by hand"
    world.add_column(spec, 1)
    owned = replace(spec, owner="shop")
    result = world.run(owned)
    assert codes(result) == ["CATALOG_CHANGE_UNSUPPORTED"]
    found = unity.tables["lake.s.orders"]
    assert (found["properties"]["by"], found["properties"]["gddl.owner"], found["comment"]) == (
        "a person",
        "shop",
        "by hand",
    )
    assert codes(world.run(owned)) == []
    compared = world.run(owned, options=JobOptions(action=CompareCatalogs()))
    left = {(one["aspect"], one["name"]) for one in compared.details["tables"][0]["unaltered"]}
    assert ("columns", "extra1") in left
    assert not [asked for asked in unity.asked if asked.startswith("DELETE")]


REFUSALS = [(403, "CATALOG_DENIED"), (401, "CATALOG_DENIED"), (503, "CATALOG_UNREACHABLE"), (302, "CATALOG_REFUSED")]


@pytest.mark.parametrize(("status", "code"), REFUSALS)
def test_refusals_have_codes(world: CatalogWorld, unity: UnityWorld, status: int, code: str) -> None:
    unity.status = status
    specs = [row(f"t{i}") for i in range(3)]
    for spec in specs:
        world.lake.load(spec)
    results = world.run(*specs)
    assert {(result.status, *codes(result)) for result in results.values()} == {("succeeded", code)}
    assert len(unity.asked) == (1 if code == "CATALOG_UNREACHABLE" else 3)
    unity.status = None
    assert {tuple(codes(result)) for result in world.run(*specs).values()} == {("CATALOG_REGISTERED",)}


def test_a_missing_token_and_a_missing_catalog(world: CatalogWorld, unity: UnityWorld) -> None:
    spec = row()
    world.lake.load(spec)
    result = replace(world, environ={}).run(spec)
    assert codes(result) == ["CATALOG_UNREACHABLE"]
    assert "GDDL_CATALOG_T holds no token" in result.warnings[0].message
    assert unity.asked == []
    elsewhere = replace(world.catalogs["main"], catalog_name="nowhere")
    result = replace(world, catalogs={"main": elsewhere}).run(spec)
    assert codes(result) == ["CATALOG_REFUSED"]
    assert "no catalog nowhere" in result.warnings[0].message
