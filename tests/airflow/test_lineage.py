"""OpenLineage events of loads, as Airflow's provider writes them with its file transport."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run as start
from typing import Any

import pytest
from airflow.providers.openlineage import conf
from airflow.providers.openlineage.plugins.listener import OpenLineageListener

try:  # tasks have listeners of their own in newer versions
    from airflow.sdk.listener import get_listener_manager
except ImportError:
    from airflow.listeners.listener import get_listener_manager

from airflow_gddl.contract.result import JobResult, MainCounts, ResultColumn, RunWarning
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.dags.factory import build_dags
from airflow_gddl.operators import lineage
from airflow_gddl.reporting.results import LoadedTables
from tests.airflow.clearing import clear
from tests.airflow.openlineage_events import events, require_valid
from tests.airflow.stage import Stage
from tests.airflow.test_run import DATES, PACK, run

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning"),
]
COLUMNS = [
    {"name": "id", "type": "bigint", "sources": ["id"]},
    {"name": "E_Mail", "type": "string", "sources": ["E Mail"], "masked": True},
    {"name": "_gddl", "type": "struct<op:string>"},
]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that gets the events of all tasks."""
    manager = get_listener_manager()  # loads the plugins; the provider's own listener stays away without a transport
    path = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(path), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    _forget_configuration()
    listener = OpenLineageListener()
    manager.add_listener(listener)
    yield path
    manager.pm.unregister(listener)
    listener.before_stopping(None)
    monkeypatch.undo()
    _forget_configuration()


def _forget_configuration() -> None:
    for function in vars(conf).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def _names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(dataset["namespace"], dataset["name"]) for dataset in datasets]


def _by_name(datasets: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {dataset["name"]: dataset for dataset in datasets}


def test_a_pack_of_two_tables_has_two_inputs_and_two_replicas(stage: Stage, log: Path) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id], history: true}")
    stage.land("shop.a")
    stage.land("shop.b")
    stage.order(columns={"shop.a": COLUMNS, "shop.b": COLUMNS})
    assert run()["initial_load"] == "success"
    (event,) = events(log, f"{PACK}.initial_load")
    assert event["eventType"] == "COMPLETE"
    assert _names(event["inputs"]) == [("file", f"{stage.landing}/shop/{name}") for name in "ab"]
    outputs = [f"{stage.lake}/shop/{name}" for name in ("a", "a__changes", "b", "b__changes", "b__history")]
    assert _names(event["outputs"]) == [("file", name) for name in outputs]
    read = event["inputs"][0]["inputFacets"]["inputStatistics"]
    assert (read["rowCount"], read["fileCount"]) == (7, 1)
    replica = _by_name(event["outputs"])[f"{stage.lake}/shop/a"]
    assert replica["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert replica["facets"]["version"]["datasetVersion"] == "3"
    fields = [(field["name"], field["type"]) for field in replica["facets"]["schema"]["fields"]]
    assert fields == [("id", "bigint"), ("E_Mail", "string"), ("_gddl", "struct<op:string>")]


def test_masked_columns_are_marked_wherever_they_are_written(stage: Stage, log: Path) -> None:
    stage.rows("{table: shop.a, keys: [id], history: true}")
    stage.land("shop.a")
    stage.order(columns={"shop.a": COLUMNS})
    run()
    (event,) = events(log, f"{PACK}.initial_load")
    assert len(event["outputs"]) == 3
    for dataset in event["outputs"]:
        fields = dataset["facets"]["columnLineage"]["fields"]
        assert fields.keys() == {"id", "E_Mail"}
        found = {name: field["inputFields"] for name, field in fields.items()}
        assert {name: [source["field"] for source in sources] for name, sources in found.items()} == {
            "id": ["id"],
            "E_Mail": ["E Mail"],
        }
        assert {(source["namespace"], source["name"]) for sources in found.values() for source in sources} == {
            ("file", f"{stage.landing}/shop/a")
        }
        how = {name: source["transformations"] for name, (source,) in found.items()}
        assert how["id"] == [{"type": "DIRECT", "subtype": "IDENTITY", "masking": False}]
        assert how["E_Mail"] == [{"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": True}]


def test_a_table_with_shards_is_made_of_all_its_sources(stage: Stage, log: Path) -> None:
    stage.write(
        "gddl.yaml",
        "landing: ../landing\nlake: ../lake\nsources:\n" + "".join(f"  {n}: {{landing: ../{n}}}\n" for n in "xy"),
    )
    stage.rows("{table: public.orders, target: shop.a, source: x, shards: [x, y], keys: [id]}")
    for name in "xy":
        path = stage.root / name / "public" / "orders" / "20240101-000000000.parquet"
        path.parent.mkdir(parents=True)
        path.write_text("x")
    own = {"name": "_source", "type": "string", "sources": ["_source"]}
    stage.order(columns={"shop.a": [own, *COLUMNS]})
    (dag_id,) = (dag_id for dag_id in build_dags() if dag_id.startswith("gddl"))
    build_dags()[dag_id].test(logical_date=next(DATES))
    (event,) = events(log, f"{dag_id}.initial_load")
    folders = [("file", f"{stage.root}/{name}/public/orders") for name in "xy"]
    assert _names(event["inputs"]) == folders
    assert [one.get("inputFacets", {}) for one in event["inputs"]] == [{}, {}], "no counts by source are known"
    fields = _by_name(event["outputs"])[f"{stage.lake}/shop/a"]["facets"]["columnLineage"]["fields"]
    assert fields.keys() == {"id", "E_Mail"}
    assert [(one["namespace"], one["name"]) for one in fields["id"]["inputFields"]] == folders


def test_a_table_that_fails_has_no_output_and_the_others_of_its_task_do(stage: Stage, log: Path) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}")
    stage.land("shop.a")
    stage.land("shop.b")
    stage.order(fail={"shop.b": ["SCHEMA_REFUSED", "n is text now. Remedy: widen it."]})
    assert run()["initial_load"] == "failed"
    (event,) = events(log, f"{PACK}.initial_load")
    assert event["eventType"] == "FAIL"
    assert _names(event["inputs"]) == [("file", f"{stage.landing}/shop/a")]
    assert [name for _, name in _names(event["outputs"])] == [f"{stage.lake}/shop/a", f"{stage.lake}/shop/a__changes"]


