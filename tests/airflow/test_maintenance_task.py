"""The DAGs of maintenance and verification: what they are, what their tasks order, what of a source they hand on."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.timetables.base import TimeRestriction

from airflow_gddl.dags.maintenance import build_upkeep_dags
from airflow_gddl.operators import upkeep
from airflow_gddl.operators.jobs import GddlUpkeepOperator
from airflow_gddl.runtime.state.lake_state import StateReader
from airflow_gddl.version_compat import AirflowException, AirflowFailException, AirflowSkipException
from tests.airflow.bag import kept, serialised
from tests.airflow.stage import Stage


@pytest.fixture
def shop(stage: Stage) -> Stage:
    stage.rows(
        "{table: shop.a, keys: [id], options: {verify_connection: gddl_source_shop}}",
        "{table: shop.b, keys: [id], source: other}",
        "{table: shop.big, keys: [id], size: large}",
        "{table: shop.off, keys: [id], enabled: false}",
    )
    return stage


def execute(
    dag_id: str, task_id: str, tables: tuple[str, ...] = (), cleared: int = 0, run_id: str = "r"
) -> dict[str, Any]:
    task = build_upkeep_dags()[dag_id].get_task(task_id)
    assert isinstance(task, GddlUpkeepOperator)
    context: Any = {"params": {"tables": list(tables)}, "run_id": run_id, "ti": SimpleNamespace(try_number=1)}
    context["dag_run"] = SimpleNamespace(clear_number=cleared)
    return task.execute(context)


def test_a_task_for_each_tier_on_schedules_of_their_own(shop: Stage) -> None:
    dags = build_upkeep_dags()
    assert {dag_id: sorted(dag.task_ids) for dag_id, dag in dags.items()} == {
        "gddl_maintenance": ["maintain_large", "maintain_small"],
        "gddl_rerun": ["find", "refused", "rerun"],
        "gddl_verify": ["verify_large", "verify_small"],
    }
    again = build_upkeep_dags()
    assert [serialised(dag) for dag in dags.values()] == [serialised(dag) for dag in again.values()]


def test_schedules_are_settings(shop: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__MAINTENANCE_SCHEDULE", "")
    monkeypatch.setenv("AIRFLOW__GDDL__VERIFY_SCHEDULE", "5 4 * * *")
    dags = build_upkeep_dags()
    assert json.loads(serialised(dags["gddl_maintenance"]))["dag"]["timetable"]["__type"].endswith("NullTimetable")
    assert "5 4 * * *" in serialised(dags["gddl_verify"])


def test_the_first_run_is_not_at_once(shop: Stage) -> None:
    """New DAGs would else have every table maintained and verified beside their first load."""
    dag = kept(build_upkeep_dags()["gddl_verify"])
    found = dag.timetable.next_dagrun_info(
        last_automated_data_interval=None, restriction=TimeRestriction(dag.start_date, None, catchup=False)
    )
    assert found is not None
    assert found.run_after > datetime.now(UTC)


def test_without_tables_there_are_no_maintenance_dags(stage: Stage) -> None:
    stage.rows()
    assert build_upkeep_dags() == {}


def test_a_task_maintains_the_enabled_tables_of_its_tier(shop: Stage) -> None:
    reported = execute("gddl_maintenance", "maintain_small")
    assert shop.loaded == [["shop.a", "shop.b"]]
    assert shop.jobs[0]["options"]["action"]["name"] == "maintain"
    assert (reported["tables"], reported["succeeded"]) == (2, 2)
    known = StateReader(str(shop.lake), time.time).read().records
    assert [known[table].maintained is not None for table in ("shop.a", "shop.b")] == [True, True]


def test_only_named_tables_are_verified(shop: Stage) -> None:
    execute("gddl_verify", "verify_small", ("shop.b", "shop.big"))
    assert (shop.loaded, shop.jobs[0]["options"]["action"]["name"]) == ([["shop.b"]], "verify")
    with pytest.raises(AirflowSkipException):
        execute("gddl_verify", "verify_large", ("shop.b",))


@pytest.mark.parametrize("action", ["maintain", "verify"])
def test_a_backfill_starts_no_job_and_says_why(action: str, shop: Stage) -> None:
    dag_id = "gddl_maintenance" if action == "maintain" else "gddl_verify"
    with pytest.raises(AirflowSkipException, match=r"a backfill does nothing here.*Trigger the DAG"):
        execute(dag_id, f"{action}_small", run_id="backfill__2026-01-01T00:00:00+00:00")
    assert shop.jobs == []


def test_a_verification_by_windows_of_time(shop: Stage) -> None:
    """What it finds is kept with the findings of commands, which it can end."""
    task = build_upkeep_dags()["gddl_verify"].get_task("verify_small")
    params = {"tables": ["shop.a"], "since": "24h", "by": "day"}
    context: Any = {"params": params, "run_id": "r", "ti": SimpleNamespace(try_number=1)}
    context["dag_run"] = SimpleNamespace(clear_number=0)
    task.execute(context)
    asked = shop.jobs[0]["options"]["action"]
    assert (asked["name"], asked["since_seconds"], asked["window"]) == (
        "verify",
        86400.0,
        "day",
    )
    assert (shop.lake / "_gddl" / "state" / "by-hand.json").exists()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"tables": ["shop.typo"]}, r"no table of the metadata: shop\.typo"),
        ({"tables": ["shop.a", "shop.off"]}, r"no DAG loads shop\.off: its metadata row is disabled"),
        ({"table": ["shop.a"]}, r"table \(did you mean tables\?\)"),
        ({"since": "a day"}, r"no windows of time: 'a day' by 'hour'"),
    ],
)
def test_invalid_requests_fail_the_task(shop: Stage, params: dict[str, Any], said: str) -> None:
    task = build_upkeep_dags()["gddl_verify"].get_task("verify_small")
    context: Any = {"params": params, "run_id": "r", "ti": SimpleNamespace(try_number=1)}
    with pytest.raises(AirflowFailException, match=rf"OPTION_INVALID.*{said}"):
        task.execute(context)
    assert shop.jobs == []


def test_a_failed_table_fails_the_task_by_name(shop: Stage) -> None:
    shop.order(fail={"shop.b": ["VERIFY_DIFFERENT", "3 of 256 buckets differ"]})
    with pytest.raises(AirflowException, match=r"1 of 2 tables failed(.|\n)*shop\.b: \[VERIFY_DIFFERENT\]"):
        execute("gddl_verify", "verify_small")


def test_a_retry_runs_remaining_tables_and_clearing_runs_all(shop: Stage) -> None:
    shop.order(fail={"shop.b": ["VERIFY_DIFFERENT", "3 of 256 buckets differ"]})
    for _ in range(2):
        with pytest.raises(AirflowException, match=r"1 of 2 tables failed(.|\n)*shop\.b: \[VERIFY_DIFFERENT\]"):
            execute("gddl_verify", "verify_small")
    shop.order()
    assert execute("gddl_verify", "verify_small")["succeeded"] == 1
    assert shop.loaded == [["shop.a", "shop.b"], ["shop.b"], ["shop.b"]]
    execute("gddl_verify", "verify_small", cleared=1)
    assert shop.loaded[3:] == [["shop.a", "shop.b"]]


def test_a_task_is_not_retried_if_no_table_can_succeed(shop: Stage) -> None:
    shop.order(fail={"shop.b": ["VERIFY_DIFFERENT", "3 of 256 buckets differ"]}, fatal=["shop.b"])
    with pytest.raises(AirflowFailException, match="fix their causes, then clear the task"):
        execute("gddl_verify", "verify_small")


def test_a_job_for_each_so_many_tables(shop: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "TABLES_PER_JOB", 1)
    shop.order(fail={"shop.a": ["VERIFY_DIFFERENT", "no"]})
    with pytest.raises(AirflowException, match=r"1 of 2 tables failed"):
        execute("gddl_verify", "verify_small")
    assert shop.loaded == [["shop.a"], ["shop.b"]]
    assert len({job["run_id"] for job in shop.jobs}) == 2


def test_only_the_named_connection_reaches_the_job_s_environment(shop: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_GDDL_SOURCE_SHOP", "postgres://u:hunter2@db/shop")
    program = Path(shop.root, "job.py")
    program.write_text(
        "import json, os, sys\n"
        "spec = open(sys.argv[sys.argv.index('--spec') + 1]).read()\n"
        "found = os.environ.get('AIRFLOW_CONN_GDDL_SOURCE_SHOP', '')\n"
        f"open({str(shop.root / 'seen')!r}, 'w').write(found + '|' + spec)\n"
        "for t in json.loads(spec)['tables']:\n"
        "    print(json.dumps({'table': t['table'], 'status': 'succeeded'}))\n"
    )
    monkeypatch.setenv("AIRFLOW__GDDL__JOB_COMMAND", json.dumps(["python3", str(program)]))
    execute("gddl_verify", "verify_small")
    uri, _, spec = (shop.root / "seen").read_text().partition("|")
    assert uri == "postgres://u:hunter2@db/shop"
    assert "hunter2" not in spec
