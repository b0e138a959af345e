"""Rows of a table on its page: the first ones, and what happened to a key, as the job finds it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.python_command import JOB
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.tools.page import detail, reading
from airflow_gddl.tools.page.reading import TableReader
from tests.airflow.page_site import Site
from tests.airflow.stage import Stage
from tests.harness.lake import Lake

NOT_THERE = "99"
PERSONAL = "someone@example.org"


ABSENT = ("deltalake", "pyarrow", "pyspark")
"""Packages that the recommended installation of Airflow's environment lacks."""
START = (
    "import runpy, sys; sys.modules.update(dict.fromkeys({})); runpy.run_module('spark_jobs.main', None, '__main__')"
)
WITHOUT = (sys.executable, "-c", START.format(repr(ABSENT)))
"""The job in an environment that lacks them."""


@pytest.fixture(autouse=True)
def _real_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__JOB_COMMAND", json.dumps(JOB))


@pytest.fixture
def site(stage: Stage) -> Site:
    """`shop.t`: key 1 loaded, changed, changed by a late file, and with a bad row. `shop.m`: its `v` is masked.

    The row of `shop.later` got its mask after its rows were loaded.
    """
    shared = "keys: [id], sequence_by: [seq]"
    stage.rows(
        f"{{table: shop.t, {shared}}}",
        f"{{table: shop.m, {shared}, mask: {{v: hash}}}}",
        f"{{table: shop.later, {shared}, mask: {{v: null}}}}".replace("null", "'null'"),
        f"{{table: shop.empty, {shared}}}",
        f"{{table: shop.off, {shared}, enabled: false}}",
    )
    lake = Lake(stage.root)
    specs = [TableSpec(table=f"shop.{name}", keys=("id",), sequence_by=("seq",)) for name in ("t", "later")]
    masked = TableSpec(table="shop.m", keys=("id",), sequence_by=("seq",), mask={"v": "hash"})
    for spec in (*specs, masked):
        lake.load(spec)
        lake.change(spec, 1, [("U", 1, "a"), ("?", 1, PERSONAL)])
        lake.done(spec)
        lake.change(spec, 3, [("U", 1, PERSONAL)])
        lake.done(spec)
        lake.change(spec, 2, [("U", 1, "b")])
        lake.done(spec)
    return Site(stage)


def explained(site: Site, user: dict[str, str], table: str, key: dict[str, str]) -> Any:
    return site.client.post("/api/v1/table/explain", json={"name": table, "key": key}, headers=user).json()


def values(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["name"]: "hidden" if one["hidden"] else one["value"] for one in found}


def test_what_happened_to_a_key(site: Site, users: dict[str, dict[str, str]]) -> None:
    before = sorted(site.stage.lake.rglob("*"))
    found = explained(site, users["admin"], "shop.t", {"id": "1"})["found"]
    assert [(one["op"], one["sequence"], one["state"], one["decided_by"]) for one in found["changes"]] == [
        ("R", None, "superseded", ""),
        ("U", 100, "superseded", "sequence"),
        ("U", 200, "late", "sequence"),
        ("U", 300, "winner", "sequence"),
    ]
    assert (found["outcome"], found["verdict"]) == ("present", "equal")
    assert [values(one["values"]) for one in found["replica"]] == [{"id": "1", "v": PERSONAL, "seq": "300"}]
    records = found["quarantine"]["records"]
    assert [(one["code"], values(one["values"])["v"]) for one in records] == [("OP_UNKNOWN", PERSONAL)]
    assert sorted(site.stage.lake.rglob("*")) == before, "the lake is only read"


@pytest.mark.parametrize("table", ["shop.m", "shop.later"])
def test_a_preview_shows_no_masked_values(site: Site, users: dict[str, dict[str, str]], table: str) -> None:
    preview = site.client.get(f"/api/v1/table/rows?name={table}", headers=users["admin"]).json()
    assert PERSONAL not in json.dumps(preview)
    assert [values(one)["v"] for one in preview["found"]["rows"]] == ["hidden"] * 3
    assert sorted(values(one)["id"] for one in preview["found"]["rows"]) == ["0", "1", "2"]


