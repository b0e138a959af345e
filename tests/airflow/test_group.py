"""The view `group`: a task group for each table of a pack, over jobs that tables share."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import pytest
from airflow.sdk import TaskGroup
from airflow.utils.session import create_session

from airflow_gddl.contract.spec import Roots
from airflow_gddl.dags.factory import build_dags
from airflow_gddl.operators.jobs import GddlInitialLoadOperator, GddlTableOperator
from airflow_gddl.runtime.landing.load_task import Loading
from airflow_gddl.runtime.state.lake_state import StateReader
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.sensors.tables import GddlTablesSensor
from tests.airflow.bag import serialised
from tests.airflow.clearing import clear, instances
from tests.airflow.stage import Stage
from tests.airflow.test_run import DATES, PACK, events

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]
NAMES = ("shop.a", "shop.b", "shop.c")
REFUSED = ["SCHEMA_REFUSED", "[SCHEMA_REFUSED] n is text now. Remedy: widen it."]
CONTEXT = "_AIRFLOW_PARSING_CONTEXT"


@pytest.fixture(autouse=True)
def view(monkeypatch: pytest.MonkeyPatch, stage: Stage) -> None:
    monkeypatch.delenv("GDDL_DEFAULTS__AIRFLOW")
    stage.rows(*(f"{{table: {name}, keys: [id]}}" for name in NAMES))


def run(date: datetime | None = None) -> Any:
    return build_dags()[PACK].test(logical_date=date or next(DATES))


def states(done: Any) -> dict[str, str]:
    with create_session() as session:
        return {one.task_id: str(one.state) for one in instances(done, session)}


def of(found: dict[str, str], table: str) -> tuple[str, ...]:
    group = table.replace(".", "-")
    return tuple(found[f"{group}.{task}"] for task in ("landed", "initial_load", "incremental_load"))


LOADED_FIRST, LOADED = ("success", "success", "skipped"), ("success", "skipped", "success")
IDLE = ("skipped",) * 3


def test_one_line_gives_every_table_a_dag_and_a_job(stage: Stage) -> None:
    """docs/airflow.md, *What becomes a DAG*."""
    stage.write("gddl.yaml", "landing: ../landing\nlake: ../lake\ndefaults: {airflow: table}\n")
    dags = build_dags()
    assert {dag_id: sorted(dag.task_ids) for dag_id, dag in dags.items()} == {
        f"gddl.{name}": ["incremental_load", "initial_load", "landed"] for name in NAMES
    }
    for name in NAMES:
        stage.land(name)
    assert [str(dags[f"gddl.{name}"].test(logical_date=next(DATES)).state) for name in NAMES] == ["success"] * 3
    assert stage.loaded == [[name] for name in NAMES]


def test_each_table_has_a_group_with_its_name(stage: Stage) -> None:
    dag = build_dags()[PACK]
    groups = {group.group_id: group.label for group in dag.task_group.children.values() if isinstance(group, TaskGroup)}
    assert {groups[name.replace(".", "-")] for name in NAMES} == set(NAMES)
    shared = {"landed", "initial_load", "incremental_load"}
    assert set(dag.task_ids) == shared | {f"{name.replace('.', '-')}.{task}" for name in NAMES for task in shared}


def test_ids_stay_when_other_rows_come_and_go(stage: Stage) -> None:
    before = set(build_dags()[PACK].task_ids)
    stage.rows(*(f"{{table: {name}, keys: [id]}}" for name in ("shop.0", *NAMES, "shop.a_b", "shop.a b")))
    assert before < set(build_dags()[PACK].task_ids)
    stage.rows("{table: shop.b, keys: [id]}")
    assert {one for one in before if one.startswith("shop-b.")} < set(build_dags()[PACK].task_ids) < before


def test_a_changed_row_makes_no_new_dag_version(stage: Stage) -> None:
    before = serialised(build_dags()[PACK])
    stage.rows(*(f"{{table: {name}, keys: [id, n], history: true}}" for name in reversed(NAMES)))
    assert serialised(build_dags()[PACK]) == before


def test_a_table_that_fails_is_red_alone(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    stage.order(fail={"shop.b": REFUSED})
    events()
    done = run()
    found = states(done)
    assert (of(found, "shop.a"), of(found, "shop.b")) == (LOADED_FIRST, ("success", "failed", "skipped"))
    assert (found["initial_load"], found["incremental_load"], str(done.state)) == ("success", "skipped", "failed")
    assert stage.loaded == [list(NAMES)]
    assert sorted(events()) == ["shop.a", "shop.c"], "those of the tables beside the failed one wait for no other run"


@pytest.mark.parametrize("shown", ["group", "mapped"])
def test_a_failed_table_of_a_green_load_is_seen_in_grid_log_and_status(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    monkeypatch.setenv("GDDL_DEFAULTS__AIRFLOW", shown)
    kept = Lines()
    monkeypatch.setattr(GddlInitialLoadOperator, "log", kept)
    for name in NAMES:
        stage.land(name)
    stage.order(fail={"shop.b": REFUSED})
    done = run()
    with create_session() as session:
        red = {one.rendered_map_index or one.task_id for one in instances(done, session) if one.state == "failed"}
    assert (red, str(done.state)) == ({"shop.b" if shown == "mapped" else "shop-b.initial_load"}, "failed")
    said = "1 of 3 tables failed. This task succeeds all the same; their own tasks fail: shop.b"
    assert kept[-1] == said
    record = StateReader(str(stage.lake), time.time).read().records["shop.b"]
    assert record.newest is not None
    assert (record.newest.status, "SCHEMA_REFUSED" in str(record.error)) == ("failed", True)


def test_only_tables_with_work_are_shown_others_are_skipped(stage: Stage) -> None:
    stage.land("shop.a")
    run()
    assert set(states(run()).values()) == {"skipped"}, "nothing has landed"
    stage.land("shop.a", "20240102-000000000.parquet")
    stage.land("shop.c")
    found = states(run())
    assert [of(found, name) for name in NAMES] == [LOADED, IDLE, LOADED_FIRST]
    assert sorted(stage.loaded[1:]) == [["shop.a"], ["shop.c"]]


def test_tasks_without_work_start_no_worker(stage: Stage) -> None:
    """Airflow starts one for a task that has run; the scheduler alone decides the others."""
    stage.land("shop.a")
    done = run()
    with create_session() as session:
        begun = {one.task_id for one in instances(done, session) if one.pid is not None or one.hostname}
    assert begun <= {"landed", "initial_load", "shop-a.initial_load", "shop-a.landed"}


def test_clearing_one_task_loads_that_table_alone(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    stage.order(fail={"shop.b": REFUSED})
    done = run()
    events()
    dag = build_dags()[PACK]
    assert clear(dag, done, lambda one: one.task_id == "shop-b.initial_load") == "failed", "it still can't be loaded"
    stage.order()
    assert clear(dag, done, lambda one: one.task_id == "shop-b.initial_load") == "success"
    assert clear(dag, done, lambda one: one.task_id == "shop-a.initial_load") == "success", "one that had succeeded"
    assert stage.loaded == [list(NAMES), ["shop.b"], ["shop.b"], ["shop.a"]]
    assert [of(states(done), name) for name in NAMES] == [LOADED_FIRST] * 3
    assert {name: len(extras) for name, extras in events().items()} == {"shop.a": 1, "shop.b": 1}
    assert set(states(run()).values()) == {"skipped"}


def test_clearing_a_group_loads_its_table_once(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    done, dag = run(), build_dags()[PACK]
    assert clear(dag, done, lambda one: one.task_id.startswith("shop-a.")) == "success"
    assert stage.loaded == [list(NAMES), ["shop.a"]]
    assert of(states(done), "shop.a") == LOADED_FIRST


def test_a_table_without_work_is_loaded_when_it_is_cleared(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    run()
    stage.land("shop.a", "20240102-000000000.parquet")
    done, dag = run(), build_dags()[PACK]
    assert of(states(done), "shop.b") == IDLE
    assert clear(dag, done, lambda one: one.task_id == "shop-b.incremental_load") == "success"
    assert stage.loaded[1:] == [["shop.a"], ["shop.b"]]
    assert clear(dag, done, lambda one: one.task_id == "shop-c.initial_load") == "success"
    assert (of(states(done), "shop.c"), len(stage.loaded)) == (IDLE, 3), "the other task of the group would load it"


def test_clearing_a_run_loads_its_tables_in_one_job(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    done, dag = run(), build_dags()[PACK]
    assert clear(dag, done, lambda _one: True) == "success"
    assert stage.loaded == [list(NAMES), list(NAMES)]
    assert [of(states(done), name) for name in NAMES] == [LOADED] * 3, "they have replicas now"


def test_a_failed_table_that_no_task_shows_fails_the_load(stage: Stage) -> None:
    """A user who clears the shared load alone leaves the tasks of the groups as they are."""
    for name in NAMES:
        stage.land(name)
    done, dag = run(), build_dags()[PACK]
    stage.order(fail={"shop.b": REFUSED})
    clear(dag, done, lambda one: one.task_id == "initial_load")
    found = states(done)
    assert (found["initial_load"], of(found, "shop.a")) == ("failed", LOADED_FIRST)
    assert stage.loaded == [list(NAMES), list(NAMES)]


def test_a_new_row_that_the_run_has_no_task_for_is_not_green(stage: Stage) -> None:
    dag = build_dags()[PACK]
    stage.rows(*(f"{{table: {name}, keys: [id]}}" for name in (*NAMES, "shop.new")))
    stage.land("shop.new")
    stage.order(fail={"shop.new": REFUSED})
    done = dag.test(logical_date=next(DATES))
    assert states(done)["initial_load"] == "failed"


def test_a_row_that_came_after_the_poll_starts_no_job_of_its_own(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks join the run, and the sensor could not skip them."""
    relatives = GddlTablesSensor.get_direct_relatives
    of_others = lambda self: [one for one in relatives(self) if getattr(one, "table", "") != "shop.c"]  # noqa: E731 - as it reads
    stage.land("shop.a")
    monkeypatch.setattr(GddlTablesSensor, "get_direct_relatives", of_others)
    done, dag = run(), build_dags()[PACK]
    assert (of(states(done), "shop.c"), stage.loaded) == (("success", "skipped", "skipped"), [["shop.a"]])
    assert clear(dag, done, lambda one: one.task_id == "shop-c.incremental_load") == "success"
    assert stage.loaded == [["shop.a"], ["shop.c"]]


