"""What Airflow must let run at once for the rows, and whether its settings or MWAA's environment do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.capacity.airflow_settings import compared, of_airflow, of_mwaa
from airflow_gddl.capacity.parallelism import (
    ACTIVE_RUNS,
    ACTIVE_TASKS,
    CAPACITY,
    PARALLELISM,
    WORKER_TASKS,
    GivenSettings,
)
from airflow_gddl.capacity.plan import Plan
from airflow_gddl.capacity.rules import AIRFLOW, MWAA, mwaa_limits
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import DEFAULT_TIERS
from tests.unit.metadata_folder import SETTINGS, loaded, row_file
from tests.unit.test_capacity import SUNDAY, planned, table, tables

SLOTS = {**DEFAULT_TIERS, "medium": replace(DEFAULT_TIERS["medium"], slots=100)}
REMOTE: Mapping[str, Any] = {"runner": "databricks", "settings": {"wheel": "/V/a.whl"}}


def least(plan: Plan) -> dict[str, int]:
    return {need.setting: need.least for need in plan.parallelism.needs}


def test_loads_on_this_machine_hold_slots() -> None:
    rows = [*tables(60, size="medium", schedule="0 6 * * *"), table(900, size="medium", schedule="continuous")]
    found = planned(rows, tiers=SLOTS)
    # 60 loads and a continuous one; 60 starts in a minute of 1.5 s each are two at once.
    assert least(found) == {
        PARALLELISM: 63, WORKER_TASKS: 63, ACTIVE_TASKS: 2, ACTIVE_RUNS: 2, CAPACITY: 60,
    }  # fmt: skip
    assert found.parallelism.mwaa_class is None, "no job runs on MWAA's workers"


def test_loads_elsewhere_hold_triggers() -> None:
    rows = tables(60, size="medium", schedule="0 6 * * *")
    found = planned(rows, tiers=SLOTS, **REMOTE)
    # Two brief tasks a load, 120 in a minute: three at once. A poll and a deferred load each.
    assert (least(found)[PARALLELISM], least(found)[CAPACITY]) == (3, 120)
    assert (found.parallelism.mwaa_class, found.parallelism.mwaa_workers) == ("mw1.medium", 1)


def test_schedulers_share() -> None:
    rows = tables(60, size="medium", schedule="0 6 * * *")
    two = planned(rows, replace(AIRFLOW, schedulers=2), tiers=SLOTS)
    assert {name: least(two)[name] for name in (PARALLELISM, WORKER_TASKS, CAPACITY)} == {
        PARALLELISM: 31, WORKER_TASKS: 62, CAPACITY: 30,
    }  # fmt: skip


def test_each_table_of_a_wide_pack_is_a_task() -> None:
    assert least(planned(tables(200, airflow="pack")))[ACTIVE_TASKS] == 2
    # 200 instances in a minute, 1.5 s each.
    assert least(planned(tables(200, airflow="mapped")))[ACTIVE_TASKS] == 7


def test_only_continuous_pipelines_have_one_run() -> None:
    assert ACTIVE_RUNS not in least(planned(tables(2, size="large", schedule="continuous")))


@pytest.mark.parametrize("name", MWAA)
def test_the_class_of_mwaa_has_room_for_dags_and_tasks(name: str) -> None:
    """As many tables with a DAG each as the class is documented for: upkeep takes two."""
    rows = tables(MWAA[name].dags - 2, size="medium", schedule=None)
    assert planned(rows, mwaa_limits(name), **REMOTE).parallelism.mwaa_class == name
    following = list(MWAA)[list(MWAA).index(name) + 1 :]
    more = planned([*rows, table(99_999, size="medium", schedule=None)], mwaa_limits(name), **REMOTE).parallelism
    assert more.mwaa_class == (following[0] if following else None)


ROWS: dict[str, str | bytes] = {
    "tables/t.yaml": row_file(
        *(f"{{table: shop.t{n}, keys: [id], size: medium, schedule: '0 6 * * *'}}" for n in range(40))
    )
}
MANY = ROWS | {"gddl.yaml": f"{SETTINGS}tiers:\n  medium: {{slots: 40}}\n"}


def test_settings_of_airflow_are_compared(tmp_path: Path) -> None:
    rows = loaded(tmp_path, MANY)
    is_enough, message = compared(rows, of_airflow({"AIRFLOW_HOME": str(tmp_path)}), SUNDAY)
    assert not is_enough
    assert message.startswith("[PARALLELISM_SHORT] Airflow's configuration: core.parallelism is 32, at least 41;")
    (tmp_path / "airflow.cfg").write_text("[core]\nparallelism = 64\n[triggerer]\ncapacity = 10\n")
    _, message = compared(rows, of_airflow({"AIRFLOW_HOME": str(tmp_path)}), SUNDAY)
    assert "triggerer.capacity is 10, at least 40" in message
    assert "parallelism" not in message
    environ = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__TRIGGERER__CAPACITY": "50"}
    is_enough, message = compared(rows, of_airflow(environ), SUNDAY)
    assert is_enough, message
    assert "not known" not in message


def test_tasks_that_do_not_defer_hold_slots(tmp_path: Path) -> None:
    rows, environ = loaded(tmp_path, ROWS), {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__GDDL__DEFERRABLE": "False"}
    given = of_airflow(environ)
    assert not given.deferrable
    _, message = compared(rows, given, SUNDAY)
    # Four slots, forty polls and their start.
    assert "core.parallelism is 32, at least 45" in message


def test_workers_of_celery_are_not_known(tmp_path: Path) -> None:
    environ = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor"}
    assert WORKER_TASKS not in of_airflow(environ).values
    is_enough, message = compared(loaded(tmp_path, ROWS), of_airflow(environ), SUNDAY)
    assert is_enough
    assert "not known: tasks of all workers" in message


def test_options_that_a_command_gives_are_not_known(tmp_path: Path) -> None:
    environ = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__PARALLELISM_CMD": "cat /run/parallelism"}
    assert {PARALLELISM, WORKER_TASKS}.isdisjoint(of_airflow(environ).values)


def test_a_setting_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match=r"\[OPTION_INVALID\] core.parallelism is 'many'"):
        of_airflow({"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__PARALLELISM": "many"})


def environment(**fields: Any) -> str:
    """The part of AWS's answer that is read, and one field more."""
    usual = {"Name": "prod", "Status": "AVAILABLE", "EnvironmentClass": "mw1.small", "MaxWorkers": 3, "Schedulers": 2}
    return json.dumps({"Environment": {**usual, **fields}})


