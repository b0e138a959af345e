"""Small tables, spread over Spark tasks, registered in a Derby-backed Hive metastore and queried by name from Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import CompareCatalogs
from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from tests.harness.lake import TIER, Lake, spec_of
from tests.harness.landing import write
from tests.spark.children import ROOT

_SITE = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:;databaseName={}/metastore;create=true</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
</configuration>"""


class Session:
    """A process with one Spark, which `hive_session` describes; a metastore of Derby has one process at a time."""

    def __init__(self, environ: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.catalogs.hive_session"], cwd=ROOT, env=environ, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def run(self, job: JobSpec) -> dict[str, dict[str, Any]]:
        return {found["table"]: found for found in self._ask(run=json.loads(to_json(job)))}

    def sql(self, statement: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._ask(sql=statement)
        return rows

    def entry(self, table: str) -> dict[str, Any]:
        found: dict[str, Any] = self._ask(entry=table)
        return found

    def _ask(self, **asked: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(asked)}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-3000:]
        return json.loads(line)


@dataclass(frozen=True)
class HiveWorld:
    root: Path

    @property
    def lake(self) -> Lake:
        return Lake(self.root)

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
        return subprocess.run(command, env=self.environ, text=True, capture_output=True, check=False, timeout=1800)

    def results(self, *arguments: str, status: int = 0) -> dict[str, dict[str, Any]]:
        done = self.gddl(*arguments, "--json")
        assert done.returncode == status, done.stderr[-3000:]
        return {found["table"]: found for found in map(json.loads, done.stdout.splitlines())}

    def session(self) -> Session:
        return Session(self.environ, self.root / "session.log")

    def job(self, specs: list[TableSpec], options: JobOptions | None = None) -> JobSpec:
        """What `gddl` makes of the metadata, with small tables in Spark tasks."""
        named = [replace(spec, catalog="main", settle="0s") for spec in specs]
        lake = Lake(self.root, replace(TIER, tasks="one"))
        return replace(lake.job(named, options), catalogs={"main": CatalogSpec(kind="hive")})


@pytest.fixture
def world(tmp_path: Path) -> HiveWorld:
    return HiveWorld(tmp_path)


def _warned(results: Mapping[str, dict[str, Any]]) -> set[str]:
    return {one["code"] for found in results.values() for one in found["warnings"]}


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("tables", [6, pytest.param(1000, marks=pytest.mark.deep)])
def test_tables_are_queried_by_name_and_follow_their_columns(world: HiveWorld, tables: int) -> None:
    specs = [spec_of(f"t{i}") for i in range(tables)]
    for spec in specs:
        world.lake.load(spec)
    world.set_up(specs)
    results = world.results("run")
    assert {found["status"] for found in results.values()} == {"succeeded"}
    assert _warned(results) == set()
    with world.session() as session:
        assert {row["tableName"] for row in session.sql("SHOW TABLES IN s")} == {spec.name for spec in specs}
        rows = session.sql("SELECT id, v FROM s.t2 ORDER BY id")
        assert rows == [{"id": 0, "v": "load 0"}, {"id": 1, "v": "load 1"}, {"id": 2, "v": "load 2"}]
        assert session.sql("SELECT count(*) AS n FROM s.t0 JOIN s.t1 USING (id)") == [{"n": 3}]
        entry = session.entry("s.t0")
        assert entry["provider"] == "delta"
        assert [field["name"] for field in entry["schema"]["fields"]] == ["id", "v", "_gddl"]
        session.sql("DROP TABLE s.t1")

        columns = {"Op": ["I"], "seq": [1], "id": pa.array([9], pa.int32()), "v": ["new"], "extra": ["more"]}
        for spec in specs[:2]:
            write(Path(world.lake.layout(spec).landing), "20240101-000000001.parquet", pa.table(columns))
        results = session.run(world.job(specs))
        assert [one["code"] for one in results["s.t0"]["warnings"]] == []
        assert [one["code"] for one in results["s.t1"]["warnings"]] == ["CATALOG_TABLE_DROPPED"]
        assert _warned(session.run(world.job(specs, JobOptions(action=CompareCatalogs(mode="sync"))))) == set()
        assert session.sql("SELECT extra FROM s.t0 WHERE id = 9") == [{"extra": "more"}]
        assert "extra" in [field["name"] for field in session.entry("s.t0")["schema"]["fields"]]
        assert session.sql("SELECT count(*) AS n FROM s.t1") == [{"n": 4}]
