"""The page behind Airflow's own authentication: who sees what, hostile names, a lake that can't be read."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import log_folder
from airflow_gddl.contract.result import ErrorInfo, Freshness, JobResult, MainCounts
from airflow_gddl.runtime.state.recording import Records, read_records, write_record
from airflow_gddl.runtime.state.table_runs import TablePoll
from airflow_gddl.runtime.state.table_status import STATES
from airflow_gddl.stores import open_store
from airflow_gddl.tools.page.app import HEADERS
from tests.airflow.page_site import NOW, PACK, Site
from tests.airflow.stage import Stage

ROOT = Path(__file__).parents[2]
PATHS = ("table", "table/lake", "table/quarantine", "table/rows")
"""What is asked of one table."""


@pytest.fixture
def site(stage: Stage) -> Site:
    stage.rows(
        "{table: shop.good, keys: [id], freshness: 1h, owner: sales}",
        "{table: shop.bad, keys: [id]}",
        "{table: shop.off, keys: [id], enabled: false}",
        "{table: shop.own, keys: [id], size: medium}",
    )
    stage.write(
        "tables/shop.yaml",
        (stage.metadata / "tables/shop.yaml").read_text().replace("tables:", "source: shop\ntables:", 1),
    )
    made = Site(stage)
    good = {"status": "succeeded", "rows_read": 9, "changes_written": 8, "quarantined": 1, "files": 2, "run_id": "r1"}
    fresh = Freshness(commit_ts="2023-11-14T22:00:00+00:00", lag_seconds=30.0)
    made.ran(
        "shop.good", {**good, "started_at": "2023-11-14T22:05:00+00:00", "freshness": fresh, "main": MainCounts(rows=8)}
    )
    made.ran("shop.bad", {"status": "failed", "error": ErrorInfo(code="X_Y", message="<b>broken</b>"), "run_id": "r2"})
    return made


def test_without_a_login_there_is_no_answer(site: Site, users: dict[str, dict[str, str]]) -> None:
    for path in ("/api/v1/tables", *(f"/api/v1/{path}?name=shop.good" for path in PATHS)):
        assert site.client.get(path).status_code == 401, path
        assert site.client.get(path, headers={"Authorization": "Bearer forged.token.here"}).status_code == 403, path


def test_each_answer_is_described(site: Site) -> None:
    """By OpenAPI, which needs no login, since it holds no data."""
    found = site.client.get("/api/v1/openapi.json").json()
    assert found["info"]["version"] == "1"
    paths = {"/api/v1/tables", "/api/v1/overview", "/api/v1/table", "/api/v1/log", *(f"/api/v1/{p}" for p in PATHS)}
    assert found["paths"].keys() >= paths
    for path, methods in found["paths"].items():
        for method in methods.values():
            assert len(method["description"]) > 40, path
    assert "search" in {p["name"] for p in found["paths"]["/api/v1/tables"]["get"]["parameters"]}


def test_static_files_have_no_data_and_a_strict_content_policy(site: Site) -> None:
    index = site.client.get("/")
    assert index.status_code == 200
    assert "shop." not in index.text
    assert index.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    for name in ("page.js", "page.css"):
        assert site.client.get(f"/static/{name}").status_code == 200
    for name in ("../app.py", "%2e%2e/app.py", "..%2fapp.py", "//etc/passwd"):
        assert site.client.get(f"/static/{name}").status_code == 404, name


def test_no_script_makes_markup_or_loads_from_elsewhere() -> None:
    folder = Path(importlib.import_module("airflow_gddl.tools.page.app").STATIC)
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8")
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "style=",
            'onclick="',
        ):
            assert forbidden not in text, (path.name, forbidden)
        assert "//" not in text.replace("// ", "").replace("http://www.w3.org/2000/svg", "") or path.suffix == ".js"
        assert "https://" not in text, path.name


def test_the_list_has_each_table_with_its_state(site: Site, users: dict[str, dict[str, str]]) -> None:
    answer = site.client.get("/api/v1/tables", headers=users["viewer"])
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert [row["table"] for row in body["rows"]] == ["shop.bad", "shop.good", "shop.own", "shop.off"]
    assert {state: number for state, number in body["choices"].items() if number} == {
        "all": 4, "failed": 1, "attention": 1, "new": 1, "disabled": 1, "quarantined": 1,
    }  # fmt: skip
    assert list(body["choices"]) == ["all", *STATES, "quarantined"]
    bad, good, _, off = body["rows"]
    assert bad["error"] == ["X_Y", "<b>broken</b>"]
    assert (good["dag_id"], good["owner"], good["rows"], good["quarantined"], good["freshness"]) == (
        PACK,
        "sales",
        8,
        1,
        3600,
    )
    assert (good["runs"][0]["airflow"], good["runs"][0]["adds_up"]) == (["manual__1", "initial_load"], True)
    assert off["dag_id"] is None
    assert body["facets"]["tier"] == ["medium", "small"]


@pytest.mark.usefixtures("paused")
def test_a_paused_dag_is_named(site: Site, users: dict[str, dict[str, str]]) -> None:
    """A new source's DAG starts paused: its tables are `new`, and nothing else said why."""
    assert site.client.get("/api/v1/tables", headers=users["viewer"]).json()["paused"] == [PACK]
    of_table = {name: site.client.get(f"/api/v1/table?name={name}", headers=users["viewer"]).json()["paused"]
                for name in ("shop.good", "shop.own", "shop.off")}  # fmt: skip
    assert of_table == {"shop.good": True, "shop.own": False, "shop.off": False}