def test_an_environment_of_mwaa() -> None:
    assert of_mwaa(environment()) == GivenSettings(
        where="MWAA's environment prod", values={ACTIVE_RUNS: 8, WORKER_TASKS: 15}, schedulers=2, dags=50
    )
    options = {
        "celery.worker_autoscale": "8,4", "core.parallelism": "20", "triggerer.default_capacity": "60",
        "gddl.deferrable": "False",
    }  # fmt: skip
    found = of_mwaa(environment(AirflowConfigurationOptions=options))
    assert found.values == {ACTIVE_RUNS: 8, WORKER_TASKS: 24, PARALLELISM: 20, CAPACITY: 60}
    assert not found.deferrable


def test_rows_against_an_environment_of_mwaa(tmp_path: Path) -> None:
    rows = loaded(tmp_path, ROWS)
    small = of_mwaa(environment(AirflowConfigurationOptions={"gddl.deferrable": "False"}))
    assert compared(rows, small, SUNDAY)[1].startswith(
        "[PARALLELISM_SHORT] MWAA's environment prod: tasks of all workers is 15, at least 45:"
    )
    micro = of_mwaa(environment(EnvironmentClass="mw1.micro", MaxWorkers=1, Schedulers=1))
    is_enough, message = compared(rows, micro, SUNDAY)
    assert not is_enough
    assert "its class is documented for 25 DAGs, there are 42" in message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"Environment": null}',
        environment(EnvironmentClass="mw2.small"),
        environment(MaxWorkers=None),
        environment(MaxWorkers=0),
        environment(Schedulers=-1),
        environment(MaxWorkers=float("inf")),
        "[" * 100_000,
    ],
)
def test_what_is_no_environment_is_refused(text: str) -> None:
    with pytest.raises(MetadataError, match=r"\[MWAA_ENVIRONMENT_INVALID\].*get-environment --name"):
        of_mwaa(text)
