"""Backfills of every DAG where Airflow makes their runs, as it did before 3.2: none is red, and none starts a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import pytest

from devtools.standalone.supervisor import RefusedError
from tests.e2e.site import Site

VIEWS = ("pack", "group", "mapped", "table")
SETTINGS = """\
landing: ../landing
lake: ../older-lake
dag_prefix: older_
defaults: {schedule: "@hourly"}
tiers:
  pack: {airflow: pack}
  group: {airflow: group}
  mapped: {airflow: mapped}
  table: {airflow: table}
"""
DAGS = '''\
"""DAGs of another metadata folder, which allow backfills as those of Airflow before 3.2 do."""

from airflow_gddl.dags import factory, maintenance

factory.without_backfills = maintenance.without_backfills = dict
globals().update({{**factory.build_dags({metadata!r}), **maintenance.build_upkeep_dags({metadata!r})}})
'''
SPANS = {
    **{f"older_gddl_pack.older.{view}.1": timedelta(hours=8) for view in ("pack", "group", "mapped")},
    **{f"older_gddl.older.table_{name}": timedelta(hours=8) for name in "ab"},
    "older_gddl_maintenance": timedelta(days=4),
    "older_gddl_verify": timedelta(days=22),
    "older_gddl_watch": timedelta(hours=1),
}
"""DAGs with a schedule, and a time with several of their runs."""


@pytest.fixture(scope="module")
def older(site: Site) -> None:
    """Tables of all shapes, each with a file to load."""
    folder = site.root / "older"
    (folder / "tables").mkdir(parents=True)
    (folder / "gddl.yaml").write_text(SETTINGS)
    rows = [f"  - {{table: older.{view}_{name}, keys: [id], size: {view}}}\n" for view in VIEWS for name in "ab"]
    (folder / "tables" / "older.yaml").write_text("".join(["source: older\ntables:\n", *rows]))
    (site.root / "dags" / "older.py").write_text(DAGS.format(metadata=str(folder)))
    site.runs.wait_for([*SPANS])
    for view in VIEWS:
        for name in "ab":
            site.land(f"older.{view}_{name}")


def accepted(site: Site, dag_id: str) -> bool:
    """Airflow refuses one while another process writes to SQLite."""
    now = datetime.now(UTC)
    begin, end = now - SPANS[dag_id], now - SPANS[dag_id] / 4  # the newest interval is the scheduler's own
    asked = {"dag_id": dag_id, "from_date": begin.isoformat(), "to_date": end.isoformat(), "max_active_runs": 3}
    try:
        site.running.rest.post("backfills", asked)
    except RefusedError as error:
        if error.status not in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.CONFLICT):
            raise
        return error.status == HTTPStatus.CONFLICT
    return True


def runs_of(site: Site, dag_id: str) -> list[dict[str, Any]]:
    found = site.running.rest.get(f"dags/{dag_id}/dagRuns?limit=100")["dag_runs"]
    return [one for one in found if one["run_type"] == "backfill"]


def states(site: Site, run: dict[str, Any]) -> set[str]:
    path = f"dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances?limit=100"
    return {one["state"] for one in site.running.rest.get(path)["task_instances"]}


@pytest.mark.usefixtures("older")
def test_runs_of_backfills_are_skipped_in_dags_of_every_shape(site: Site) -> None:
    scheduler = site.running.parts.pop("scheduler")
    scheduler.kill()
    for dag_id in SPANS:
        site.running.wait(f"the backfill of {dag_id}", lambda dag_id=dag_id: accepted(site, dag_id))
    site.running.parts["scheduler"] = scheduler
    site.restart("scheduler")
    for dag_id in SPANS:
        done = lambda dag_id=dag_id: all(run["state"] in ("success", "failed") for run in runs_of(site, dag_id))  # noqa: E731 - as it reads
        site.running.wait(f"the runs of {dag_id}", done)
    runs = {dag_id: runs_of(site, dag_id) for dag_id in SPANS}
    assert all(len(found) > 1 for found in runs.values()), runs
    assert {run["state"] for found in runs.values() for run in found} == {"success"}
    assert [run["dag_run_id"] for found in runs.values() for run in found if states(site, run) != {"skipped"}] == []
    assert [job for job in site.jobs("older") if job["options"]["origin"][1].startswith("backfill")] == []