def test_a_history_shows_no_masked_values(site: Site, users: dict[str, dict[str, str]]) -> None:
    found = explained(site, users["admin"], "shop.m", {"id": "1"})["found"]
    assert PERSONAL not in json.dumps(found)
    assert [values(one["values"])["v"] for one in found["replica"]] == ["hidden"]
    assert [(values(one["values"])["id"], values(one["values"])["v"]) for one in found["quarantine"]["records"]] == [
        ("1", "hidden")
    ]
    error = explained(site, users["admin"], "shop.later", {"id": "1"})["error"]
    assert error.startswith("[MASK_CHANGED] shop.later: column 'v' is stored under another mask")


def test_the_first_rows_of_the_replica_are_shown(site: Site, users: dict[str, dict[str, str]]) -> None:
    found = site.client.get("/api/v1/table/rows?name=shop.t", headers=users["admin"]).json()["found"]
    assert sorted((one["id"], one["v"], one["seq"]) for one in map(values, found["rows"])) == [
        ("0", "load 0", None), ("1", PERSONAL, "300"), ("2", "load 2", None),
    ]  # fmt: skip
    empty = site.client.get("/api/v1/table/rows?name=shop.empty", headers=users["admin"]).json()["found"]
    assert (empty["exists"], empty["rows"]) == (False, [])


def test_a_preview_ends_after_twenty_rows_and_shows_values_as_text(tmp_path: Path) -> None:
    deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    columns = {"id": list(range(30)), "flag": [True] * 30, "raw": [b"\x00\xff"] * 30, "list": [[1, None]] * 30}
    deltalake.write_deltalake(tmp_path, arrow.table(columns))
    spec = TableSpec(table="s.t", keys=("id",))
    layout = replace(Layout.of(Roots(landing="", lake=""), spec), replica=str(tmp_path))
    found = detail.preview(TableReader(layout=layout, document=None, spec=spec, environ={}))
    assert [values(one)["id"] for one in found["rows"]] == [str(number) for number in range(20)]
    assert values(found["rows"][0]) == {"id": "0", "flag": "true", "raw": "00ff", "list": "[1, null]"}
    unknown = detail.preview(TableReader(layout=layout, document=None, spec=None, environ={}))
    assert {value for one in unknown["rows"] for value in values(one).values()} == {"hidden"}


def test_rows_are_not_for_viewers(site: Site, users: dict[str, dict[str, str]]) -> None:
    assert explained(site, users["viewer"], "shop.t", {"id": "1"}) == {"refused": True}
    assert site.client.get("/api/v1/table/rows?name=shop.t", headers=users["viewer"]).json() == {"refused": True}
    body = {"name": "shop.t", "key": {"id": "1"}}
    assert site.client.post("/api/v1/table/explain", json=body).status_code == 401
    assert site.client.get("/api/v1/table/rows?name=shop.t").status_code == 401


