"""Tasks for a user's own DAG: loads of named and selected tables, the wait for them, and DAGs by selection."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_gddl.configuration import compiled_metadata, metadata_place
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import DEFAULT_TIERS
from airflow_gddl.dags.factory import GddlTaskGroup, build_dags
from airflow_gddl.operators.jobs import GddlLoadOperator
from airflow_gddl.runtime.table_directory import TableRow, selected
from airflow_gddl.sensors.loaded import GddlSensor
from tests.airflow.stage import Stage
from tests.airflow.stored import put
from tests.airflow.test_run import PACK, events
from tests.airflow.test_run import run as run_pack

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]
DATES = (datetime(2023, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in itertools.count())
LARGE = "gddl.shop.c"


@pytest.fixture(autouse=True)
def tables(stage: Stage) -> None:
    stage.rows(
        "{table: shop.a, keys: [id], tags: {finance: x, domain: sales}, owner: sales}",
        "{table: shop.b, keys: [id]}",
        "{table: shop.c, keys: [id], size: large, tags: {finance: x}}",
    )
    for name in "abc":
        stage.land(f"shop.{name}")


def own_dag(name: str = "own", **arguments: Any) -> DAG:
    with DAG(name, schedule=None, start_date=datetime(2023, 1, 1, tzinfo=UTC), params={"wanted": "shop.b"}) as dag:
        GddlLoadOperator(task_id="load", **arguments)
    return dag


def states(dag: DAG, **conf: Any) -> dict[str, str]:
    put(dag)
    done = dag.test(logical_date=next(DATES), run_conf=conf)
    return {ti.task_id: str(ti.state) for ti in done.get_task_instances()}


def test_named_tables_are_loaded_and_the_schedule_knows(stage: Stage) -> None:
    events()
    assert states(own_dag(tables=["shop.a", "shop.c"])) == {"load": "success"}
    assert sorted(stage.loaded) == [["shop.a"], ["shop.c"]], "a job for each DAG that loads them otherwise"
    assert sorted(events()) == ["shop.a", "shop.c"]
    assert sorted(stage.state(PACK).hints) == ["shop.a"]
    assert run_pack()["run"] == "success"
    assert stage.loaded[-1] == ["shop.b"]
    assert states(own_dag(tables=["shop.a"], rebuild=True)) == {"load": "success"}
    assert stage.jobs[-1]["options"]["action"]["name"] == "rebuild"


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        ({"tables": "{{ params.wanted }}"}, [["shop.b"]]),
        ({"tables": "shop.a, shop.b"}, [["shop.a", "shop.b"]]),
        ({"select": ["tag:finance"]}, [["shop.a"], ["shop.c"]]),
        ({"select": ["tag:domain:sales"]}, [["shop.a"]]),
        ({"select": "tag:finance,tier:small owner:nobody"}, [["shop.a"]]),
        ({"select": ["shop.*"], "exclude": ["tag:finance"]}, [["shop.b"]]),
    ],
)
def test_templates_and_selectors_choose_the_tables(
    stage: Stage, arguments: dict[str, Any], loaded: list[list[str]]
) -> None:
    assert states(own_dag(**arguments)) == {"load": "success"}
    assert sorted(stage.loaded) == loaded


@pytest.mark.parametrize(
    "arguments", [{}, {"tables": ["shop.nono"]}, {"select": ["colour:red"]}, {"select": ["tag:nobody"]}]
)
def test_a_request_for_nothing_fails(stage: Stage, arguments: dict[str, Any]) -> None:
    assert states(own_dag(**arguments)) == {"load": "failed"}
    assert stage.loaded == []


def test_a_failing_table_fails_the_task_after_the_others(stage: Stage) -> None:
    stage.order(fail={"shop.a": ["SCHEMA_REFUSED", "no"]})
    events()
    assert states(own_dag(select=["shop.*"])) == {"load": "failed"}
    assert sorted(stage.loaded) == [["shop.a", "shop.b"], ["shop.c"]]
    assert sorted(stage.state(PACK).pending) == ["shop.b"], "the next run of its DAG sends the event"


def test_named_tables_are_loaded_in_order_and_wait_for_no_other(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], depends_on: [shop.b, shop.c]}", "{table: shop.b, keys: [id]}")
    stage.rows("{table: shop.c, keys: [id], size: large}", file="tables/more.yaml")
    assert states(own_dag(tables=["shop.a", "shop.b"])) == {"load": "success"}
    assert stage.loaded == [["shop.b"], ["shop.a"]]


def waits(**arguments: Any) -> bool:
    sensor = GddlSensor(task_id="wait", **arguments)
    return not sensor.poke({})


def test_the_sensor_waits_until_tables_hold_what_had_landed(stage: Stage) -> None:
    now = datetime.now(UTC).isoformat()
    assert waits(tables=["shop.a"], as_of=now)
    states(own_dag(tables=["shop.a"]))
    assert not waits(tables=["shop.a"], as_of=now)
    assert waits(tables="shop.a shop.b", as_of=now)
    assert not waits(select="tag:finance", exclude="tier:large", as_of=now)
    assert waits(tables=["shop.a"], as_of=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    with pytest.raises(Exception, match=r"OPTION_INVALID.*as_of"):
        waits(tables=["shop.a"], as_of="yesterday")


@pytest.mark.parametrize(
    ("by_table", "tasks"), [(True, ["shop.shop.a", "shop.shop.c"]), (False, [f"shop.{LARGE}", f"shop.{PACK}"])]
)
def test_a_task_group_has_a_task_for_each_table_or_job(stage: Stage, by_table: bool, tasks: list[str]) -> None:
    with DAG("group", schedule=None, start_date=datetime(2023, 1, 1, tzinfo=UTC)) as dag:
        GddlTaskGroup("shop", select=["tag:finance"], by_table=by_table, operator_args={"pool": "default_pool"})
    assert sorted(dag.task_ids) == sorted(tasks)
    assert set(states(dag).values()) == {"success"}
    assert sorted(stage.loaded) == [["shop.a"], ["shop.c"]]


def test_dags_are_selected(stage: Stage) -> None:
    assert sorted(build_dags()) == [LARGE, PACK]
    assert sorted(build_dags(select=["tier:large"])) == [LARGE]
    assert sorted(build_dags(exclude=["tier:large"])) == [PACK]
    assert sorted(build_dags(select=["owner:sales", "shop.c"])) == [LARGE, PACK]
    with pytest.raises(MetadataError, match=r"OPTION_INVALID.*colour:red.*tag, owner"):
        build_dags(select=["colour:red"])


def test_a_dag_that_cannot_be_built_is_named_though_other_files_build_theirs(stage: Stage) -> None:
    def fails(dag: DAG) -> None:
        raise RuntimeError(dag.dag_id)

    for given in ({"select": ["tier:large"]}, {"exclude": ["tier:large"]}):
        build_dags(**given, on_dag=fails)
    compiled = compiled_metadata(metadata_place(None, None), parsing=True)
    assert [line.partition(":")[0] for line in compiled.unbuilt()] == [LARGE, PACK]
    build_dags(select=["tier:large"])
    assert [line.partition(":")[0] for line in compiled.unbuilt()] == [PACK]


def test_selectors_choose_rows_by_each_field() -> None:
    rows = [TableRow(table="s.a", source="s", tier="small", owner="x", tags=("t", "u")), TableRow(table="s.b")]
    found = lambda *select: [row.table for row in selected(rows, select)]  # noqa: E731 - as it reads
    assert found() == ["s.a", "s.b"]
    assert (found("tag:t,tag:u"), found("tag:t,tag:v"), found("tag:?", "s.b")) == (["s.a"], [], ["s.a", "s.b"])
    assert (found("source:s"), found("owner:x"), found("table:*.b")) == (["s.a"], ["s.a"], ["s.b"])
    for wrong in ("tag:", "colour:red", ""):
        with pytest.raises(MetadataError, match="OPTION_INVALID"):
            found(wrong)


@pytest.fixture
def databricks(stage: Stage) -> Iterator[Any]:
    pytest.importorskip("databricks.sdk")
    from airflow_gddl.runners.databricks.jobs import jobs_of  # noqa: PLC0415 - optional
    from airflow_gddl.runners.databricks.settings import DatabricksSettings  # noqa: PLC0415 - as above
    from devtools.fake_databricks.server import serving  # noqa: PLC0415 - as above

    own = {"wheel": "/Volumes/w.whl", "node_type": "n", "local_roots": True}
    with serving([sys.executable, str(Path(__file__).with_name("fake_job.py"))]) as server:
        port = int(server.workspace.url.rpartition(":")[2])
        address = {"conn_type": "databricks", "schema": "http", "host": "127.0.0.1", "password": server.token}
        stage.monkeypatch.setenv("AIRFLOW_CONN_DATABRICKS_DEFAULT", json.dumps({**address, "port": port}))
        stage.monkeypatch.setattr("airflow_gddl.triggers.FIRST_PAUSE", 0.1)
        lines = ["landing: ../landing", "lake: ../lake", "runner: databricks"]
        stage.write("gddl.yaml", "\n".join([*lines, f"runners: {{databricks: {json.dumps(own)}}}", ""]))
        tiers = {name: DEFAULT_TIERS[name] for name in ("small", "large")}
        for settings in jobs_of(tiers, DatabricksSettings(**own)).values():
            server.workspace.create(settings)
        yield server.workspace


def test_jobs_elsewhere_are_waited_for_in_the_triggerer(stage: Stage, databricks: Any) -> None:
    stage.order(fail={"shop.c": ["SCHEMA_REFUSED", "no"]})
    assert states(own_dag(select=["shop.*"])) == {"load": "failed"}, "the failure of the first job is kept"
    assert sorted(stage.loaded) == [["shop.a", "shop.b"], ["shop.c"]]
    stage.order()
    assert states(own_dag(select=["shop.*"])) == {"load": "success"}
    assert len(databricks.runs) == 4