def test_no_dag_is_paused_that_airflow_does_not_know(site: Site, users: dict[str, dict[str, str]]) -> None:
    assert site.client.get("/api/v1/tables", headers=users["viewer"]).json()["paused"] == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("search=GOOD", ["shop.good"]),
        ("search=o+OWN", ["shop.own"]),
        ("state=failed&state=new", ["shop.bad", "shop.own"]),
        ("tier=medium", ["shop.own"]),
        ("owner=sales", ["shop.good"]),
        ("source=other", []),
        ("order=table&direction=down&size=2", ["shop.own", "shop.off"]),
        ("order=table&size=3&page=2", ["shop.own"]),
        ("order=lag&size=1&page=99", ["shop.own"]),
        ("order=rows&size=1", ["shop.good"]),
        ("order=as_of&direction=down&size=1", ["shop.good"]),
    ],
)
def test_filters_order_and_pages(site: Site, users: dict[str, dict[str, str]], query: str, expected: list[str]) -> None:
    body = site.client.get(f"/api/v1/tables?{query}", headers=users["viewer"]).json()
    assert [row["table"] for row in body["rows"]] == expected


def test_the_overview_is_of_the_tables_that_the_filters_leave(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(query: str) -> Any:
        return site.client.get(f"/api/v1/overview?{query}", headers=users["viewer"]).json()

    found = asked("span=day")
    assert (found["matching"], found["complete_since"], len(found["periods"])) == (4, None, 24)
    assert [(one["name"], one["runs"], one["rows"]) for one in found["by"]["owner"]] == [("", 1, 0), ("sales", 1, 8)]
    assert found["periods"][-1]["lag"] == [30.0, 30.0]
    assert (asked("owner=sales")["matching"], asked("search=own")["by"]["source"]) == (1, [])
    assert site.client.get("/api/v1/overview?span=year", headers=users["viewer"]).status_code == 422
    assert site.client.get("/api/v1/overview").status_code == 401
    monkeypatch.setattr("airflow_gddl.tools.page.app.readable", lambda _user, _dag_ids: set())
    monkeypatch.setattr("airflow_gddl.tools.page.app.may_read", lambda _user, _dag_id: False)
    assert (asked("")["matching"], asked("")["by"]) == (0, {"source": [], "owner": []})


@pytest.mark.parametrize("query", ["", "search=good", "search=o&tier=small", "owner=sales&state=failed", "search=none"])
def test_a_state_s_number_is_that_of_the_tables_that_it_lists(
    site: Site, users: dict[str, dict[str, str]], query: str
) -> None:
    def asked(more: str) -> Any:
        every = query.replace("state=failed", "")
        return site.client.get(f"/api/v1/tables?{every}{more}", headers=users["viewer"]).json()

    with_state = site.client.get(f"/api/v1/tables?{query}", headers=users["viewer"]).json()
    found = with_state["choices"]
    assert found.pop("all") == asked("")["matching"]
    assert found == {state: asked(f"&state={state}")["matching"] for state in (*STATES, "quarantined")}


@pytest.mark.parametrize("query", ["size=100000", "page=0", "order=drop", "state=odd", f"search={'x' * 201}"])
def test_invalid_queries_are_refused(site: Site, users: dict[str, dict[str, str]], query: str) -> None:
    assert site.client.get(f"/api/v1/tables?{query}", headers=users["viewer"]).status_code == 422


def test_a_table_has_its_runs_and_who_may_trigger(site: Site, users: dict[str, dict[str, str]]) -> None:
    body = site.client.get("/api/v1/table?name=shop.bad", headers=users["admin"]).json()
    assert body["may_trigger"] is True
    assert [run["message"] for run in body["runs"]] == ["<b>broken</b>"], "no job kept this run"
    assert body["runs"][0]["airflow"] == ["manual__1", "initial_load"]
    assert site.client.get("/api/v1/table?name=shop.bad", headers=users["viewer"]).json()["may_trigger"] is False
    assert site.client.get("/api/v1/table?name=shop.off", headers=users["admin"]).json()["may_trigger"] is False


def test_records_are_read_again_when_a_load_ended_or_on_request(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(*given: Any) -> Records:
        read.append(given[1])
        return read_records(*given)

    monkeypatch.setattr("airflow_gddl.tools.page.app.read_records", counted)

    def ask(more: str = "") -> int:
        site.client.get(f"/api/v1/table?name=shop.good{more}", headers=users["viewer"])
        return len(read)

    assert [ask(), ask(), ask()] == [1, 1, 1], "a page that is shown asks every few seconds"
    assert ask("&fresh=true") == 2
    site.ran("shop.good", {"status": "succeeded", "started_at": "2023-11-14T22:12:00+00:00", "run_id": "r9"})
    assert [ask(), ask()] == [3, 3]
    site.now[0] += 31
    assert ask() == 4


def test_upkeep_is_among_a_tables_runs_and_not_in_the_matrix(site: Site, users: dict[str, dict[str, str]]) -> None:
    done = JobResult(
        table="shop.good", status="succeeded", action="maintain", run_id="m", started_at="2023-11-14T22:10:00+00:00",
        origin=("gddl_maintenance", "scheduled__1", "maintain_small"),
        details={"compacted": {"changes": {}}, "files_removed": 3, "tombstones_removed": 0, "dry_run": False},
    )  # fmt: skip
    write_record(open_store(), site.roots, done)
    body = site.client.get("/api/v1/table?name=shop.good", headers=users["viewer"]).json()
    newest = body["runs"][0]
    assert (newest["action"], newest["did"]) == ("maintain", "1 tables with compacted files, 3 files removed")
    assert (newest["dag_id"], newest["airflow"]) == ("gddl_maintenance", ["scheduled__1", "maintain_small"])
    assert [run["run_id"] for run in body["table"]["runs"]] == ["r1"]
    assert (body["table"]["state"], body["totals"]["rows_read"]) == ("attention", 9)


def test_a_replay_says_how_many_rows_were_accepted(site: Site, users: dict[str, dict[str, str]]) -> None:
    done = JobResult(
        table="shop.good", status="succeeded", action="errors_replay", run_id="p", rows_read=3, quarantined=3,
        started_at="2023-11-14T22:10:00+00:00",
    )  # fmt: skip
    write_record(open_store(), site.roots, done)
    answer = site.client.get("/api/v1/table?name=shop.good", headers=users["viewer"]).json()
    assert (answer["runs"][0]["action"], answer["runs"][0]["did"]) == ("errors_replay", "0 of 3 accepted")


@pytest.mark.parametrize(
    "name", ["shop.nothing", "../../etc.passwd", "shop./../good", "%00", "<img src=x onerror=alert(1)>"]
)
def test_only_names_of_the_metadata_lead_anywhere(site: Site, users: dict[str, dict[str, str]], name: str) -> None:
    for path in ("/api/v1/table", "/api/v1/table/lake", "/api/v1/table/lineage", "/api/v1/table/quarantine"):
        answer = site.client.get(path, params={"name": name}, headers=users["admin"])
        assert (answer.status_code, answer.json()) == (404, {"detail": "no such table"})


def logged(site: Site, dag_id: str, text: bytes) -> str:
    """A job's log in the lake; the query that asks for it."""
    path = Path(log_folder(site.roots.lake, dag_id), "20240101T000000-aa.log")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return f"/api/v1/log?dag_id={dag_id}&job={path.stem}"


def test_a_job_s_log_needs_permission_for_task_logs(site: Site, users: dict[str, dict[str, str]]) -> None:
    query = logged(site, PACK, "begun <b>\nend \u00e9\n".encode())
    answer = site.client.get(query, headers=users["viewer"])
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    found = answer.json()
    assert (found["text"], found["size"], found["left_out"]) == ("begun <b>\nend \u00e9\n", 17, 0)
    assert site.client.get(query).status_code == 401
    assert site.client.get(query.replace("aa", "bb"), headers=users["viewer"]).status_code == 404


def test_without_permission_for_task_logs_there_is_no_job_log(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = logged(site, PACK, b"rows")
    manager = importlib.import_module("airflow.api_fastapi.auth.managers.simple.simple_auth_manager").SimpleAuthManager
    asked: list[tuple[Any, ...]] = []

    def refuse(_: Any, *, method: Any, access_entity: Any, details: Any, user: Any) -> bool:
        asked.append((method, access_entity.name, details.id, user.username))
        return False

    monkeypatch.setattr(manager, "is_authorized_dag", refuse)
    answer = site.client.get(query, headers=users["viewer"])
    assert (answer.status_code, answer.json()) == (404, {"detail": "no such log"})
    assert asked == [("GET", "TASK_LOGS", PACK, "viewer")]


@pytest.mark.parametrize("name", ["..", "../secret", "a/b", "", "%2e%2e", "a%00b", "-x", "a" * 300, "a%0Ab"])
def test_only_names_of_dags_and_jobs_lead_to_a_log(site: Site, users: dict[str, dict[str, str]], name: str) -> None:
    (site.stage.lake / "_gddl").mkdir(parents=True, exist_ok=True)
    (site.stage.lake / "_gddl" / "secret.log").write_text("not for you")
    for query in (f"dag_id={name}&job=secret", f"dag_id={PACK}&job={name}"):
        assert site.client.get(f"/api/v1/log?{query}", headers=users["admin"]).status_code == 422


def test_of_a_long_log_the_newest_lines_are_shown(site: Site, users: dict[str, dict[str, str]]) -> None:
    lines = b"".join(b"line %07d of a job\n" % n for n in range(100_000))
    found = site.client.get(logged(site, PACK, lines), headers=users["viewer"]).json()
    assert found["text"].splitlines()[-1] == "line 0099999 of a job"
    assert all(len(line) == 21 for line in found["text"].splitlines())
    assert found["left_out"] == len(lines) - len(found["text"])
    assert 0 < len(found["text"]) <= 1024 * 1024


def test_details_from_the_lake(site: Site, users: dict[str, dict[str, str]]) -> None:
    deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    folder = site.stage.lake / "shop"
    deltalake.write_deltalake(folder / "good", arrow.table({"id": [1], "tags": [["a"]]}))
    row = {
        "occurred_at": ["2023-11-14"],
        "code": ["C"],
        "reason": ["<i>"],
        "column": ["n"],
        "source_file": ["f"],
        "batch_id": ["1"],
    }
    errors = {**row, "record": ["<img src=x onerror=alert(1)>"], "resolved_at": arrow.array([None], arrow.string())}
    deltalake.write_deltalake(folder / "good__errors", arrow.table(errors))
    body = site.client.get("/api/v1/table/lake?name=shop.good", headers=users["viewer"]).json()
    assert [(one["name"], one["type"]) for one in body["replica"]["found"]["columns"]] == [
        ("id", "long"),
        ("tags", "array<string>"),
    ]
    assert [one["version"] for one in body["replica"]["found"]["versions"]] == [0]
    held = site.client.get("/api/v1/table/quarantine?name=shop.good", headers=users["admin"]).json()["found"]
    assert (held["unresolved"], held["codes"]) == (1, {"C": 1})
    assert held["rows"][0]["values"] == [{"name": "", "value": "<img src=x onerror=alert(1)>", "hidden": False}]
    assert body["ledger"]["found"] == {"batch": 0, "files": []}
    (folder / "good" / "_delta_log" / "00000000000000000000.json").write_text("damaged")
    assert (
        "[LAKE_UNREADABLE]"
        in site.client.get("/api/v1/table/lake?name=shop.good", headers=users["viewer"]).json()["replica"]["error"]
    )


def test_lineage_names_sources_tables_and_order(stage: Stage, users: dict[str, dict[str, str]]) -> None:
    stage.rows(
        "{table: public.orders, target: lake.orders, keys: [id], history: true, depends_on: [lake.customers]}",
        "{table: lake.customers, keys: [id], iceberg: true}",
        "{table: lake.broken, keys: [id], freshness: soon}",
    )
    text = (stage.metadata / "tables/shop.yaml").read_text()
    stage.write("tables/shop.yaml", text.replace("tables:", "source: crm\ntables:", 1))
    site = Site(stage)

    def asked(name: str, user: str = "viewer") -> dict[str, Any]:
        found = site.client.get(f"/api/v1/table/lineage?name={name}", headers=users[user]).json()
        assert isinstance(found, dict)
        return found

    orders, customers = asked("lake.orders"), asked("lake.customers")
    landing = f"{stage.landing}/public/orders"
    assert orders["sources"] == [
        {
            "source": "crm",
            "table": "public.orders",
            "landing": landing,
            "dataset": {"namespace": "file", "name": landing},
        }
    ]
    assert [(one["kind"], one["path"]) for one in orders["tables"]] == [
        ("replica", f"{stage.lake}/lake/orders"),
        ("changes", f"{stage.lake}/lake/orders__changes"),
        ("history", f"{stage.lake}/lake/orders__history"),
        ("errors", f"{stage.lake}/lake/orders__errors"),
    ]
    assert [one["kind"] for one in customers["tables"]] == ["replica", "changes", "errors", "Iceberg"]
    assert (orders["after"], orders["before"]) == (["lake.customers"], [])
    assert (customers["after"], customers["before"]) == ([], ["lake.orders"])
    # The landing folder of an invalid row is not known.
    assert asked("lake.broken", "admin")["sources"][0]["landing"] is None


def test_rows_in_quarantine_are_not_for_viewers(site: Site, users: dict[str, dict[str, str]]) -> None:
    query = "/api/v1/table/quarantine?name=shop.good"
    assert site.client.get(query, headers=users["admin"]).json()["found"]["unresolved"] == 0
    assert site.client.get(f"{query}&code={'x' * 101}", headers=users["admin"]).status_code == 422
    assert site.client.get(query, headers=users["viewer"]).json() == {"refused": True}


def test_rows_in_quarantine_have_a_permission_of_their_own(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an auth manager that tells resources apart: a viewer is given it, an admin is not."""
    manager = importlib.import_module("airflow.api_fastapi.app").get_auth_manager()
    asked = []

    class Named(type(manager)):  # type: ignore[misc] # the class of the running manager
        def is_authorized_custom_view(self, *, method: str, resource_name: str, user: Any) -> bool:
            asked.append((method, resource_name))
            return bool(user.username == "viewer")

    monkeypatch.setattr(manager, "__class__", Named)
    query = "/api/v1/table/quarantine?name=shop.good"
    assert site.client.get(query, headers=users["admin"]).json() == {"refused": True}
    assert site.client.get(query, headers=users["viewer"]).json()["found"]["unresolved"] == 0
    assert set(asked) == {("GET", "GDDL Quarantine")}


def test_files_are_those_of_the_jobs_ledger(site: Site, users: dict[str, dict[str, str]]) -> None:
    """Written by the job's own code: when that changes, this page must."""
    ledger = importlib.import_module("tests.airflow.ledgers")
    path = ledger.write(site.roots, "shop.good", batches=25)
    found = site.client.get("/api/v1/table/lake?name=shop.good", headers=users["viewer"]).json()["ledger"]["found"]
    assert found["batch"] == 25
    assert [file["batch"] for file in found["files"]] == list(range(25, 0, -1))
    assert found["files"][0]["path"] == path
    assert (found["files"][0]["rows"], found["files"][0]["state"]) == (3, "committed")


def test_an_unreadable_lake_shows_the_last_state(site: Site, users: dict[str, dict[str, str]]) -> None:
    before = site.client.get("/api/v1/tables", headers=users["viewer"]).json()
    folder = site.stage.lake / "_gddl" / "state"
    folder.rename(site.stage.root / "away")
    folder.symlink_to(folder)
    site.now[0] += 600
    after = site.client.get("/api/v1/tables", headers=users["viewer"]).json()
    runs = [{row["table"]: row["runs"] for row in body["rows"]} for body in (before, after)]
    assert runs[0] == runs[1]
    assert [(trouble["since"], "can't be read" in trouble["what"]) for trouble in after["troubles"]] == [(NOW, True)]


def test_unreadable_metadata_is_reported(site: Site, users: dict[str, dict[str, str]]) -> None:
    assert site.client.get("/api/v1/tables", headers=users["viewer"]).json()["troubles"] == []
    site.stage.write("gddl.yaml", "landing: [")
    site.now[0] += 600
    body = site.client.get("/api/v1/tables", headers=users["viewer"]).json()
    assert body["tables"] == 4
    assert "last good copy" in body["troubles"][0]["what"]


def test_a_table_with_an_invalid_row_stays_in_its_pack(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site.stage.metadata / "tables" / "shop.yaml"
    rows = folder.read_text().replace("freshness: 1h", "freshness: soon")
    site.stage.write("tables/shop.yaml", f"{rows}  - {{table: ../../etc/passwd, keys: [id]}}\n")
    site.now[0] += 600
    body = site.client.get("/api/v1/tables", headers=users["viewer"]).json()
    assert (body["tables"], body["broken"], body["rows"][0]["table"]) == (4, 1, "shop.good")
    (other,) = body["metadata_problems"]
    assert "[FIELD_VALUE]" in other
    one = site.client.get("/api/v1/table?name=shop.good", headers=users["admin"]).json()
    shown = one["table"]
    assert (shown["state"], shown["last_state"], shown["rows"], shown["dag_id"]) == ("broken_row", "attention", 8, PACK)
    (problem,) = shown["problems"]
    assert problem.startswith("tables/shop.yaml:3: [FIELD_VALUE] shop.good freshness:")
    assert (one["may_trigger"], [run["run_id"] for run in one["runs"]]) == (False, ["r1"])
    assert site.client.get("/api/v1/table?name=../../etc/passwd", headers=users["admin"]).status_code == 404
    monkeypatch.setattr("airflow_gddl.tools.page.app.readable", lambda _, ids: set(ids) - {PACK})
    monkeypatch.setattr("airflow_gddl.tools.page.app.may_read", lambda _, dag_id: dag_id not in (None, PACK))
    some = site.client.get("/api/v1/tables", headers=users["viewer"])
    assert "shop.good" not in some.text, "it belongs to those who may read the DAG that loaded it"
    assert "etc" not in some.text
    assert site.client.get("/api/v1/table?name=shop.good", headers=users["viewer"]).status_code == 404


def test_an_invalid_row_without_loads_is_shown_to_users_with_full_access(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.stage.write("tables/more.yaml", "tables:\n  - {table: shop.odd, keys: [id], '<img src=x>': 1}\n")
    site.now[0] += 600
    body = site.client.get("/api/v1/tables?state=broken_row", headers=users["viewer"]).json()
    assert [(row["table"], row["last_state"], row["dag_id"]) for row in body["rows"]] == [("shop.odd", "new", None)]
    monkeypatch.setattr("airflow_gddl.tools.page.app.may_read", lambda _, dag_id: dag_id is not None)
    assert "shop.odd" not in site.client.get("/api/v1/tables", headers=users["viewer"]).text


def test_airflow_mounts_it_and_shows_it_in_its_menu(site: Site, users: dict[str, dict[str, str]]) -> None:
    """In a process of its own: Airflow loads plugins once, from where they are installed or from this folder."""
    plugins = site.stage.root / "plugins"
    plugins.mkdir()
    (plugins / "gddl.py").write_text("from airflow_gddl.plugins.pools import GddlPlugin\n")
    own = {"AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins), "USERS": json.dumps(users), "PACK": PACK}
    command = [sys.executable, "-W", "ignore", "-m", "tests.airflow.mounted"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout.splitlines()[-1])
    assert (body["index"], body["nobody"], body["triggered"]) == (200, 401, 403), "Airflow decides who may trigger"
    assert set(body["tables"]) == {"shop.good", "shop.bad", "shop.off", "shop.own"}
    if body["views"] is not None:  # Airflow 3.1 or newer
        assert [(view["name"], view["href"]) for view in body["views"]] == [("Tables", "/gddl/")]


REFUSED = FatalError("STORAGE_DENIED", "no permission", where="s3://lake", remedy="grant the role the right to read")


def test_a_denied_store_shows_the_last_state(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 with rights that were taken away, or credentials that are gone."""
    before = site.client.get("/api/v1/tables", headers=users["viewer"]).json()

    for module in ("runtime.state.lake_state", "runtime.state.recording", "tools.page.detail"):
        monkeypatch.setattr(f"airflow_gddl.{module}.open_store", _refusing)
    site.now[0] += 600
    after = site.client.get("/api/v1/tables", headers=users["viewer"]).json()
    runs = [{row["table"]: row["runs"] for row in body["rows"]} for body in (before, after)]
    assert runs[0] == runs[1]
    assert [(one["since"], "[STORAGE_DENIED]" in one["what"]) for one in after["troubles"]] == [(NOW, True)]
    one = site.client.get("/api/v1/table?name=shop.good", headers=users["viewer"])
    assert (one.status_code, len(one.json()["runs"])) == (200, 1)
    lake = site.client.get("/api/v1/table/lake?name=shop.good", headers=users["viewer"])
    assert (lake.status_code, "[STORAGE_DENIED]" in lake.json()["ledger"]["error"]) == (200, True)


def test_a_store_that_refuses_from_the_first(
    stage: Stage, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody can say how S3 is reached, as when Airflow lacks the connection."""
    stage.rows("{table: shop.good, keys: [id]}")
    for name in (
        "airflow_gddl.runtime.state.lake_state.open_store",
        "airflow_gddl.tools.page.responses.PageSource.environ_of",
    ):
        with monkeypatch.context() as patched:
            made = Site(stage)
            if name.endswith("open_store"):
                patched.setattr(name, _refusing)
            else:
                made.source.environ_of = _refusing
            answer = made.client.get("/api/v1/tables", headers=users["viewer"])
            assert answer.status_code == 200
            assert [row["table"] for row in answer.json()["rows"]] == ["shop.good"]
            assert [one["since"] for one in answer.json()["troubles"]] == [None]
            assert "[STORAGE_DENIED]" in answer.json()["troubles"][0]["what"]


def _refusing(*_: object) -> Any:
    raise REFUSED


def test_rights_are_asked_for_at_each_request(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two users, each with the right to one DAG: no answer to one holds a name of the other's, and what is taken away
    is gone at the next request."""
    own = next(one.row.dag_id for one in site.source.board().statuses if one.row.table == "shop.own")
    rights = {"viewer": {own}, "admin": {PACK}}
    for name in ("may_read", "may_read_data", "may_read_rows", "may_trigger"):
        monkeypatch.setattr(
            f"airflow_gddl.tools.page.app.{name}", lambda user, dag_id, *_: dag_id in rights[user.username]
        )
    monkeypatch.setattr(
        "airflow_gddl.tools.page.app.readable", lambda user, dag_ids: set(dag_ids) & rights[user.username]
    )
    (site.stage.lake / "_gddl" / "logs" / own).mkdir(parents=True)
    (site.stage.lake / "_gddl" / "logs" / own / "job1.log").write_text("a secret line")

    def answers(user: str) -> dict[str, str]:
        names = ("shop.own", "shop.good", "shop.bad", "shop:shop.own", "shop:shop.good")
        of_tables = [f"/api/v1/{path}?name={n}" for path in PATHS for n in names]
        asked = ["/api/v1/tables", "/api/v1/tables?search=own", *of_tables, f"/api/v1/log?dag_id={own}&job=job1"]
        return {
            one: f"{(found := site.client.get(one, headers=users[user])).status_code} {found.text}" for one in asked
        }

    hidden = {"viewer": ("shop.good", "shop.bad", PACK), "admin": ("shop.own", own, "secret line")}
    for user, names in hidden.items():
        told = {one: text for one, text in answers(user).items() if any(name in text for name in names)}
        assert told == {}
    assert "shop.own" in answers("viewer")["/api/v1/tables"]
    assert "a secret line" in answers("viewer")[f"/api/v1/log?dag_id={own}&job=job1"]
    rights["viewer"] = set()
    assert {one for one, text in answers("viewer").items() if "shop.own" in text or "secret" in text} == set()


def test_troubles_and_names_of_hidden_tables_are_not_shown(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline's damaged state, and the tables that a table waits for, belong to those who may read their DAGs."""
    folder = site.stage.lake / "_gddl" / "state"
    own = next(one.row.dag_id for one in site.source.board().statuses if one.row.table == "shop.own")
    (folder / f"{own}.json").write_text("{")
    site.now[0] += 600

    def waiting(board: Any) -> Any:
        polled = {"shop.good": TablePoll(polled=NOW, held_by=("shop.own", "shop.bad"))}
        records = [replace(one.record, poll=polled.get(one.row.table)) for one in board.statuses]
        statuses = (replace(one, record=record) for one, record in zip(board.statuses, records, strict=True))
        return replace(board, statuses=tuple(statuses))

    board = site.source.board
    monkeypatch.setattr(site.source, "board", lambda: waiting(board()))
    every = site.client.get("/api/v1/tables", headers=users["viewer"]).json()
    assert [one["what"].split()[0] for one in every["troubles"]] == [f"{own}.json"]
    assert {row["table"]: row["held_by"] for row in every["rows"]}["shop.good"] == ["shop.own", "shop.bad"]
    monkeypatch.setattr("airflow_gddl.tools.page.app.readable", lambda _, ids: set(ids) - {own})
    monkeypatch.setattr("airflow_gddl.tools.page.app.may_read", lambda _, dag_id: dag_id != own)
    some = site.client.get("/api/v1/tables", headers=users["viewer"])
    assert "shop.own" not in some.text
    assert (some.json()["troubles"], some.json()["tables"]) == ([], 3)
    assert {row["table"]: row["held_by"] for row in some.json()["rows"]}["shop.good"] == ["shop.bad"]
    one = site.client.get("/api/v1/table?name=shop.good", headers=users["viewer"])
    assert "shop.own" not in one.text
    monkeypatch.setattr("airflow_gddl.tools.page.app.readable", lambda *_: set())
    monkeypatch.setattr("airflow_gddl.tools.page.app.may_read", lambda *_: False)
    (site.stage.root / "away").mkdir()
    folder.rename(site.stage.root / "away" / "state")
    folder.symlink_to(folder)
    site.now[0] += 600
    assert site.client.get("/api/v1/tables", headers=users["viewer"]).json()["troubles"] == []
