"""Views of a cut in a Derby-backed Hive metastore, made by `gddl as-of` and read by Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import ConsistentCut
from airflow_gddl.contract.spec import JobOptions
from tests.as_of.test_by_time import Service, at, spec_of
from tests.catalogs.test_hive import HiveWorld

SPECS = [
    spec_of("accounts", history=True, catalog="main"),
    spec_of("orders", history=True, catalog="main", delete="soft"),
]


@pytest.fixture
def world(tmp_path: Path) -> HiveWorld:
    made = HiveWorld(tmp_path)
    made.set_up([])
    rows: list[dict[str, Any]] = [
        {"table": spec.table, "keys": ["id"], "history": True, "delete": spec.delete} for spec in SPECS
    ]
    (tmp_path / "metadata/tables/s.yaml").write_text(json.dumps({"source": "default", "tables": rows}))
    return made


def land(world: HiveWorld) -> Service:
    service = Service(world.lake)
    service.load(SPECS[0], {1: 100, 2: 100})
    service.load(SPECS[1], {0: 0, 5: 5})
    service.change(SPECS[0], [(at(1), "U", 1, 90), (at(1), "U", 2, 110), (at(7), "U", 1, 70), (at(7), "U", 2, 130)])
    service.change(SPECS[1], [(at(1), "I", 1, 10), (at(2), "D", 5, None), (at(7), "U", 1, 11), (at(8), "I", 2, 2)])
    return service


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_views_are_queried_by_name_and_dropped(world: HiveWorld) -> None:
    service = land(world)
    assert {found["status"] for found in world.results("run").values()} == {"succeeded"}
    made = world.gddl("as-of", "--source", "default", "--to", "views", "--at", at(5).isoformat(), "--prefix", "close")
    assert made.returncode == 0, made.stderr[-3000:]
    again = world.gddl("as-of", "--source", "default", "--to", "views", "--at", at(5).isoformat(), "--prefix", "close")
    assert "[CUT_EXISTS]" in again.stderr
    service.change(SPECS[0], [(at(9), "D", 1, None)])
    service.change(SPECS[1], [(at(9), "U", 0, 9)])
    results = world.results("run")
    assert [one["code"] for found in results.values() for one in found["warnings"]] == []
    with world.session() as session:
        assert session.sql("SELECT * FROM s.close__accounts ORDER BY id") == [{"id": 1, "v": 90}, {"id": 2, "v": 110}]
        orders = "SELECT id, v, _gddl.deleted AS gone FROM s.close__orders ORDER BY id"
        assert session.sql(orders) == [
            {"id": 0, "v": 0, "gone": False}, {"id": 1, "v": 10, "gone": False}, {"id": 5, "v": 5, "gone": True},
        ]  # fmt: skip
        columns = session.sql("DESCRIBE s.close__accounts")
        assert [(one["col_name"], one["data_type"]) for one in columns] == [("id", "int"), ("v", "int")]
        assert [row["tableName"] for row in session.sql("SHOW TABLES IN s LIKE 'close*'")] == [
            "close__accounts", "close__orders",
        ]  # fmt: skip
        job = world.job(SPECS, JobOptions(action=ConsistentCut(cut="close", then="register")))
        assert {one["status"] for one in session.run(job).values()} == {"succeeded"}  # its own are made anew
        session.sql("DROP VIEW s.close__orders")
        session.sql("CREATE TABLE s.close__orders (id int) USING parquet")
        refused = session.run(job)
        assert refused["s.accounts"]["status"] == "succeeded"
        assert refused["s.orders"]["error"]["code"] == "CUT_EXISTS"
    dropped = world.gddl("as-of", "drop", "close", "--json")
    assert json.loads(dropped.stdout)["left"] == ["s.close__orders"], dropped.stderr[-3000:]
    with world.session() as session:
        assert [row["tableName"] for row in session.sql("SHOW TABLES IN s LIKE 'close*'")] == ["close__orders"]