def test_a_pack_that_gets_groups_after_its_load_began_shows_nothing(stage: Stage) -> None:
    stage.land("shop.a")
    dag = build_dags()[PACK]
    for load in ("initial_load", "incremental_load"):
        dag.task_dict[load].by_table = None
    found = states(dag.test(logical_date=next(DATES)))
    assert (found["initial_load"], of(found, "shop.a")) == ("success", ("success", "skipped", "skipped"))
    assert stage.loaded == [["shop.a"]]


def test_a_failed_table_that_a_user_marked_is_red_in_the_next_run(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    stage.order(fail={"shop.b": REFUSED})
    done = build_dags()[PACK].test(logical_date=next(DATES), mark_success_pattern=r"^shop-b\.initial_load$")
    assert (str(done.state), states(done)["shop-b.initial_load"]) == ("success", "success")
    found = states(run())
    assert (of(found, "shop.a"), of(found, "shop.b")) == (IDLE, ("success", "failed", "skipped"))


def test_a_load_that_a_user_marked_shows_nothing(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    done = build_dags()[PACK].test(logical_date=next(DATES), mark_success_pattern="^initial_load$")
    assert [of(states(done), name) for name in NAMES] == [("success", "skipped", "skipped")] * 3
    assert stage.loaded == []


def test_a_held_table_is_shown_by_the_load_that_ends_last(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id], depends_on: [shop.far]}")
    stage.rows("{table: shop.far, keys: [id], size: large, schedule: null}", file="tables/far.yaml")
    stage.write("tables/far.yaml", "source: shop\n" + (stage.metadata / "tables/far.yaml").read_text())
    for name in ("shop.a", "shop.b", "shop.far"):
        stage.land(name)
    found = states(run())
    assert (of(found, "shop.a"), found["shop-b.initial_load"]) == (LOADED_FIRST, "skipped")
    assert stage.loaded == [["shop.a"]]


class Lines(list[str]):
    """A log whose lines are kept."""

    def info(self, message: str, /, *values: object) -> None:
        self.append(message % values)

    warning = error = debug = info


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Log of the tasks of tables."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com")
    kept = Lines()
    monkeypatch.setattr(GddlTableOperator, "log", kept)
    return kept


