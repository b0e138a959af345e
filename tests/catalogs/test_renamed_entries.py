"""Registered tables that get another name in the catalog: the former entry is reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import CompareCatalogs
from airflow_gddl.contract.spec import JobOptions
from tests.catalogs.test_glue import entry
from tests.catalogs.world import GLUE, CatalogWorld, codes, row

DIFF = JobOptions(action=CompareCatalogs())


@pytest.fixture
def world(tmp_path: Path) -> CatalogWorld:
    return CatalogWorld(tmp_path)


def shown(result: Any) -> set[tuple[str, str]]:
    return {(one["name"], one["code"]) for one in result.details["tables"] if one["code"]}


def test_another_target_is_registered_beside_the_former_table(world: CatalogWorld, glue: Any) -> None:
    spec = row()
    world.lake.load(spec)
    assert codes(world.run(spec)) == []
    new = replace(spec, table="shop.sales", source_table=spec.name_in_source)
    assert codes(world.run(new)) == []
    for one, name, database in ((new, "sales", "shop"), (spec, "orders", "s")):
        assert entry(glue, name, database)["StorageDescriptor"]["Location"] == world.lake.layout(one).replica


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
