"""The page behind Airflow's own authentication: who sees what, hostile names, a lake that can't be read."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import log_folder
from airflow_gddl.contract.result import ErrorInfo, Freshness, JobResult, MainCounts
from airflow_gddl.contract.spec import Roots
from airflow_gddl.page.app import HEADERS, build_app
from airflow_gddl.page.source import PageSource
from airflow_gddl.runtime.snapshot import MetadataSnapshot, SnapshotSettings
from airflow_gddl.runtime.state.judging import TablePoll
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.runtime.state.records import write_record
from airflow_gddl.stores import open_store
from tests.airflow.stage import Stage

ROOT = Path(__file__).parents[2]
NOW = 1_700_000_000.0
PACK = "gddl_pack.shop.small.hourly.normal.all"


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch, database: None) -> Iterator[dict[str, dict[str, str]]]:
    """Headers of a logged-in admin and a viewer; Airflow's own auth manager makes and checks their tokens."""
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "a secret of a test, " * 4)
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_ISSUER", "tests")
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", "admin:admin,viewer:viewer")
    api = importlib.import_module("airflow.api_fastapi.app")
    user = importlib.import_module("airflow.api_fastapi.auth.managers.simple.user").SimpleAuthManagerUser
    api.purge_cached_app()
    manager = api.create_auth_manager()
    manager.init()
    made = {name: user(username=name, role=name.upper()) for name in ("admin", "viewer")}
    yield {name: {"Authorization": f"Bearer {manager.generate_jwt(one)}"} for name, one in made.items()}
    api.purge_cached_app()


class Site:
    """The page's application over a metadata folder and a lake."""

    def __init__(self, stage: Stage) -> None:
        testing = importlib.import_module("fastapi.testclient")
        self.stage, self.now = stage, [NOW]
        settings = SnapshotSettings(
            metadata=str(stage.metadata), cache=stage.root / "page", environ={}, clock=lambda: self.now[0]
        )
        self.source = PageSource(lambda: MetadataSnapshot.current(settings), clock=lambda: self.now[0], patience=0.0)
        self.client: Any = testing.TestClient(build_app(self.source))

    def ran(self, table: str, *results: dict[str, Any]) -> None:
        recorder = StateRecorder(self.roots, PACK, (), lambda: self.now[0])
        for given in results:
            recorder.take(JobResult(table=table, **given), ("manual__1", "initial_load"))
        recorder.flush()

    @property
    def roots(self) -> Roots:
        return Roots(landing=str(self.stage.landing), lake=str(self.stage.lake))


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
    for path in ("/api/tables", "/api/table?name=shop.good", "/api/table/lake?name=shop.good"):
        assert site.client.get(path).status_code == 401, path
        assert site.client.get(path, headers={"Authorization": "Bearer forged.token.here"}).status_code == 403, path


def test_the_plain_files_hold_nothing_and_forbid_all_else(site: Site) -> None:
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
    folder = Path(importlib.import_module("airflow_gddl.page.app").STATIC)
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


def test_the_list(site: Site, users: dict[str, dict[str, str]]) -> None:
    answer = site.client.get("/api/tables", headers=users["viewer"])
    assert answer.headers["cache-control"] == "no-store"
    told = answer.json()
    assert [row["table"] for row in told["rows"]] == ["shop.bad", "shop.own", "shop.good", "shop.off"]
    assert told["counts"] == {"failed": 1, "late": 0, "attention": 0, "waiting": 0, "new": 1, "fresh": 1, "disabled": 1}
    bad, _, good, off = told["rows"]
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
    assert told["facets"]["tier"] == ["medium", "small"]


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
    ],
)
def test_filters_order_and_pages(site: Site, users: dict[str, dict[str, str]], query: str, expected: list[str]) -> None:
    told = site.client.get(f"/api/tables?{query}", headers=users["viewer"]).json()
    assert [row["table"] for row in told["rows"]] == expected