@pytest.mark.parametrize("shown", ["group", "mapped"])
def test_an_instance_says_which_job_did_it(
    stage: Stage, lines: Lines, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    monkeypatch.setenv("GDDL_DEFAULTS__AIRFLOW", shown)
    stage.land("shop.a")
    run()
    address = rf"https://airflow.example.com/gddl/#/log\?dag_id={PACK}&job={stage.jobs[0]['run_id']}"
    assert [
        bool(re.fullmatch(f"shop.a succeeded: . changes, in the job of initial_load: {address}", one)) for one in lines
    ] == [True]


def test_a_cleared_success_says_what_it_did(stage: Stage, lines: Lines) -> None:
    stage.land("shop.a")
    done, dag = run(), build_dags()[PACK]
    stage.order(skip=["shop.a"])
    lines.clear()
    assert clear(dag, done, lambda one: one.task_id == "shop-a.initial_load") == "success"
    (line,) = [line for line in lines if "nothing new to load" in line]
    for action, said in zip(("reload", "rebuild", "replay"), line.splitlines()[1:], strict=True):
        assert said.endswith(f"{action}, https://airflow.example.com/gddl/#/table/shop.a?action={action}")


def test_clearing_a_task_again_loads_its_table_again(stage: Stage) -> None:
    for name in NAMES:
        stage.land(name)
    done, dag = run(), build_dags()[PACK]
    for _ in range(2):
        assert clear(dag, done, lambda one: one.task_id == "shop-a.initial_load") == "success"
    assert clear(dag, done, lambda _one: True) == "success"
    assert stage.loaded == [list(NAMES), ["shop.a"], ["shop.a"], list(NAMES)]


def another_run_loads(stage: Stage, table: str) -> None:
    roots = Roots(landing=str(stage.landing), lake=str(stage.lake))
    StateRecorder(roots, PACK, NAMES, run="another").begin([table])


def test_a_cleared_table_is_loaded_though_another_run_loads_it_now(stage: Stage) -> None:
    """Its job waits for the other one."""
    for name in NAMES:
        stage.land(name)
    done, dag = run(), build_dags()[PACK]
    another_run_loads(stage, "shop.a")
    assert clear(dag, done, lambda one: one.task_id == "shop-a.initial_load") == "success"
    assert stage.loaded == [list(NAMES), ["shop.a"]]
    assert stage.jobs[1]["options"]["wait_seconds"] > 0


@pytest.mark.parametrize("shown", ["group", "mapped", "pack"])
def test_a_table_that_is_left_to_another_run_is_not_green(
    stage: Stage, lines: Lines, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    """Two runs that begin together: the sensor of neither sees the other."""
    monkeypatch.setenv("GDDL_DEFAULTS__AIRFLOW", shown)
    stage.land("shop.a")
    if shown != "pack":
        stage.land("shop.b")
    begin = Loading.load

    def together(self: Loading, *given: Any) -> None:
        another_run_loads(stage, "shop.a")
        begin(self, *given)

    monkeypatch.setattr(Loading, "load", together)
    done = run()
    with create_session() as session:
        found = {one.rendered_map_index or one.task_id: str(one.state) for one in instances(done, session)}
    named = {"group": "shop-{}.initial_load", "mapped": "shop.{}", "pack": "initial_load"}[shown]
    assert found[named.format("a")] == "skipped"
    if shown == "pack":
        assert stage.loaded == []
        return
    assert (found[named.format("b")], found["initial_load"], stage.loaded) == ("success", "success", [["shop.b"]])
    assert not [line for line in lines if line.startswith("shop.a succeeded")]


def test_a_worker_builds_no_group_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{CONTEXT}_DAG_ID", PACK)
    built = {}
    for task in ("landed", "incremental_load", "shop-b.incremental_load"):
        monkeypatch.setenv(f"{CONTEXT}_TASK_ID", task)
        built[task] = {one.partition(".")[0] for one in build_dags()[PACK].task_ids if "." in one}
    assert built == {
        "landed": {"shop-a", "shop-b", "shop-c"},
        "incremental_load": set(),
        "shop-b.incremental_load": {"shop-b"},
    }
