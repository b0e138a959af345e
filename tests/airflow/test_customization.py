"""What a DAG file and a tier may say of DAGs, and two metadata folders in one Airflow."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.models.pool import Pool
from airflow.sdk import DAG
from airflow.utils.session import create_session

from airflow_gddl import configuration
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.dags.factory import MetadataProblems, build_dags, raise_problems
from airflow_gddl.dags.maintenance import build_upkeep_dags
from airflow_gddl.plugins.pools import create_missing_pools
from airflow_gddl.plugins.timetables import GddlCronTimetable, cron_timetable
from tests.airflow.bag import kept, serialised
from tests.airflow.stage import Stage

PACK = "gddl_pack.shop.small.1"
ROOTS = "landing: ../landing\nlake: ../lake\n"
LOADS = ("initial_load", "incremental_load")


def noticed(_context: object) -> None:
    """A failure callback of a team."""


def test_default_args_reach_every_task_and_the_metadata_takes_precedence(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id], size: large, owner: team-b}")
    given = {"retries": 7, "owner": "team-x", "max_active_tis_per_dag": 3, "priority_weight": 5, "unknown_here": 1}
    dags = build_dags(default_args=given)
    for task in dags[PACK].tasks:
        assert (task.retries, task.owner, task.max_active_tis_per_dag, task.priority_weight) == (7, "team-x", 3, 10)
    assert {task.owner for task in dags["gddl.shop.b"].tasks} == {"team-b"}
    for dag in build_upkeep_dags(default_args={"retries": 7, "owner": "team-x"}).values():
        assert {(task.retries, task.owner) for task in dag.tasks} == {(7, "team-x")}
    assert {task.retries for task in build_dags()[PACK].tasks} == {0}


def test_a_failure_callback_is_called_in_addition_to_the_webhook(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    given = {"on_failure_callback": noticed}
    assert list(build_dags(default_args=given)[PACK].get_task("landed").on_failure_callback) == [noticed]
    monkeypatch.setenv("AIRFLOW__GDDL__NOTIFY_CONNECTION", "webhook")
    for dags in (build_dags(default_args=given), build_upkeep_dags(default_args=given)):
        for dag in dags.values():
            for task in dag.tasks:
                first, second = task.on_failure_callback
                assert (first, type(second).__name__) == (noticed, "GddlNotifier")


def test_on_dag_changes_each_dag_and_its_failures_are_reported(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id], size: large}")

    def change(dag: DAG) -> None:
        if dag.dag_id == "gddl.shop.b":
            raise RuntimeError("not this one")
        dag.tags.add("seen")
        assert dag.tasks
        assert "tables" in dag.params

    dags = build_dags(on_dag=change)
    assert {dag_id: "seen" in dag.tags for dag_id, dag in dags.items()} == {PACK: True}
    assert "seen" in json.loads(serialised(dags[PACK]))["dag"]["tags"]
    assert all("seen" in dag.tags for dag in build_upkeep_dags(on_dag=change).values())


def next_hours(dag: Any, days: tuple[int, int]) -> list[int]:
    """Hours in UTC of the first runs after the 1st of January and of July 2030, of a DAG as the scheduler reads it."""
    from airflow.timetables.base import DataInterval, TimeRestriction  # noqa: PLC0415 - an Airflow module of its own
    from pendulum import instance  # noqa: PLC0415 - as above

    found = []
    for month in days:
        moment = instance(datetime(2030, month, 1, tzinfo=UTC))
        between = TimeRestriction(earliest=moment, latest=None, catchup=True)
        info = kept(dag).timetable.next_dagrun_info(
            last_automated_data_interval=DataInterval.exact(moment), restriction=between
        )
        found.append(info.run_after.in_timezone("UTC").hour)
    return found


def test_cron_lines_are_in_the_zone_that_the_dag_file_names(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], size: large, schedule: '30 6 * * *'}")
    assert next_hours(build_dags()["gddl.shop.a"], (1, 7)) == [6, 6]
    assert next_hours(build_dags(timezone="Europe/Berlin")["gddl.shop.a"], (1, 7)) == [5, 4]
    upkeep = build_upkeep_dags(timezone="Europe/Berlin")["gddl_maintenance"]
    assert next_hours(upkeep, (1, 7)) == [23, 22]


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../etc", "Europe"])
def test_a_zone_that_is_none_is_refused(stage: Stage, name: str) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    for build in (build_dags, build_upkeep_dags):
        with pytest.raises(MetadataError, match=r"OPTION_INVALID.*no such time zone.*IANA"):
            build(timezone=name)


def test_queue_and_executor_config_of_a_tier_are_those_of_its_loads(stage: Stage) -> None:
    tier = "{queue: spark, executor_config: {cpu: 4, labels: [a]}}"
    stage.write("gddl.yaml", f"{ROOTS}tiers: {{large: {tier}}}\n")
    stage.rows(
        "{table: shop.a, keys: [id], size: large}",
        "{table: shop.b, keys: [id], size: medium}",
        "{table: shop.c, keys: [id], size: large, schedule: continuous}",
    )
    dags, upkeep = build_dags(), build_upkeep_dags()
    special = [dags["gddl.shop.a"].get_task(name) for name in LOADS]
    special += [dags["gddl.shop.c"].get_task("continuous_load")]
    special += [upkeep[f"gddl_{name}"].get_task(task) for name, task in UPKEEP]
    for task in special:
        assert (task.queue, task.executor_config) == ("spark", {"cpu": 4, "labels": ["a"]})
    others = [dags["gddl.shop.a"].get_task("landed"), *dags["gddl.shop.b"].tasks]
    assert {(task.queue, str(task.executor_config)) for task in others} == {("default", "{}")}
    stored = kept(dags["gddl.shop.a"]).get_task("initial_load")
    assert (stored.queue, stored.executor_config) == ("spark", {"cpu": 4, "labels": ["a"]})


UPKEEP = (("maintenance", "maintain_large"), ("verify", "verify_large"))


def test_loads_of_tiers_that_name_no_queue_have_that_of_default_args(stage: Stage) -> None:
    stage.write("gddl.yaml", f"{ROOTS}tiers: {{large: {{queue: spark}}}}\n")
    stage.rows("{table: shop.a, keys: [id], size: large}", "{table: shop.b, keys: [id], size: medium}")
    dags = build_dags(default_args={"queue": "team"})
    assert [dags[f"gddl.shop.{name}"].get_task("initial_load").queue for name in "ab"] == ["spark", "team"]


# Two metadata folders


@pytest.fixture
def second(stage: Stage) -> Path:
    """Another metadata folder for the same lake, with a table of the same pack."""
    folder = stage.root / "second"
    (folder / "tables").mkdir(parents=True)
    (folder / "gddl.yaml").write_text(f"{ROOTS}dag_prefix: two_\ntiers: {{small: {{slots: 9}}}}\n")
    (folder / "tables" / "shop.yaml").write_text("tables:\n  - {table: shop.z, keys: [id]}\n")
    stage.rows("{table: shop.a, keys: [id]}")
    return folder


def test_dags_of_two_folders_have_ids_and_pools_of_their_own(second: Path) -> None:
    one, two = build_dags(), build_dags(second)
    raise_problems()
    raise_problems(second)
    assert (sorted(one), sorted(two)) == ([PACK], [f"two_{PACK}"])
    assert one[PACK].get_task("initial_load").pool == "gddl_small"
    assert two[f"two_{PACK}"].get_task("initial_load").pool == "two_gddl_small"
    named = {"gddl_maintenance", "gddl_verify", "gddl_rerun"}
    assert set(build_upkeep_dags()) == named
    assert set(build_upkeep_dags(second)) == {f"two_{name}" for name in named}
    assert "/dags/two_gddl_rerun/dagRuns" in str(build_upkeep_dags(second)["two_gddl_rerun"].doc_md)


def test_a_forgotten_prefix_is_an_import_error(second: Path) -> None:
    """Airflow would show the DAGs of the file that was parsed last."""
    (second / "gddl.yaml").write_text(ROOTS.replace("../lake", "../other"))
    build_dags()
    build_dags(second)
    for folder, other in ((None, second), (second, second.parent / "metadata")):
        with pytest.raises(
            MetadataProblems, match=rf"DAG_IDS_TAKEN.*{other} has 1 DAGs of the same ids, e\.g\. {PACK}"
        ):
            raise_problems(folder)


def test_a_forgotten_prefix_is_found_by_the_dags_of_whole_folders(second: Path) -> None:
    (second / "gddl.yaml").write_text(ROOTS.replace("../lake", "../other"))
    (second / "tables" / "shop.yaml").write_text("tables: [{table: elsewhere.b, keys: [id], source: elsewhere}]")
    build_dags()
    build_upkeep_dags()
    build_dags(second)
    raise_problems()
    build_upkeep_dags(second)
    for folder in (None, second):
        with pytest.raises(MetadataProblems, match=r"DAG_IDS_TAKEN.* has 3 DAGs of the same ids, e\.g\. gddl_maint"):
            raise_problems(folder)


def test_two_versions_of_a_dag_bundle_do_not_hide_each_other(second: Path) -> None:
    """Each has a folder of its own, and both are parsed when one is deployed; landing root and lake are the same."""
    (second / "gddl.yaml").write_text(ROOTS)
    build_dags()
    build_dags(second)
    raise_problems()
    raise_problems(second)


def test_a_worker_builds_only_the_dag_it_runs_of_two_folders(second: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for running, of_second in ((f"two_{PACK}", True), (PACK, False)):
        monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", running)
        assert (list(build_dags()), list(build_dags(second))) == (([], [running]) if of_second else ([running], []))
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "two_gddl_verify")
    assert (list(build_upkeep_dags()), list(build_upkeep_dags(second))) == ([], ["two_gddl_verify"])


@pytest.mark.usefixtures("database")
def test_pools_of_all_folders_that_dag_files_name_are_created(second: Path) -> None:
    build_dags()
    build_dags(second)
    created = create_missing_pools()
    with create_session() as session:
        slots = {pool.pool: pool.slots for pool in Pool.get_pools(session=session)}
    for name in created:  # the session's database is that of other tests, too
        Pool.delete_pool(name)
    assert slots["two_gddl_small"] == 9


@pytest.mark.usefixtures("database")
def test_two_folders_in_one_lake_have_separate_hints(stage: Stage, second: Path) -> None:
    stage.land("shop.a")
    stage.land("shop.z")
    moments = (datetime(2025, 3, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(4))
    for _ in range(2):
        for folder, dag_id in ((stage.metadata, PACK), (second, f"two_{PACK}")):
            stage.monkeypatch.setenv("GDDL_METADATA", str(folder))  # `test` has Airflow parse the DAGs folder
            assert str(build_dags(folder)[dag_id].test(logical_date=next(moments)).state) == "success"
    assert stage.loaded == [["shop.a"], ["shop.z"]]
    assert (list(stage.state(PACK).hints), list(stage.state(f"two_{PACK}").hints)) == (["shop.a"], ["shop.z"])


def test_a_prefix_is_given_by_environment_too(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.rows("{table: shop.a, keys: [id]}")
    monkeypatch.setenv("GDDL_DAG_PREFIX", "dev_")
    assert list(build_dags()) == [f"dev_{PACK}"]


# Schedules


def test_schedules_are_displayed_as_written_with_airflow_s_description(stage: Stage) -> None:
    written = {"a": "@hourly", "b": "*/15 * * * *", "c": "30 6 * * 1-5", "d": "@once", "e": "@weekly"}
    stage.rows(*(f"{{table: shop.{n}, keys: [id], size: large, schedule: '{text}'}}" for n, text in written.items()))
    stored = {name: kept(dag).timetable for name, dag in build_dags().items()}
    shown = {n: (stored[f"gddl.shop.{n}"].summary, stored[f"gddl.shop.{n}"].description) for n in written}
    assert {n: summary for n, (summary, _) in shown.items()} == written
    assert (shown["b"][1], shown["c"][1]) == ("Every 15 minutes", "At 06:30, Monday through Friday")
    assert re.fullmatch(r"At \d+ minutes past the hour", shown["a"][1])
    assert re.fullmatch(r"At 00:\d\d, only on Sunday", shown["e"][1])
    upkeep = {name: kept(dag).timetable for name, dag in build_upkeep_dags().items()}
    assert (upkeep["gddl_maintenance"].summary, upkeep["gddl_rerun"].summary) == ("@daily", "None")


@pytest.mark.usefixtures("database")
def test_doc_pages_are_serialized(stage: Stage) -> None:
    """In the column that its list of DAGs shows."""
    from airflow.models.dag import DagModel  # noqa: PLC0415 - not before Airflow has its database

    stage.rows("{table: shop.a, keys: [id], size: large}")
    build_dags()["gddl.shop.a"].test(logical_date=datetime(2025, 4, 1, tzinfo=UTC))
    with create_session() as session:
        found = session.get(DagModel, "gddl.shop.a")
    assert (found.timetable_summary, found.timetable_description[:3]) == ("@hourly", "At ")


def test_timetables_are_equal_when_all_of_them_is() -> None:
    one = GddlCronTimetable("7 * * * *", timezone="UTC", written="@hourly")
    assert one == GddlCronTimetable.deserialize(one.serialize())
    others = [("8 * * * *", "UTC", "@hourly"), ("7 * * * *", "Europe/Berlin", "@hourly"), ("7 * * * *", "UTC", "")]
    for cron, timezone, written in others:
        assert one != GddlCronTimetable(cron, timezone=timezone, written=written)


def test_a_cron_line_has_one_timetable_in_a_process() -> None:
    one = cron_timetable("7 * * * *", timezone="UTC", written="@hourly")
    assert cron_timetable("7 * * * *", timezone="UTC", written="@hourly") is one
    assert cron_timetable("7 * * * *", timezone="UTC", written="") is not one
    stored = GddlCronTimetable.deserialize(one.serialize())
    assert GddlCronTimetable.deserialize(one.serialize()) is stored == one


def test_the_configuration_is_read_as_often_for_many_dags_as_for_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    read = configuration.text
    monkeypatch.setattr(configuration, "text", lambda option: asked.append(option) or read(option))
    counts = []
    for tables in (1, 20):
        stage.rows(*(f"{{table: shop.t{n}, keys: [id], size: large}}" for n in range(tables)))
        asked.clear()
        assert len(build_dags()) == tables
        counts.append(len(asked))
    assert counts[0] == counts[1] > 5


def test_a_preset_runs_at_the_minute_of_its_dag(stage: Stage) -> None:
    stage.rows(*(f"{{table: shop.t{n}, keys: [id], size: large}}" for n in range(20)))
    found = [kept(dag).timetable for dag in build_dags().values()]
    assert len({timetable.serialize()["expression"] for timetable in found}) > 10
    assert all(re.fullmatch(r"\d+ \* \* \* \*", timetable.serialize()["expression"]) for timetable in found)