def test_a_task_that_loaded_nothing_has_no_datasets(stage: Stage, log: Path) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    stage.land("shop.a")
    stage.order(fail={"shop.a": ["SCHEMA_REFUSED", "n is text now. Remedy: widen it."]})
    run()
    (event,) = events(log, f"{PACK}.initial_load")
    assert (event["eventType"], event["inputs"], event["outputs"]) == ("FAIL", [], [])


def test_a_continuous_task_sends_what_its_job_loaded(stage: Stage, log: Path) -> None:
    stage.rows("{table: shop.a, keys: [id], schedule: continuous}")
    stage.land("shop.a")
    stage.order(columns={"shop.a": COLUMNS})
    (dag_id,) = (dag_id for dag_id in build_dags() if dag_id.startswith("gddl_pack."))
    build_dags()[dag_id].test(logical_date=next(DATES))
    (task_id,) = build_dags()[dag_id].task_ids
    (event,) = events(log, f"{dag_id}.{task_id}")
    replica = _by_name(event["outputs"])[f"{stage.lake}/shop/a"]
    assert replica["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert replica["facets"]["columnLineage"]["fields"].keys() == {"id", "E_Mail"}


def test_a_mapped_instance_sends_datasets_only_if_it_loads_its_table(
    stage: Stage, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GDDL_DEFAULTS__AIRFLOW", "mapped")
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}")
    stage.land("shop.a")
    dag = build_dags()[PACK]
    done = dag.test(logical_date=next(DATES))
    (load,) = events(log, f"{PACK}.initial_load")
    assert len(load["outputs"]) == 2
    (shown,) = events(log, f"{PACK}.new_table")
    assert (shown["inputs"], shown["outputs"]) == ([], [])
    assert clear(dag, done, lambda one: one.rendered_map_index == "shop.a") == "success"
    (_, again) = events(log, f"{PACK}.new_table")
    assert _names(again["inputs"]) == _names(load["inputs"])
    assert _names(again["outputs"]) == _names(load["outputs"])


SHOP = TableSpec(table="shop.a", keys=("id",), options={"verify_connection": "GDDL_SOURCE_SHOP"})


class Warnings(list[str]):
    """A log of which warnings are kept."""

    def warning(self, message: str, /, *values: object) -> None:
        self.append(message % values)

    def info(self, message: str, /, *values: object) -> None: ...

    error = debug = info


def _loaded(*specs: TableSpec, **environ: str) -> LoadedTables:
    columns = (ResultColumn(name="id", type="bigint", sources=("id",)),)
    loaded = LoadedTables(
        roots=Roots(landing="s3://files/landing", lake="s3://tables/lake"),
        specs={spec.table: spec for spec in specs},
        environ=environ,
    )
    for spec in specs:
        counts = MainCounts(inserted=2, updated=1, deleted=4)
        loaded.take(JobResult(table=spec.table, status="succeeded", mode="initial", main=counts, columns=columns))
        loaded.take(JobResult(table=spec.table, status="succeeded", main=counts, columns=columns, rows_read=7))
        loaded.take(JobResult(table=spec.table, status="failed", rows_read=1))
    return loaded


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:s3cr3t@db.example/erp", ("postgres://db.example:5432", "erp.shop.a")),
        ("mysql+pymysql://u:s3cr3t@db.example:3307/erp", ("mysql://db.example:3307", "shop.a")),
        ("mssql+pyodbc://u:s3cr3t@db.example/erp", ("mssql://db.example:1433", "erp.shop.a")),
        ("oracle+oracledb://u:s3cr3t@db.example?service_name=ERP", ("oracle://db.example:1521", "ERP.shop.a")),
        ("sqlite:////tmp/x.db", ("s3://files", "landing/shop/a")),
        ("", ("s3://files", "landing/shop/a")),
    ],
)
def test_the_source_table_is_the_input_where_its_connection_is_known(url: str, expected: tuple[str, str]) -> None:
    loaded = _loaded(SHOP, GDDL_SOURCE_SHOP=url)
    (found,) = lineage.lineage_of(loaded, Warnings()).inputs
    assert (found.namespace, found.name) == expected
    replica = lineage.lineage_of(loaded, Warnings()).outputs[0]
    (field,) = replica.facets["columnLineage"].fields["id"].inputFields
    assert (field.namespace, field.name) == expected
    assert "s3cr3t" not in repr(lineage.lineage_of(loaded, Warnings()))


