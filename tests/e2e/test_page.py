"""The page of all tables within Airflow's UI, in a browser. The pictures stay in `tests/e2e/pictures`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from airflow_gddl.contract.result import ErrorInfo, Freshness, JobResult, MainCounts, RunWarning
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.state.recording import StateRecorder, write_record
from airflow_gddl.stores import open_store
from tests.e2e import browser
from tests.e2e.browser import picture
from tests.e2e.site import IS_3_0, Site

PACK = "gddl_pack.looked.small.1"
ALONE = "gddl.looked.alone"
HOSTILE = '<img src=x onerror="window.hacked=1">'

pytestmark = pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium (apt-get install chromium)")


def runs_of(table: str, number: int) -> Iterator[JobResult]:
    """A day of runs with a bit of everything; the third table fails in the end."""
    for hour in range(14):
        started = f"2024-01-02T{hour + 1:02d}:00:00.000000+00:00"
        lag = Freshness(
            commit_ts=f"2024-01-02T{hour:02d}:50:00+00:00", lag_seconds=600.0 + 60 * ((hour * 7 + number) % 11)
        )
        counts: dict[str, Any] = {"rows_read": 100 + hour, "changes_written": 100 + hour, "files": 2, "version": hour}
        counts |= {"main": MainCounts(rows=1000 + 90 * hour), "freshness": lag, "seconds": 4.5, "run_id": f"r{hour}"}
        if hour == 5:
            counts |= {"changes_written": 95 + hour, "quarantined": 5}
        if hour == 8:
            counts |= {"warnings": (RunWarning(code="SEQUENCE_TIE", message=HOSTILE),)}
            counts |= {"schema_changes": (f"added column {HOSTILE} string",)}
        if hour == 13 and number == 2:
            counts = {"status": "failed", "error": ErrorInfo(code="SCHEMA_REFUSED", message=HOSTILE), "run_id": "r13"}
        yield JobResult(**{"table": table, "status": "succeeded", "started_at": started, **counts})


@pytest.fixture(scope="module")
def page(site: Site) -> Iterator[Page]:
    names = [f"looked.t{number:02d}" for number in range(9)]
    rows = [f"{{table: {name}, keys: [id], owner: '{HOSTILE}', freshness: 1h}}" for name in names[:3]]
    rows += [f"{{table: {name}, keys: [id]}}" for name in names[3:8]]
    rows.append(f"{{table: {names[8]}, keys: [id], enabled: false}}")
    rows.append("{table: looked.alone, keys: [id], size: solo}")
    site.rows("looked", *rows, source="looked")
    site.runs.wait_for([PACK, ALONE])
    roots = Roots(landing=str(site.landing), lake=str(site.lake))
    recorder = StateRecorder(roots, PACK, ())
    for number, name in enumerate(names[:6]):
        for result in runs_of(name, number):
            write_record(open_store(), roots, result)
            recorder.take(result)
    recorder.flush()
    with browser.page(site.running.rest.url) as opened:
        yield opened


def dark(page: Page, on: bool) -> None:
    page.emulate_media(color_scheme="dark" if on else "light")


def test_the_matrix_shows_the_runs_of_each_table(site: Site, page: Page, pictures: Path) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.goto("/gddl/#/?source=looked")
    expect(page.get_by_text("10 of")).to_be_visible()
    rows = page.locator("table.matrix tbody tr:not(.message)")
    expect(page.locator("table.matrix tr.message").first).to_contain_text("[SCHEMA_REFUSED]")
    expect(rows.first.locator(".run.failed")).to_have_count(1)
    assert "104 rows read" in str(rows.nth(1).locator(".run").nth(4).get_attribute("title"))
    picture(page, pictures, "page_matrix")
    dark(page, True)
    picture(page, pictures, "page_matrix_dark")
    dark(page, False)
    page.keyboard.press("/")
    page.keyboard.type("t04")
    expect(page.get_by_text("1 of")).to_be_visible()
    page.get_by_role("searchbox").fill("")
    expect(page.get_by_text("10 of")).to_be_visible()
    page.get_by_role("button", name="failed").first.press("Enter")
    expect(page.get_by_text("1 of")).to_be_visible()
    assert "state=failed" in page.url
    assert page.evaluate("window.hacked") is None
    assert said == [], "the content security policy or a script complained"


def test_a_table_is_opened_by_keyboard_and_shown_safely(site: Site, page: Page, pictures: Path) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.goto("/gddl/#/?source=looked&search=t02")
    page.get_by_role("link", name="looked.t02").press("Enter")
    expect(page.get_by_role("heading", name="looked.t02")).to_be_visible()
    expect(page.get_by_role("heading", name="Files")).to_be_visible()
    expect(page.locator("svg.plot")).to_have_count(2)
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert said == []
    picture(page, pictures, "page_table")
    dark(page, True)
    picture(page, pictures, "page_table_dark")
    dark(page, False)


def test_lineage_names_the_dags_that_airflow_starts_with_a_table(site: Site, page: Page) -> None:
    page.goto("/gddl/#/table/shop.a")
    consumers = page.locator("#lineage ol.lineage > li").nth(2)
    expect(consumers.get_by_role("link", name="consumer", exact=True)).to_be_visible()
    expect(consumers.locator("li")).to_have_text(["consumer (starts with it)"])


def test_a_rerun_is_started_as_the_user(site: Site, page: Page, pictures: Path) -> None:
    site.land("looked.t07")
    page.goto("/gddl/#/table/looked.t07")
    page.get_by_role("button", name="Rebuild").click()
    asked = page.get_by_role("dialog")
    expect(asked.get_by_text("Rebuild: looked.t07?")).to_be_visible()
    picture(page, pictures, "page_confirm")
    asked.get_by_role("button", name="Cancel").click()
    expect(asked).to_be_hidden()
    page.get_by_role("button", name="Rebuild").click()
    asked.get_by_role("button", name="Rebuild").click()
    outcome = page.locator(".status")
    expect(outcome).to_contain_text("Rebuild manual__", timeout=30_000)
    done = lambda: [job["options"]["action"]["name"] for job in site.jobs("looked", "end")] == ["rebuild"]  # noqa: E731 - as it reads
    site.running.wait("the refresh", done)
    state = site.lake / "_gddl" / "state" / f"{PACK}.json"
    site.running.wait("its state", lambda: "looked.t07" in json.loads(state.read_text())["tables"])
    expect(outcome).to_contain_text("succeeded", timeout=90_000)
    expect(page.get_by_role("link", name="task and log").first).to_be_visible()
    picture(page, pictures, "page_rerun")


def test_a_rerun_reports_that_there_were_no_new_files(site: Site, page: Page, pictures: Path) -> None:
    site.find_nothing("looked.alone")
    hold = site.hold("looked.alone")
    page.goto("/gddl/#/table/looked.alone")
    page.get_by_role("button", name="Rerun").click()
    page.get_by_role("dialog").get_by_role("button", name="Rerun").click()
    outcome = page.locator(".status")
    expect(page.locator(".facts .state.running")).to_be_visible(timeout=90_000)
    picture(page, pictures, "page_running")
    hold.unlink()
    expect(outcome).to_contain_text("no new files", timeout=120_000)
    page.reload()
    expect(outcome).to_contain_text("no new files", timeout=30_000)
    picture(page, pictures, "page_nothing_new")


def test_a_run_that_fails_says_why(site: Site, page: Page, pictures: Path) -> None:
    site.refuse("looked.alone")
    page.goto("/gddl/#/table/looked.alone")
    page.get_by_role("button", name="Rerun").click()
    page.get_by_role("dialog").get_by_role("button", name="Rerun").click()
    expect(page.locator(".status")).to_contain_text("[BROKEN_ON_PURPOSE] told to fail", timeout=180_000)
    expect(page.locator(".status")).to_contain_text("the last of 4 tries")
    picture(page, pictures, "page_failed")


@pytest.mark.skipif(IS_3_0, reason="Airflow's menu has a place for it since 3.1")
def test_it_is_found_in_airflows_menu_and_leads_back(site: Site, page: Page, pictures: Path) -> None:
    page.goto("/plugin/gddl-tables")
    framed = page.frame_locator("iframe")
    expect(framed.get_by_role("searchbox")).to_be_visible()
    framed.get_by_role("searchbox").fill("looked.t07")
    framed.get_by_role("link", name="looked.t07").click()
    picture(page, pictures, "page_in_airflow")
    framed.get_by_role("link", name=PACK).click()
    page.wait_for_url(f"**/dags/{PACK}**")