@pytest.mark.parametrize("query", ["size=100000", "page=0", "order=drop", "state=odd", f"search={'x' * 201}"])
def test_odd_queries_are_refused(site: Site, users: dict[str, dict[str, str]], query: str) -> None:
    assert site.client.get(f"/api/tables?{query}", headers=users["viewer"]).status_code == 422


def test_a_table(site: Site, users: dict[str, dict[str, str]]) -> None:
    told = site.client.get("/api/table?name=shop.bad", headers=users["admin"]).json()
    assert told["may_trigger"] is True
    assert [run["message"] for run in told["runs"]] == ["<b>broken</b>"], "no job kept this run"
    assert told["runs"][0]["airflow"] == ["manual__1", "initial_load"]
    assert site.client.get("/api/table?name=shop.bad", headers=users["viewer"]).json()["may_trigger"] is False
    assert site.client.get("/api/table?name=shop.off", headers=users["admin"]).json()["may_trigger"] is False


def test_upkeep_is_among_a_tables_runs_and_not_in_the_matrix(site: Site, users: dict[str, dict[str, str]]) -> None:
    done = JobResult(
        table="shop.good", status="succeeded", action="maintain", run_id="m", started_at="2023-11-14T22:10:00+00:00",
        origin=("gddl_maintenance", "scheduled__1", "maintain_small"),
        details={"compacted": {"changes": {}}, "files_removed": 3, "tombstones_removed": 0, "dry_run": False},
    )  # fmt: skip
    write_record(open_store(), site.roots, done)
    told = site.client.get("/api/table?name=shop.good", headers=users["viewer"]).json()
    newest = told["runs"][0]
    assert (newest["action"], newest["did"]) == ("maintain", "1 tables with files joined, 3 files removed")
    assert (newest["dag_id"], newest["airflow"]) == ("gddl_maintenance", ["scheduled__1", "maintain_small"])
    assert [run["run_id"] for run in told["table"]["runs"]] == ["r1"]
    assert (told["table"]["state"], told["totals"]["rows_read"]) == ("fresh", 9)


@pytest.mark.parametrize(
    "name", ["shop.nothing", "../../etc.passwd", "shop./../good", "%00", "<img src=x onerror=alert(1)>"]
)
def test_only_names_of_the_metadata_lead_anywhere(site: Site, users: dict[str, dict[str, str]], name: str) -> None:
    for path in ("/api/table", "/api/table/lake"):
        answer = site.client.get(path, params={"name": name}, headers=users["admin"])
        assert (answer.status_code, answer.json()) == (404, {"detail": "no such table"})


def logged(site: Site, dag_id: str, text: bytes) -> str:
    """A job's log in the lake; the query that asks for it."""
    path = Path(log_folder(site.roots.lake, dag_id), "20240101T000000-aa.log")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return f"/api/log?dag_id={dag_id}&job={path.stem}"


def test_a_job_s_log_is_shown_to_those_who_may_read_the_task_s(site: Site, users: dict[str, dict[str, str]]) -> None:
    query = logged(site, PACK, "begun <b>\nend \u00e9\n".encode())
    answer = site.client.get(query, headers=users["viewer"])
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    found = answer.json()
    assert (found["text"], found["size"], found["left_out"]) == ("begun <b>\nend \u00e9\n", 17, 0)
    assert site.client.get(query).status_code == 401
    assert site.client.get(query.replace("aa", "bb"), headers=users["viewer"]).status_code == 404


