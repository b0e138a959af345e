"""Where a table is registered, on its page: as the job's code has written it, at each width, with hostile values."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.registrations import RegisteredTable, RegistrationState
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.stores.lake_files import RegistrationStore
from tests.airflow.page_site import Site
from tests.airflow.stage import Stage

HOSTILE = '<img src=x onerror="window.hacked=1">'
LONG = "a_long_name_of_a_table_without_any_blank_" * 4
REPLICA = RegisteredTable(location="/lake/shop/good", digest="d", name=f"lake_shop.{LONG}")


@pytest.fixture
def site(stage: Stage) -> Site:
    deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    glue = "{kind: glue, database: 'lake_{schema}', region: eu-west-1}"
    stage.write("gddl.yaml", f"landing: ../landing\nlake: ../lake\ncatalogs:\n  main: {glue}\n")
    stage.rows(
        "{table: shop.good, keys: [id], catalog: main, history: true}",
        "{table: shop.new, keys: [id], catalog: main}",
        "{table: shop.none, keys: [id]}",
    )
    deltalake.write_deltalake(stage.lake / "shop" / "good", arrow.table({"id": [1]}))
    return Site(stage)


def remember(site: Site, **fields: Any) -> None:
    state = RegistrationState(
        signature="s", version=7, tables={"replica": REPLICA}, synced_at="2023-11-14T22:00:00+00:00", **fields
    )
    spec = TableSpec(table="shop.good", keys=("id",), catalog="main")
    RegistrationStore(Storage(), site.roots.lake).put(spec, state)


def answer(site: Site, users: dict[str, dict[str, str]], table: str) -> Any:
    return site.client.get(f"/api/v1/table/lake?name={table}", headers=users["viewer"]).json()["registration"]


def test_a_registered_table_is_shown_with_its_names(site: Site, users: dict[str, dict[str, str]]) -> None:
    remember(site)
    assert answer(site, users, "shop.good")["found"] == {
        "catalog": "main",
        "kind": "glue",
        "entries": [
            {"table": "replica", "name": f"lake_shop.{LONG}", "registered": True},
            {"table": "history", "name": "lake_shop.good__history", "registered": False},
        ],
        "synced_at": "2023-11-14T22:00:00+00:00",
        "version": 7,
        "problem": None,
    }


@pytest.mark.parametrize("code", ["CATALOG_TABLE_DROPPED", "CATALOG_NAME_TAKEN"])
def test_an_entry_that_is_not_the_table_s_is_named(site: Site, users: dict[str, dict[str, str]], code: str) -> None:
    remember(site, problem=RunWarning(code=code, message="words"))
    assert answer(site, users, "shop.good")["found"]["problem"] == {"code": code, "message": "words"}


def test_tables_that_are_not_registered(site: Site, users: dict[str, dict[str, str]]) -> None:
    new, none = (answer(site, users, name)["found"] for name in ("shop.new", "shop.none"))
    assert none is None
    assert (new["synced_at"], new["version"], new["problem"]) == (None, None, None)
    assert new["entries"] == [{"table": "replica", "name": "lake_shop.new", "registered": False}]
    path = site.stage.lake / "_gddl/catalogs/main/shop/new.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xffdamaged")
    assert answer(site, users, "shop.new")["found"] == new, "a damaged document is as none"


def test_a_lake_that_can_not_be_read_is_named(
    site: Site, users: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise FatalError("STORAGE_DENIED", "no right")

    monkeypatch.setattr("airflow_gddl.tools.page.detail.RegistrationStore.get", refuse)
    assert "[STORAGE_DENIED]" in answer(site, users, "shop.good")["error"]


@pytest.mark.parametrize("width", [420, 1400])
def test_it_is_seen_at_each_width(site: Site, users: dict[str, dict[str, str]], width: int) -> None:
    pytest.importorskip("playwright")
    browser = importlib.import_module("tests.airflow.browser")
    if browser.CHROMIUM is None:
        pytest.skip("no Chromium (apt-get install chromium)")
    remember(site, problem=RunWarning(code="CATALOG_UNREACHABLE", message=f"Glue: {HOSTILE} {LONG}"))
    with browser.served(site.app) as url, browser.chromium() as launched:
        size = {"width": width, "height": 900}
        page = browser.opened(launched, url, users["admin"], viewport=size)
        page.goto("/gddl/#/table/shop.good")
        page.get_by_text("Last synced 2023-11-14\u00a023:00:00, at Delta version 7.").wait_for()
        browser.expect(page.get_by_text(f"[CATALOG_UNREACHABLE] Glue: {HOSTILE}")).to_be_visible()
        assert page.evaluate(browser.CLIPPED) == []
        browser.picture(page, f"table_registered_{width}")
        assert page.evaluate("window.hacked") is None