def test_counts_are_of_all_jobs_of_a_task_and_a_first_load_creates() -> None:
    (replica,) = lineage.lineage_of(_loaded(SHOP), Warnings()).outputs
    assert (replica.namespace, replica.name) == ("s3://tables", "lake/shop/a")
    assert replica.outputFacets["outputStatistics"].rowCount == 6
    assert replica.facets["lifecycleStateChange"].lifecycleStateChange.value == "CREATE"


def test_a_full_refresh_overwrites() -> None:
    loaded = _loaded()
    loaded = LoadedTables(roots=loaded.roots, specs={"shop.a": SHOP})
    loaded.take(JobResult(table="shop.a", status="succeeded", mode="refresh"))
    (replica,) = lineage.lineage_of(loaded, Warnings()).outputs
    assert replica.facets["lifecycleStateChange"].lifecycleStateChange.value == "OVERWRITE"


def test_a_truncate_of_the_source_truncates() -> None:
    loaded = LoadedTables(roots=_loaded().roots, specs={"shop.a": SHOP})
    applied = RunWarning(code="TRUNCATE_APPLIED", message="m")
    loaded.take(JobResult(table="shop.a", status="succeeded", mode="incremental", warnings=(applied,)))
    (replica,) = lineage.lineage_of(loaded, Warnings()).outputs
    assert replica.facets["lifecycleStateChange"].lifecycleStateChange.value == "TRUNCATE"


@pytest.mark.parametrize("action", ["verify", "maintain"])
def test_actions_that_load_nothing_have_no_datasets(action: str) -> None:
    loaded = LoadedTables(roots=Roots(landing="/l", lake="/k"), specs={"shop.a": SHOP})
    loaded.take(JobResult(table="shop.a", status="succeeded", action=action))
    assert lineage.lineage_of(loaded, Warnings()).outputs == []


def test_an_event_is_bounded_and_names_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "MOST_TABLES", 2)
    monkeypatch.setattr(lineage, "MOST_COLUMNS", 1)
    specs = [TableSpec(table=f"shop.{name}", keys=("id",)) for name in "cab"]
    log = Warnings()
    found = lineage.lineage_of(_loaded(*specs), log)
    assert [dataset.name for dataset in found.outputs] == ["lake/shop/a", "lake/shop/b"]
    assert ["columnLineage" in dataset.facets for dataset in found.outputs] == [True, False]
    assert log == [
        "OpenLineage: 1 tables are sent without columns: shop.b",
        "OpenLineage: 1 of 3 tables are not sent: shop.c",
    ]


def test_an_invalid_event_is_noticed() -> None:
    with pytest.raises(AssertionError, match="lacks"):
        require_valid({"eventTime": "2024-01-01T00:00:00Z", "producer": "https://x", "inputs": [], "outputs": []})


def test_a_dag_file_imports_nothing_of_it(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    code = (
        "import sys; from airflow_gddl.dags.factory import build_dags; assert build_dags();"
        "print(sorted(name for name in sys.modules if name.startswith(('openlineage', 'airflow_gddl.operators.lin'))))"
    )
    done = start([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