def test_who_may_not_read_a_task_s_log_gets_no_job_log(
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
        assert site.client.get(f"/api/log?{query}", headers=users["admin"]).status_code == 422


def test_of_a_long_log_the_newest_lines_are_shown(site: Site, users: dict[str, dict[str, str]]) -> None:
    lines = b"".join(b"line %07d of a job\n" % n for n in range(100_000))
    found = site.client.get(logged(site, PACK, lines), headers=users["viewer"]).json()
    assert found["text"].splitlines()[-1] == "line 0099999 of a job"
    assert all(len(line) == 21 for line in found["text"].splitlines())
    assert found["left_out"] == len(lines) - len(found["text"])
    assert 0 < len(found["text"]) <= 1024 * 1024


def test_what_the_lake_tells(site: Site, users: dict[str, dict[str, str]]) -> None:
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
    told = site.client.get("/api/table/lake?name=shop.good", headers=users["viewer"]).json()
    assert [(one["name"], one["type"]) for one in told["replica"]["found"]["columns"]] == [
        ("id", "long"),
        ("tags", "array<string>"),
    ]
    assert [one["version"] for one in told["replica"]["found"]["versions"]] == [0]
    assert told["quarantine"]["found"]["unresolved"] == 1
    assert told["quarantine"]["found"]["rows"][0]["record"] == "<img src=x onerror=alert(1)>"
    assert told["ledger"]["found"] == {"batch": 0, "files": []}
    (folder / "good" / "_delta_log" / "00000000000000000000.json").write_text("damaged")
    assert (
        "[LAKE_UNREADABLE]"
        in site.client.get("/api/table/lake?name=shop.good", headers=users["viewer"]).json()["replica"]["error"]
    )


def test_files_are_those_of_the_jobs_ledger(site: Site, users: dict[str, dict[str, str]]) -> None:
    """Written by the job's own code: when that changes, this page must."""
    ledger = importlib.import_module("tests.airflow.ledgers")
    path = ledger.write(site.roots, "shop.good", batches=25)
    found = site.client.get("/api/table/lake?name=shop.good", headers=users["viewer"]).json()["ledger"]["found"]
    assert found["batch"] == 25
    assert [file["batch"] for file in found["files"]] == list(range(25, 0, -1))
    assert found["files"][0]["path"] == path
    assert (found["files"][0]["rows"], found["files"][0]["state"]) == (3, "committed")


def test_a_lake_that_cannot_be_read_shows_what_was_known(site: Site, users: dict[str, dict[str, str]]) -> None:
    before = site.client.get("/api/tables", headers=users["viewer"]).json()
    folder = site.stage.lake / "_gddl" / "state"
    folder.rename(site.stage.root / "away")
    folder.symlink_to(folder)
    site.now[0] += 600
    after = site.client.get("/api/tables", headers=users["viewer"]).json()
    assert [row["runs"] for row in after["rows"]] == [row["runs"] for row in before["rows"]]
    assert [(trouble["since"], "can't be read" in trouble["what"]) for trouble in after["troubles"]] == [(NOW, True)]


def test_metadata_that_broke_is_told(site: Site, users: dict[str, dict[str, str]]) -> None:
    assert site.client.get("/api/tables", headers=users["viewer"]).json()["troubles"] == []
    site.stage.write("gddl.yaml", "landing: [")
    site.now[0] += 600
    told = site.client.get("/api/tables", headers=users["viewer"]).json()
    assert told["tables"] == 4
    assert "last good copy" in told["troubles"][0]["what"]


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
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["index"], told["nobody"], told["triggered"]) == (200, 401, 403), "Airflow decides who may trigger"
    assert set(told["tables"]) == {"shop.good", "shop.bad", "shop.off", "shop.own"}
    if told["views"] is not None:  # Airflow 3.1 or newer
        assert [(view["name"], view["href"]) for view in told["views"]] == [("Tables", "/gddl/")]


REFUSED = FatalError("STORAGE_DENIED", "no permission", where="s3://lake", remedy="grant the role the right to read")


