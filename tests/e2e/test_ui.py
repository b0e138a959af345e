"""What a person sees and clicks. The pictures stay in `tests/e2e/pictures`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e import browser
from tests.e2e.browser import picture
from tests.e2e.site import IS_3_0, Site

PACK = "gddl_pack.seen.small.1"

pytestmark = pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium (apt-get install chromium)")


@pytest.fixture(scope="module")
def page(site: Site) -> Iterator[Page]:
    site.rows("seen", "{table: seen.a, keys: [id]}", "{table: seen.b, keys: [id]}", source="seen")
    site.runs.wait_for([PACK])
    with browser.page(site.running.rest.url) as opened:
        yield opened


def test_the_grid_shows_three_tasks_and_how_they_ended(site: Site, page: Page, pictures: Path) -> None:
    site.land("seen.a")
    site.load(PACK)
    page.goto(f"/dags/{PACK}")
    for task in ("landed", "initial_load, rebuild", "incremental_load"):
        expect(page.get_by_text(task, exact=True).first).to_be_visible()
    expect(page.get_by_text("priority:normal").first).to_be_visible()
    events = page.get_by_test_id("card-list")  # of assets
    expect(events.get_by_role("link", name="seen.a")).to_be_visible()
    picture(page, pictures, "grid")
    page.get_by_role("button", name="Dag Docs").click()
    expect(page.get_by_text("Brings a pack of tables into Delta Lake")).to_be_visible()
    picture(page, pictures, "documentation")


def test_the_form_reruns_one_table(site: Site, page: Page, pictures: Path) -> None:
    page.goto(f"/dags/{PACK}")
    page.get_by_role("button", name="Trigger").click()
    form = page.get_by_role("dialog")
    expect(form.get_by_text("empty: all of this DAG")).to_be_visible()
    assert "*" not in form.inner_text(), "nothing in the form must be filled in"
    form.locator("textarea[name=element_tables]").fill("seen.a")
    form.locator("[id=element_action]").click()
    page.get_by_role("option", name=re.compile("^Rebuild")).click()
    picture(page, pictures, "form")
    form.get_by_role("button", name=re.compile("^Trigger")).click()
    rerun = lambda: [job["options"]["action"]["name"] for job in site.jobs("seen", "end")] == ["run", "rebuild"]  # noqa: E731 - as it reads
    site.running.wait("the rerun", rerun)
    assert site.jobs("seen")[-1]["tables"] == ["seen.a"]


def test_a_broken_row_is_one_readable_import_error(site: Site, page: Page, pictures: Path) -> None:
    good = "{table: seen.a, keys: [id]}"
    site.rows("seen", good, "{table: seen.b, keys: [id], freshness: soon}", source="seen")
    site.running.wait("the import error", lambda: any("seen.b" in one["stack_trace"] for one in site.import_errors()))
    page.goto("/dags")
    page.locator("button").filter(has_text=re.compile(r"^\s*1\s*$")).first.click()
    shown = page.get_by_role("dialog")
    message = shown.get_by_text("1 problem in the metadata; every other row is scheduled")
    title = shown.get_by_role("button", name=re.compile("gddl_metadata_problems"))
    expect(title).to_be_visible()
    if not message.is_visible():
        title.click()
    expect(message).to_be_visible()
    expect(shown.get_by_text("[FIELD_VALUE] seen.b freshness")).to_be_visible()
    picture(page, pictures, "import_error")
    site.rows("seen", good, source="seen")
    if not IS_3_0:
        site.running.wait("the import error to go", lambda: not site.import_errors())