def test_rows_and_quarantine_have_permissions_of_their_own(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an auth manager that tells resources apart: a viewer may read rows, an admin those in quarantine."""
    manager = importlib.import_module("airflow.api_fastapi.app").get_auth_manager()
    given = {"viewer": "GDDL Rows", "admin": "GDDL Quarantine"}

    class Named(type(manager)):  # type: ignore[misc] # the class of the running manager
        def is_authorized_custom_view(self, *, method: str, resource_name: str, user: Any) -> bool:  # noqa: ARG002 - as there
            return given[user.username] == resource_name

    monkeypatch.setattr(manager, "__class__", Named)
    found = explained(site, users["viewer"], "shop.t", {"id": "1"})["found"]
    assert (found["outcome"], found["quarantine"]) == ("present", None)
    assert explained(site, users["admin"], "shop.t", {"id": "1"}) == {"refused": True}


def test_what_can_not_be_explained(site: Site, users: dict[str, dict[str, str]]) -> None:
    admin = users["admin"]
    assert "[KEY_NOT_FOUND]" in explained(site, admin, "shop.t", {"id": NOT_THERE})["error"]
    assert "[KEY_INVALID]" in explained(site, admin, "shop.t", {"id": "x"})["error"]
    assert "[KEY_INVALID]" in explained(site, admin, "shop.t", {})["error"]
    assert "No pipeline loads this table" in explained(site, admin, "shop.off", {"id": "1"})["error"]
    body = {"name": "shop.nothing", "key": {"id": "1"}}  # as a table that the user may not see
    assert site.client.post("/api/v1/table/explain", json=body, headers=admin).status_code == 404


@pytest.fixture
def busy() -> Iterator[None]:
    for _ in range(reading.AT_ONCE):
        reading.slots.acquire()
    yield
    for _ in range(reading.AT_ONCE):
        reading.slots.release()


@pytest.mark.usefixtures("busy")
def test_further_histories_wait(site: Site, users: dict[str, dict[str, str]]) -> None:
    assert "[EXPLAIN_BUSY]" in explained(site, users["admin"], "shop.t", {"id": "1"})["error"]


def test_a_history_that_takes_too_long_is_given_up(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LONGEST_SECONDS", 0.0)
    assert "[EXPLAIN_TOO_LONG]" in explained(site, users["admin"], "shop.t", {"id": "1"})["error"]


def test_a_table_that_only_spark_can_read_is_refused(site: Site, users: dict[str, dict[str, str]]) -> None:
    """Its job starts no Java."""
    log = site.stage.lake / "shop" / "t" / "_delta_log"
    number = len(list(log.glob("*.json")))
    features = ["variantType-preview"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    (log / f"{number:020}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
    error = explained(site, users["admin"], "shop.t", {"id": "1"})["error"]
    assert error.startswith("[NEEDS_SPARK] only Spark can read this table, and the page starts none (shop.t).")


@pytest.fixture
def lacking(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Packages are gone from the page's process once the tables are made."""
    for name in ABSENT:
        monkeypatch.setitem(sys.modules, name, None)
    return site


def test_jobs_read_what_airflow_s_environment_can_not(lacking: Site, users: dict[str, dict[str, str]]) -> None:
    """Schema, versions, quarantine and first rows, as without the job; masked values are hidden."""
    get = lambda part, name: lacking.client.get(f"/api/v1/table/{part}?name={name}", headers=users["admin"]).json()  # noqa: E731 - as it reads
    before = sorted(lacking.stage.lake.rglob("*"))
    lake = get("lake", "shop.t")
    assert [column["name"] for column in lake["replica"]["found"]["columns"]] == ["id", "v", "_gddl", "seq"]
    assert lake["replica"]["found"]["version"] == lake["replica"]["found"]["versions"][0]["version"]
    quarantine = get("quarantine", "shop.t")["found"]
    assert (quarantine["codes"], quarantine["unresolved"]) == ({"OP_UNKNOWN": 1}, 1)
    assert values(quarantine["rows"][0]["values"])["v"] == PERSONAL
    assert get("quarantine", "shop.t&code=CAST_FAILED")["found"]["rows"] == []
    rows = sorted((one["id"], one["v"], one["seq"]) for one in map(values, get("rows", "shop.t")["found"]["rows"]))
    assert rows == [("0", "load 0", None), ("1", PERSONAL, "300"), ("2", "load 2", None)]
    assert {values(one)["v"] for one in get("rows", "shop.m")["found"]["rows"]} == {"hidden"}
    assert get("rows", "shop.empty")["found"] == {"exists": False, "rows": [], "limit": 20}
    assert explained(lacking, users["admin"], "shop.t", {"id": "1"})["found"]["outcome"] == "present"
    assert sorted(lacking.stage.lake.rglob("*")) == before, "the lake is only read"


def test_where_nothing_can_read_tables_the_remedy_is_what_the_recipe_does(
    lacking: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__JOB_COMMAND", json.dumps(WITHOUT))
    monkeypatch.setattr(reading, "JOB", WITHOUT)
    get = lambda part, name: lacking.client.get(f"/api/v1/table/{part}?name={name}", headers=users["admin"]).json()  # noqa: E731 - as it reads
    errors = [
        get("lake", "shop.t")["replica"]["error"], get("quarantine", "shop.t")["error"], get("rows", "shop.t")["error"],
        get("rows", "shop.off")["error"], explained(lacking, users["admin"], "shop.t", {"id": "1"})["error"],
    ]  # fmt: skip
    for error in errors:
        assert error.startswith("[PACKAGE_MISSING]")
        assert "set [gddl] job_command" in error
        assert "pip install" not in error
