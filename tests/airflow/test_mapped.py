"""The view `mapped`: a task instance for each table with work, over jobs that tables share."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Roots
from airflow_gddl.dags.factory import build_dags
from airflow_gddl.operators.pipeline_loads import SharedLoad
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.runtime.state.table_runs import TableHint
from tests.airflow.clearing import clear, instances
from tests.airflow.stage import Stage
from tests.airflow.test_run import DATES, PACK, events

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]
NAMES = ("shop.a", "shop.b", "shop.c")
REFUSED = ["SCHEMA_REFUSED", "[SCHEMA_REFUSED] n is text now. Remedy: widen it."]


@pytest.fixture(autouse=True)
def view(monkeypatch: pytest.MonkeyPatch, stage: Stage) -> None:
    monkeypatch.setenv("GDDL_DEFAULTS__AIRFLOW", "mapped")
    stage.rows(*(f"{{table: {name}, keys: [id]}}" for name in NAMES))


def run(date: datetime | None = None) -> Any:
    return build_dags()[PACK].test(logical_date=date or next(DATES))


def states(done: Any) -> dict[str, str]:
    """Task, or table of a mapped instance, to state."""
    with create_session() as session:
        return {(one.rendered_map_index or one.task_id): str(one.state) for one in instances(done, session)}


def test_a_table_that_fails_is_red_alone(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    stage.order(fail={"shop.b": REFUSED})
    events()
    done = run()
    assert states(done) == {
        "landed": "success",
        "initial_load": "success",
        "incremental_load": "skipped",
        "table": "skipped",
        "shop.a": "success",
        "shop.b": "failed",
        "shop.c": "success",
    }
    assert str(done.state) == "failed"
    assert stage.loaded == [list(NAMES)]
    assert sorted(events()) == ["shop.a", "shop.c"], "those of the tables beside the failed one wait for no other run"


def test_only_tables_with_work_have_mapped_instances(stage: Stage) -> None:
    stage.land("shop.a")
    assert states(run()).keys() == {"landed", "initial_load", "incremental_load", "shop.a", "table"}
    assert set(states(run()).values()) == {"skipped"}
    stage.land("shop.a", "20240102-000000000.parquet")
    stage.land("shop.c")
    found = states(run())
    assert (found["shop.a"], found["shop.c"], "shop.b" in found) == ("success", "success", False)
    assert sorted(stage.loaded[1:]) == [["shop.a"], ["shop.c"]]


def test_clearing_one_instance_loads_that_table_alone(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    stage.order(fail={"shop.b": REFUSED})
    done = run()
    events()
    dag = build_dags()[PACK]
    assert clear(dag, done, lambda one: one.rendered_map_index == "shop.b") == "failed", "it still can't be loaded"
    stage.order()
    assert clear(dag, done, lambda one: one.rendered_map_index == "shop.b") == "success"
    assert clear(dag, done, lambda one: one.rendered_map_index == "shop.a") == "success", "one that had succeeded"
    assert stage.loaded == [list(NAMES), ["shop.b"], ["shop.b"], ["shop.a"]]
    shown = states(done)
    assert [shown[name] for name in NAMES] == ["success"] * 3
    assert {name: len(extras) for name, extras in events().items()} == {"shop.a": 1, "shop.b": 1}
    known = stage.state(PACK)
    assert (sorted(known.tables), known.pending) == (sorted(NAMES), {})
    assert set(states(run()).values()) == {"skipped"}


def test_clearing_a_run_loads_its_tables_in_one_job(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    done = run()
    dag = build_dags()[PACK]
    assert clear(dag, done, lambda _one: True) == "success"
    assert stage.loaded == [list(NAMES), list(NAMES)]
    assert clear(dag, done, lambda one: one.task_id == "table") == "success", "all tables, each alone"
    assert sorted(stage.loaded[2:]) == [["shop.a"], ["shop.b"], ["shop.c"]]


def test_a_retry_of_the_shared_job_loads_the_remaining_tables_and_shows_all(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__RETRIES", "1")
    for name in NAMES:
        stage.land(name)
    stage.order(fail={"shop.b": REFUSED}, fail_jobs=1)
    found = states(run())
    assert stage.loaded == [list(NAMES), ["shop.b"]]
    assert [found[name] for name in NAMES] == ["success"] * 3


def test_a_crashed_job_fails_the_tables_without_a_result(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    stage.order(die_at="shop.b")
    found = states(run())
    assert [found[name] for name in NAMES] == ["success", "failed", "failed"]


def test_a_name_that_is_longer_than_airflow_s_column_is_cut(stage: Stage) -> None:
    name = f"{'s' * 127}.{'n' * 128}"
    stage.rows(f"{{table: {name}, keys: [id]}}")
    stage.land(name)
    assert states(run())[name[:250]] == "success"
    assert stage.loaded == [[name]]


def test_views_and_dag_ids(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view changes tasks, never the id of a pack."""
    assert "table" in build_dags()[PACK].task_dict
    monkeypatch.setenv("GDDL_DEFAULTS__AIRFLOW", "pack")
    assert sorted(build_dags()[PACK].task_dict) == ["incremental_load", "initial_load", "landed"]
    stage.rows(*(f"{{table: {name}, keys: [id], airflow: table}}" for name in NAMES))
    assert sorted(build_dags()) == [f"gddl.{name}" for name in NAMES]


@pytest.mark.parametrize(
    ("try_number", "own", "load", "shown"),
    [
        (1, 0, SharedLoad(), True),
        (2, 1, SharedLoad(), False),
        (2, 1, SharedLoad(round=1, cleared=True), True),
        (3, 2, SharedLoad(round=1, cleared=True), False),
        (1, 1, SharedLoad(), True),
        (2, 0, SharedLoad(), False),
    ],
    ids=[
        "first try",
        "cleared alone",
        "cleared with the load",
        "cleared alone after the whole run was",
        "first try, while another instance was cleared",
        "cleared alone in a run that goes on, or tried again after its worker was lost",
    ],
)
def test_an_instance_shows_what_its_round_brought_and_else_loads(
    try_number: int, own: int, load: SharedLoad, *, shown: bool
) -> None:
    assert load.is_shown_by(try_number, own) is shown


def test_instances_that_load_at_once_keep_each_other_s_hints(stage: Stage) -> None:
    roots = Roots(landing=str(stage.landing), lake=str(stage.lake))
    states = {name: StateRecorder(roots, PACK, NAMES) for name in NAMES}
    hint = TableHint(mark="m", looked_at="2026-01-01T00:00:00.000000+00:00", run="r")
    for name, state in states.items():
        state.take(JobResult(table=name, status="skipped"), hint=hint, event={"rows": 1})
    for name, state in states.items():
        assert state.take_events(name) == {name: {"rows": 1}}
        assert state.take_events(name) == {}
    assert sorted(stage.state(PACK).hints) == list(NAMES)


def test_the_outcomes_of_a_pack_are_a_small_xcom(stage: Stage) -> None:
    stage.rows(*(f"{{table: shop.t{n}, keys: [id]}}" for n in range(150)))
    for n in range(150):
        stage.land(f"shop.t{n}")
    build_dags()[PACK].test(logical_date=next(DATES), mark_success_pattern="new_table")
    with create_session() as session:
        rows = session.scalars(select(XComModel).where(XComModel.key == "return_value").order_by(XComModel.timestamp))
        newest = {row.task_id: len(str(row.value)) for row in rows}
    assert newest["initial_load"] < 15_000
