"""Registered tables that get another name in the lake: the entry follows, and the former one is reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import CatalogDiff, CatalogSync, Move
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.catalogs.test_glue import entry
from tests.catalogs.unity_server import UnityWorld, unity_server
from tests.catalogs.world import GLUE, CatalogWorld, codes, row

SYNC, DIFF = JobOptions(action=CatalogSync()), JobOptions(action=CatalogDiff())


@pytest.fixture
def world(tmp_path: Path) -> CatalogWorld:
    return CatalogWorld(tmp_path)


@pytest.fixture
def unity() -> Iterator[UnityWorld]:
    with unity_server() as found:
        yield found


def moved(world: CatalogWorld, spec: TableSpec, to: str) -> TableSpec:
    """The table under its new name."""
    assert world.run(spec, options=JobOptions(action=Move(to=to))).error is None
    return replace(spec, table=to, source_table=spec.name_in_source)


def shown(result: Any) -> set[tuple[str, str]]:
    return {(one["name"], one["code"]) for one in result.details["tables"] if one["code"]}


def test_a_moved_table_is_registered_anew_and_the_old_entry_reported(world: CatalogWorld, glue: Any) -> None:
    spec = row()
    world.lake.load(spec)
    assert codes(world.run(spec)) == []
    old = entry(glue)["StorageDescriptor"]["Location"]
    new = moved(world, spec, "shop.sales")
    assert codes(world.run(new)) == ["CATALOG_ENTRY_LEFT"], "also by a run that finds nothing to load"
    assert entry(glue, "sales", "shop")["StorageDescriptor"]["Location"] == world.lake.layout(new).replica
    assert entry(glue)["StorageDescriptor"]["Location"] == old, "nothing of others is dropped or changed"
    assert codes(world.run(new)) == [], "it is said once"
    assert shown(world.run(new, options=DIFF)) == {("s.orders", "CATALOG_ENTRY_LEFT")}
    assert shown(world.run(new, options=SYNC)) == {("s.orders", "CATALOG_ENTRY_LEFT")}
    glue.delete_table(DatabaseName="s", Name="orders")
    assert codes(world.run(new, options=SYNC)) == []
    assert shown(world.run(new, options=DIFF)) == set()


def test_an_entry_whose_name_stays_follows_the_location(world: CatalogWorld, glue: Any) -> None:
    fixed = replace(world, catalogs={"main": replace(GLUE, database="lake", table="{table}")})
    spec = row()
    fixed.lake.load(spec)
    fixed.run(spec)
    new = moved(fixed, spec, "shop.orders")
    assert codes(fixed.run(new)) == []
    found = entry(glue, "orders", "lake")
    assert found["StorageDescriptor"]["Location"] == fixed.lake.layout(new).replica
    assert found["Parameters"]["gddl.table"] == "shop.orders"


def test_other_templates_leave_the_former_entry(world: CatalogWorld, glue: Any) -> None:
    spec = row()
    world.lake.load(spec)
    world.run(spec)
    other = replace(world, catalogs={"main": replace(GLUE, table="x_{table}")})
    assert codes(other.run(spec)) == ["CATALOG_ENTRY_LEFT"]
    assert entry(glue, "x_orders")["Parameters"]["gddl.table"] == "s.orders"
    assert codes(world.run(spec)) == ["CATALOG_ENTRY_LEFT"], "and back: the first name is this table's again"
    assert shown(world.run(spec, options=DIFF)) == {("s.x_orders", "CATALOG_ENTRY_LEFT")}


def test_another_account_starts_anew(world: CatalogWorld, glue: Any) -> None:
    spec = row()
    world.lake.load(spec)
    world.run(spec)
    elsewhere = replace(world, catalogs={"main": replace(GLUE, region="us-east-1")})
    assert codes(elsewhere.run(spec)) == [], "nothing was dropped there, and nothing is left"


def test_a_catalog_that_cannot_change_a_location_says_so(world: CatalogWorld, unity: UnityWorld) -> None:
    secret = {"token_env": "GDDL_CATALOG_TOKEN"}
    catalog = CatalogSpec(kind="unity", url=unity.url, catalog_name="lake", database="all", timeout="2s", **secret)
    world = replace(world, catalogs={"main": catalog}, environ={"GDDL_CATALOG_TOKEN": "tok"})
    spec = row()
    world.lake.load(spec)
    assert codes(world.run(spec)) == []
    new = moved(world, spec, "shop.orders")
    assert codes(world.run(new)) == ["CATALOG_NAME_TAKEN"]
    del unity.tables["lake.all.orders"]
    assert codes(world.run(new, options=SYNC)) == []
    assert str(world.lake.layout(new).replica) in unity.tables["lake.all.orders"]["storage_location"]
