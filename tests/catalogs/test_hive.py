"""Small tables, spread over Spark tasks, registered in a Derby-backed Hive metastore and queried by name from Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.spec import TableSpec
from tests.delta_rs.small_lake import SmallLake, spec_of
from tests.landing import write

TABLES = int(os.environ.get("GDDL_TEST_TABLES", "6"))
"""The number that the test scales with; 1000 takes minutes."""
_SITE = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:;databaseName={}/metastore;create=true</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
</configuration>"""
_READER = """
import json, sys
from dataclasses import replace
from spark_jobs.spark.session import open_session
from spark_jobs.spark.session_settings import SessionSettings
session = open_session(SessionSettings(memory="1g", extra={"spark.sql.catalogImplementation": "hive"}))
external = session._jsparkSession.sharedState().externalCatalog()
for statement in json.load(sys.stdin):
    if statement.startswith("entry "):
        found = external.getTable(*statement.split()[1].split("."))
        print(json.dumps({"schema": json.loads(found.schema().json()), "provider": found.provider().get(),
                          "location": str(found.storage().locationUri().get())}), flush=True)
    else:
        print(json.dumps([row.asDict() for row in session.sql(statement).collect()], default=str), flush=True)
"""


@dataclass(frozen=True)
class HiveWorld:
    root: Path

    @property
    def lake(self) -> SmallLake:
        return SmallLake(self.root)

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "SPARK_CONF_DIR": str(self.root / "conf"), "GDDL_CATALOGS__MAIN__KIND": "hive"}

    def set_up(self, specs: list[TableSpec]) -> None:
        (self.root / "conf").mkdir()
        (self.root / "conf/hive-site.xml").write_text(_SITE.format(self.root))
        folder = self.root / "metadata/tables"
        folder.mkdir(parents=True)
        settings = {"landing": "../landing", "lake": "../lake", "tiers": {"small": {"memory": "1g"}}}
        settings |= {"defaults": {"catalog": "main", "settle": "0s"}}
        (self.root / "metadata/gddl.yaml").write_text(json.dumps(settings))
        rows = [{"table": spec.table, "keys": ["id"], "sequence_by": ["seq"]} for spec in specs]
        (folder / "s.yaml").write_text(json.dumps({"tables": rows}))

    def gddl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "airflow_gddl.cli.main", *arguments, "--metadata", str(self.root / "metadata")]
        return subprocess.run(command, env=self.environ, text=True, capture_output=True, check=False, timeout=900)

    def results(self, *arguments: str, status: int = 0) -> dict[str, dict[str, Any]]:
        done = self.gddl(*arguments, "--json")
        assert done.returncode == status, done.stderr[-3000:]
        return {found["table"]: found for found in map(json.loads, done.stdout.splitlines())}

    def ask(self, *statements: str) -> list[Any]:
        command = [sys.executable, "-c", _READER]
        done = subprocess.run(
            command, env=self.environ, input=json.dumps(statements), text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines() if line[:1] in "[{"]


@pytest.fixture
def world(tmp_path: Path) -> HiveWorld:
    return HiveWorld(tmp_path)


def _warned(results: Mapping[str, dict[str, Any]]) -> set[str]:
    return {one["code"] for found in results.values() for one in found["warnings"]}


def test_tables_are_queried_by_name_and_follow_their_columns(world: HiveWorld) -> None:
    specs = [spec_of(f"t{i}") for i in range(TABLES)]
    for spec in specs:
        world.lake.load(spec)
    world.set_up(specs)
    results = world.results("run")
    assert {found["status"] for found in results.values()} == {"succeeded"}
    assert _warned(results) == set()
    shown, rows, total, entry, _ = world.ask(
        "SHOW TABLES IN s",
        "SELECT id, v FROM s.t2 ORDER BY id",
        "SELECT count(*) AS n FROM s.t0 JOIN s.t1 USING (id)",
        "entry s.t0",
        "DROP TABLE s.t1",
    )
    assert {row["tableName"] for row in shown} == {spec.name for spec in specs}
    assert rows == [{"id": 0, "v": "load 0"}, {"id": 1, "v": "load 1"}, {"id": 2, "v": "load 2"}]
    assert total == [{"n": 3}]
    assert entry["provider"] == "delta"
    assert [field["name"] for field in entry["schema"]["fields"]] == ["id", "v", "_gddl"]

    columns = {"Op": ["I"], "seq": [1], "id": pa.array([9], pa.int32()), "v": ["new"], "extra": ["more"]}
    for spec in specs[:2]:
        write(Path(world.lake.layout(spec).landing), "20240101-000000001.parquet", pa.table(columns))
    results = world.results("run")
    assert [one["code"] for one in results["s.t0"]["warnings"]] == []
    assert [one["code"] for one in results["s.t1"]["warnings"]] == ["CATALOG_TABLE_DROPPED"]
    assert _warned(world.results("catalog", "sync")) == set()
    asked = ("SELECT extra FROM s.t0 WHERE id = 9", "entry s.t0", "SELECT count(*) AS n FROM s.t1")
    rows, entry, again = world.ask(*asked)
    assert rows == [{"extra": "more"}]
    assert "extra" in [field["name"] for field in entry["schema"]["fields"]]
    assert again == [{"n": 4}]