def test_a_store_that_refuses_shows_what_was_known(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 with rights that were taken away, or credentials that are gone."""
    before = site.client.get("/api/tables", headers=users["viewer"]).json()

    for module in ("runtime.state.reading", "runtime.state.records", "page.detail"):
        monkeypatch.setattr(f"airflow_gddl.{module}.open_store", _refusing)
    site.now[0] += 600
    after = site.client.get("/api/tables", headers=users["viewer"]).json()
    assert [row["runs"] for row in after["rows"]] == [row["runs"] for row in before["rows"]]
    assert [(one["since"], "[STORAGE_DENIED]" in one["what"]) for one in after["troubles"]] == [(NOW, True)]
    one = site.client.get("/api/table?name=shop.good", headers=users["viewer"])
    assert (one.status_code, len(one.json()["runs"])) == (200, 1)
    lake = site.client.get("/api/table/lake?name=shop.good", headers=users["viewer"])
    assert (lake.status_code, "[STORAGE_DENIED]" in lake.json()["ledger"]["error"]) == (200, True)


def test_a_store_that_refuses_from_the_first(
    stage: Stage, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody can say how S3 is reached, as when Airflow lacks the connection."""
    stage.rows("{table: shop.good, keys: [id]}")
    for name in ("airflow_gddl.runtime.state.reading.open_store", "airflow_gddl.page.source.PageSource.environ_of"):
        with monkeypatch.context() as patched:
            made = Site(stage)
            if name.endswith("open_store"):
                patched.setattr(name, _refusing)
            else:
                made.source.environ_of = _refusing
            answer = made.client.get("/api/tables", headers=users["viewer"])
            assert answer.status_code == 200
            assert [row["table"] for row in answer.json()["rows"]] == ["shop.good"]
            assert [one["since"] for one in answer.json()["troubles"]] == [None]
            assert "[STORAGE_DENIED]" in answer.json()["troubles"][0]["what"]


def _refusing(*_: object) -> Any:
    raise REFUSED


def test_nobody_sees_troubles_or_names_of_tables_that_they_may_not_see(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline's damaged state, and the tables that a table waits for, belong to those who may read their DAGs."""
    folder = site.stage.lake / "_gddl" / "state"
    own = next(one.row.dag_id for one in site.source.board().standings if one.row.table == "shop.own")
    (folder / f"{own}.runs.json").write_text("{")
    site.now[0] += 600

    def waiting(board: Any) -> Any:
        looked = {"shop.good": TablePoll(looked=NOW, held_by=("shop.own", "shop.bad"))}
        return replace(board, standings=tuple(replace(one, look=looked.get(one.row.table)) for one in board.standings))

    board = site.source.board
    monkeypatch.setattr(site.source, "board", lambda: waiting(board()))
    every = site.client.get("/api/tables", headers=users["viewer"]).json()
    assert [one["what"].split()[0] for one in every["troubles"]] == [f"{own}.runs.json"]
    assert {row["table"]: row["held_by"] for row in every["rows"]}["shop.good"] == ["shop.own", "shop.bad"]
    monkeypatch.setattr("airflow_gddl.page.access.readable", lambda _, ids: set(ids) - {own})
    monkeypatch.setattr("airflow_gddl.page.access.may_read", lambda _, dag_id: dag_id != own)
    some = site.client.get("/api/tables", headers=users["viewer"])
    assert "shop.own" not in some.text
    assert (some.json()["troubles"], some.json()["tables"]) == ([], 3)
    assert {row["table"]: row["held_by"] for row in some.json()["rows"]}["shop.good"] == ["shop.bad"]
    one = site.client.get("/api/table?name=shop.good", headers=users["viewer"])
    assert "shop.own" not in one.text
    monkeypatch.setattr("airflow_gddl.page.access.readable", lambda *_: set())
    monkeypatch.setattr("airflow_gddl.page.access.may_read", lambda *_: False)
    (site.stage.root / "away").mkdir()
    folder.rename(site.stage.root / "away" / "state")
    folder.symlink_to(folder)
    site.now[0] += 600
    assert site.client.get("/api/tables", headers=users["viewer"]).json()["troubles"] == []
