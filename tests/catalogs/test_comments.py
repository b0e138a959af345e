"""Descriptions of rows as comments of Delta tables, and on to the catalog; on the engine without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_gddl.stores import Storage
from spark_jobs.rooms.catalogs.registrar import read_info
from tests.catalogs.world import CatalogWorld, row


@pytest.fixture
def world(tmp_path: Path) -> CatalogWorld:
    return CatalogWorld(tmp_path)


def comments(path: str) -> tuple[str, dict[str, str]]:
    info = read_info(Storage(), path)
    assert info is not None
    return info.comment, {column.name: column.comment for column in info.columns if column.comment}


def test_they_are_there_from_the_first_load(world: CatalogWorld) -> None:
    spec = row(catalog=None, history=True, description="All orders", column_descriptions={"ID": "the key", "gone": "x"})
    world.lake.load(spec)
    world.lake.done(spec)
    assert comments(world.lake.layout(spec).replica) == ("All orders", {"id": "the key"})
    assert comments(world.lake.layout(spec).history) == ("", {"id": "the key"})
    assert world.lake.replica(spec) == {0: "load 0", 1: "load 1", 2: "load 2"}


def test_a_changed_row_updates_its_comments_and_keeps_user_comments(world: CatalogWorld) -> None:
    spec = row(catalog=None)
    world.lake.load(spec)
    world.lake.done(spec)
    path = world.lake.layout(spec).replica
    table = DeltaTable(path)
    table.alter.set_column_metadata("v", {"comment": "a person's"})
    table.alter.set_table_description("by hand")
    described = replace(spec, column_descriptions={"id": 'it\'s the "key"\nof all'})
    world.lake.change(described, 1, [("U", 0, "new")])
    world.lake.done(described)
    assert comments(path) == ("by hand", {"id": 'it\'s the "key"\nof all', "v": "a person's"})
    again = replace(described, description="Orders", column_descriptions={"id": "key", "extra2": "came later"})
    world.add_column(again, 2)
    world.lake.done(again)
    assert comments(path) == ("Orders", {"id": "key", "v": "a person's", "extra2": "came later"})
    log = sorted(Path(path, "_delta_log").glob("*.json"))
    made = len(log)
    world.lake.change(again, 3, [("U", 1, "newer")], day=3)
    world.lake.done(again)
    new = "".join(file.read_text() for file in sorted(Path(path, "_delta_log").glob("*.json"))[made:])
    actions = [json.loads(line) for line in new.splitlines()]
    assert not [action for action in actions if "metaData" in action]
    assert world.lake.replica(again)[1] == "newer"
