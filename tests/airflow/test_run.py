"""Whole runs of a pipeline's DAG, through Airflow's own task runner (docs/airflow.md)."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.models.asset import AssetEvent, AssetModel, TaskOutletAssetReference
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import delete, select

from airflow_gddl.assets import alias_of
from airflow_gddl.contract.spec import Roots
from airflow_gddl.dags.factory import build_dags
from airflow_gddl.runtime.state.documents import PipelineState, encode, place
from airflow_gddl.runtime.state.recording import StateRecorder, end_running
from airflow_gddl.runtime.state.table_runs import TableHint, TableRecord
from airflow_gddl.stores import open_store
from tests.airflow.stage import Stage

PACK = "gddl_pack.shop.small.1"
BAD = ("shop.t07", "shop.t21", "shop.t42")
pytestmark = [
    pytest.mark.usefixtures("database"),
    # Each test is a new version of the same DAG to this database; Airflow's own query does not expect that in one run.
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]

DONE = {"landed": "success", "initial_load": "success", "incremental_load": "skipped", "run": "success"}
BROUGHT = {"landed": "success", "initial_load": "skipped", "incremental_load": "success", "run": "success"}
IDLE = {"landed": "skipped", "initial_load": "skipped", "incremental_load": "skipped", "run": "success"}


# Each run of this session has a date of its own, as a scheduler would give it.
DATES = (datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in itertools.count())


def run(dag_id: str = PACK, conf: dict[str, Any] | None = None, date: datetime | None = None) -> dict[str, str]:
    """Task to state after a run."""
    done = build_dags()[dag_id].test(logical_date=date or next(DATES), run_conf=conf)
    states = {ti.task_id: str(ti.state) for ti in done.get_task_instances()}
    return {**states, "run": str(done.state)}


def events() -> dict[str, list[dict[str, Any]]]:
    """Extras of the asset events there are, by table; forgets them."""
    found: dict[str, list[dict[str, Any]]] = {}
    with create_session() as session:
        query = select(AssetModel.name, AssetEvent.extra).join(AssetEvent, AssetEvent.asset_id == AssetModel.id)
        for name, extra in session.execute(query.order_by(AssetEvent.id)):
            found.setdefault(name, []).append(extra)
        session.execute(delete(AssetEvent))
    return found


def test_a06_a_pack_is_loaded_then_skipped_then_loads_new_files(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}", "{table: shop.c, keys: [id]}")
    stage.land("shop.a")
    stage.land("shop.b")
    events()
    assert run() == DONE
    assert stage.loaded == [["shop.a", "shop.b"]]
    assert run() == IDLE
    stage.land("shop.b", "20240102-000000000.parquet")
    assert run() == BROUGHT
    assert stage.loaded == [["shop.a", "shop.b"], ["shop.b"]]
    found = events()
    assert {name: len(extras) for name, extras in found.items()} == {"shop.a": 1, "shop.b": 2}
    extra = found["shop.b"][0]
    assert (extra["rows"], extra["lag_seconds"], extra["version"]) == (7, 12.5, 3)


def test_a07_a_table_added_to_a_running_pack_is_initialised_at_its_next_run(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    stage.land("shop.a")
    run()
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}")
    stage.land("shop.b")
    stage.land("shop.a", "20240102-000000000.parquet")
    assert run() == {**DONE, "incremental_load": "success"}
    assert stage.loaded[0] == ["shop.a"]
    assert sorted(stage.loaded[1:]) == [["shop.a"], ["shop.b"]]


def test_a07_a_table_with_a_replica_is_not_initialised(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    stage.land("shop.a")
    log = stage.lake / "shop" / "a" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{}")
    assert run() == BROUGHT


def test_a02_one_table_alone_a_full_refresh_and_a_window(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}")
    stage.land("shop.a")
    stage.land("shop.b")
    run()
    assert run(conf={"tables": ["shop.b"]}) == BROUGHT
    assert run(conf={"tables": ["shop.a"], "action": "rebuild"}) == DONE
    assert run(conf={"from": "2020-01-01T00:00:00Z", "to": "2021-01-01T00:00:00Z"}) == IDLE
    assert run(conf={"from": "2020-01-01T00:00:00Z"}) == BROUGHT
    assert stage.loaded == [["shop.a", "shop.b"], ["shop.b"], ["shop.a"], ["shop.a", "shop.b"]]
    asked = [(job["options"]["action"]["name"], job["options"]["full_listing"]) for job in stage.jobs]
    assert asked == [("run", True), ("run", True), ("rebuild", True), ("run", True)]
    assert run(conf={"tables": ["shop.b", "shop.zz"]}) == {**BROUGHT, "incremental_load": "failed", "run": "failed"}
    assert stage.loaded[-1] == ["shop.b"], "a table that this DAG does not have stops no other"


def test_a02_a_table_of_another_dag_is_refused(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    stage.land("shop.a")
    assert run(conf={"tables": ["shop.zz"]})["run"] == "failed"
    assert stage.jobs == []


def test_a11_three_of_fifty_fail_and_the_retry_loads_only_these(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__RETRIES", "1")
    names = [f"shop.t{n:02d}" for n in range(50)]
    stage.rows(*(f"{{table: {name}, keys: [id]}}" for name in names))
    for name in names:
        stage.land(name)
    trouble = ["SCHEMA_REFUSED", "[SCHEMA_REFUSED] n is text now. Remedy: widen it."]
    stage.order(fail=dict.fromkeys(BAD, trouble), fail_jobs=1)
    assert run() == DONE
    assert stage.loaded == [names, list(BAD)]
    said = re.sub(r"[\s│]+", " ", "".join(capfd.readouterr()))  # some versions print errors in a narrow box
    assert "3 of 50 tables failed" in said
    named = re.search(r"- (shop\.\w+(?:, shop\.\w+)*): \[SCHEMA_REFUSED\] n is text now\. Remedy: widen it\.", said)
    assert named is not None
    assert set(named[1].split(", ")) == set(BAD)
    assert run() == IDLE


def test_a11_a_failing_table_does_not_block_others(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}", "{table: shop.c, keys: [id]}")
    for name in ("shop.a", "shop.b", "shop.c"):
        stage.land(name)
    stage.order(fail={"shop.b": ["SCHEMA_REFUSED", "no"]})
    events()
    assert run() == {**DONE, "initial_load": "failed", "run": "failed"}
    assert events() == {}
    stage.land("shop.a", "20240102-000000000.parquet")
    assert run() == {**BROUGHT, "initial_load": "failed", "run": "failed"}, "neither load waits for the other"
    assert sorted(stage.loaded[1:]) == [["shop.a"], ["shop.b"]]
    assert sorted(events()) == ["shop.a", "shop.c"], "what the first run did is told by the second one's sensor"


def test_a_run_leaves_out_what_another_run_loads_and_a_request_does_not(stage: Stage) -> None:
    stage.rows(*(f"{{table: shop.{name}, keys: [id]}}" for name in "abc"))
    for name in "abc":
        stage.land(f"shop.{name}")
    roots = Roots(landing=str(stage.landing), lake=str(stage.lake))
    other = StateRecorder(roots, PACK, ("shop.b",), run="scheduled__long")
    other.begin(["shop.b"])
    assert run() == DONE
    assert run() == IDLE
    assert run(conf={"tables": ["shop.b"]}) == DONE, "its job waits for the other one's claim"
    assert stage.loaded == [["shop.a", "shop.c"], ["shop.b"]]
    stage.land("shop.b", "20240102-000000000.parquet")
    other.begin(["shop.b"])
    assert run() == IDLE
    end_running(open_store(), str(stage.lake), PACK, "scheduled__long")
    assert run() == BROUGHT, "a run that was stopped holds no table"


def test_the_asset_of_a_table_is_known_at_once_and_has_events_only_of_changes(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], size: large}", "{table: shop.b, keys: [id]}")
    stage.land("shop.a")
    stage.order(skip=["shop.a"])
    events()
    assert run("gddl.shop.a") == DONE
    with create_session() as session:
        query = select(TaskOutletAssetReference.task_id).join(AssetModel).where(AssetModel.name == "shop.a")
        producers = session.execute(query.where(TaskOutletAssetReference.dag_id == "gddl.shop.a"))
        assert sorted(row[0] for row in producers) == ["incremental_load", "initial_load"]
    assert events() == {}, "the job found nothing"
    stage.order()
    stage.land("shop.a", "20240102-000000000.parquet")
    assert run("gddl.shop.a") == BROUGHT
    assert {name: len(extras) for name, extras in events().items()} == {"shop.a": 1}


def test_a_running_task_declares_no_assets(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.rows("{table: shop.a, keys: [id], size: large}")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "gddl.shop.a")
    outlets = build_dags()["gddl.shop.a"].get_task("initial_load").outlets
    assert outlets == [alias_of("gddl.shop.a")]


def test_a10_what_is_loaded_does_not_depend_on_the_run_s_date(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    stage.land("shop.a", "20240105-000000000.parquet")
    assert run(date=datetime(2031, 1, 3, tzinfo=UTC)) == DONE
    assert run(date=datetime(2031, 1, 9, tzinfo=UTC)) == IDLE
    stage.land("shop.a", "20231231-000000000.parquet")
    assert run(date=datetime(2031, 1, 1, tzinfo=UTC)) == BROUGHT


def test_depends_on_defers_a_table_until_the_other_pack_has_loaded(stage: Stage) -> None:
    other = "gddl.shop.y"
    stage.rows(
        "{table: shop.x, keys: [id], depends_on: [shop.y]}",
        "{table: shop.z, keys: [id]}",
        "{table: shop.y, keys: [id], size: large}",
    )
    for name in ("shop.x", "shop.y", "shop.z"):
        stage.land(name)
    assert run() == DONE
    assert run() == IDLE
    assert run(other) == DONE
    assert run() == DONE
    assert stage.loaded == [["shop.z"], ["shop.y"], ["shop.x"]]


def test_depends_on_is_judged_once_more_at_the_end(stage: Stage) -> None:
    stage.rows(
        "{table: shop.x, keys: [id], depends_on: [shop.y]}",
        "{table: shop.z, keys: [id]}",
        "{table: shop.y, keys: [id], size: large}",
    )
    for name in ("shop.x", "shop.y", "shop.z"):
        stage.land(name)
    # While the pack loads shop.z, the other pipeline gets done with what was there.
    hint = TableHint(mark="m", looked_at="2999-01-01T00:00:00.000000+00:00", run="other")
    done = encode(PipelineState(tables={"shop.y": TableRecord(hint=hint)}))
    stage.order(write={place(str(stage.lake), "gddl.shop.y"): done.decode()})
    assert run() == DONE
    assert stage.loaded == [["shop.z"], ["shop.x"]]
    assert run() == IDLE


def test_an_unknown_runner_is_not_retried(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__RETRIES", "3")
    stage.rows("{table: shop.a, keys: [id]}")
    stage.land("shop.a")
    dag = build_dags()[PACK]
    dag.get_task("initial_load").runner = "nowhere"
    done = dag.test(logical_date=next(DATES))
    tries = {ti.task_id: (str(ti.state), ti.try_number) for ti in done.get_task_instances()}
    assert tries["initial_load"] == ("failed", 1)


def test_the_answer_and_the_results_are_small_xcoms(stage: Stage) -> None:
    stage.rows(*(f"{{table: shop.t{n}, keys: [id]}}" for n in range(150)))
    for n in range(150):
        stage.land(f"shop.t{n}")
    with create_session() as session:
        session.execute(delete(XComModel))
    run()
    with create_session() as session:
        sizes = {(row.task_id, row.key): len(str(row.value)) for row in session.scalars(select(XComModel))}
    assert sizes["landed", "return_value"] < 10_000
    assert sizes["initial_load", "return_value"] < 1000
    assert ("initial_load", "results") not in sizes
    assert ("initial_load", "_link_JobLogLink") in sizes
