"""What a person does with rows and runs, over REST."""

from __future__ import annotations

import json

import pytest

from airflow_gddl.contract.errors import FatalError
from tests.e2e.site import IS_3_0, Site

SHOP = "gddl_pack.shop.small.1"


@pytest.mark.deep  # the form of test_ui.py reruns a table, too; that an idle run starts no job is in tests/airflow
def test_a_rerun_loads_the_tables_of_its_conf(site: Site) -> None:
    site.land("shop.a")
    site.land("shop.b")
    site.load(SHOP)
    assert [job["tables"] for job in site.jobs("shop")] == [["shop.a", "shop.b"]]
    site.load(SHOP, tables=["shop.b"], action="rebuild")
    assert [job["tables"] for job in site.jobs("shop")][1:] == [["shop.b"]]
    assert [job["options"]["action"]["name"] for job in site.jobs("shop")] == ["run", "rebuild"]


@pytest.mark.deep  # tests/airflow runs each view without a scheduler, workers and a triggerer
@pytest.mark.parametrize(
    ("view", "dag_ids"),
    [
        ("pack", ["gddl_pack.viewed.pack.1"]),
        ("group", ["gddl_pack.viewed.group.1"]),
        ("mapped", ["gddl_pack.viewed.mapped.1"]),
        ("table", ["gddl.viewed.table_a", "gddl.viewed.table_b"]),
    ],
)
def test_each_view_loads_its_tables(site: Site, view: str, dag_ids: list[str]) -> None:
    tables = [f"viewed.{view}_{name}" for name in "ab"]
    jobs = [[table] for table in tables] if view == "table" else [tables]
    for stage, instance, file in (
        ("initial_load", "new_table", "LOAD00000001.parquet"),
        ("incremental_load", "table", "20240101-000000000.parquet"),
    ):
        before = len(site.jobs("viewed", "end"))
        for table in tables:
            site.land(table, file)
        runs = [site.runs.trigger(dag_id) for dag_id in dag_ids]
        site.runs.finish(runs)
        shown = {f"{instance} {table}" for table in tables} if view == "mapped" else set()
        if view == "group":
            shown = {f"{table.replace('.', '-')}.{task}" for table in tables for task in ("landed", stage)}
        for run in runs:
            succeeded = {task for task, state in site.runs.tasks(run).items() if state == "success"}
            assert succeeded == {"landed", stage, *shown}
        assert sorted(job["tables"] for job in site.jobs("viewed", "end")[before:]) == jobs


def test_a_table_starts_a_dag_of_its_users_and_tells_it_what_is_new(site: Site) -> None:
    site.land("shop.a", "20240105-000000000.parquet")
    site.load(SHOP)
    run_id = site.jobs("shop")[-1]["run_id"]
    reported = site.root / f"consumed-{run_id}.json"
    site.running.wait("the users' DAG to run", reported.exists)
    event = json.loads(reported.read_text())
    assert (event["rows"], event["changes"], event["version"], event["lag_seconds"]) == (3, 3, 1, 12.5)


@pytest.mark.parametrize(
    ("conf", "named"),
    [({"tables": "shop.a"}, "tables"), ({"all": "yes"}, "all"), ({"from": "yesterday"}, "from")],
)
def test_what_the_form_would_refuse_is_refused_over_rest(site: Site, conf: dict[str, object], named: str) -> None:
    with pytest.raises(FatalError, match=r"40\d") as caught:
        site.runs.trigger(SHOP, conf)
    assert named in str(caught.value)


def test_a_field_that_nobody_knows_is_refused_by_name(site: Site) -> None:
    """Airflow's form has no word for it; the run says why it failed, to whoever asks over REST, too."""
    site.runs.wait_for(["gddl_rerun"])
    with pytest.raises(FatalError, match=r"OPTION_INVALID\] unknown fields: actions \(did you mean action\?\)"):
        site.load("gddl_rerun", tables=["shop.a"], actions="rebuild")


def test_rows_come_break_and_go(site: Site) -> None:
    """Added rows are loaded, a broken one is told of and stops no other, disabled ones leave nothing behind."""
    good = "{table: life.a, keys: [id]}"
    site.rows("life", good, "{table: life.own, keys: [id], size: solo}", source="life")
    pack = "gddl_pack.life.small.1"
    site.runs.wait_for([pack, "gddl.life.own"])
    site.land("life.a")
    site.land("life.own")
    site.runs.finish([site.runs.trigger(pack), site.runs.trigger("gddl.life.own")])
    assert sorted(job["tables"] for job in site.jobs("life")) == [["life.a"], ["life.own"]]

    site.rows("life", good, "{table: life.own, keys: [id], siez: solo}", source="life")
    site.running.wait(
        "the import error", lambda: any("life.yaml" in one["stack_trace"] for one in site.import_errors())
    )
    (error,) = site.import_errors()
    for part in ("life.yaml", "siez", "size", "every other row is scheduled"):
        assert part in error["stack_trace"]
    assert "Traceback" not in error["stack_trace"].split("MetadataProblems")[-1]
    site.land("life.a", "20240102-000000000.parquet")
    site.load(pack)
    assert [job["tables"] for job in site.jobs("life")][2:] == [["life.a"]]

    site.rows("life", good, "{table: life.own, keys: [id], size: solo, enabled: false}", source="life")
    site.running.wait("the DAG to go", lambda: "gddl.life.own" not in site.runs.dags())
    if not IS_3_0:
        site.running.wait("the import error to go", lambda: not site.import_errors())
    assert pack in site.runs.dags()
