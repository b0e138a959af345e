"""A pack with a task group for each table, in the UI: the grid, a cleared table, and what Airflow's dialogs answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from airflow_gddl.contract.errors import FatalError
from devtools.standalone.runs import RunRef
from devtools.standalone.supervisor import RefusedError
from tests.e2e import browser
from tests.e2e.browser import picture
from tests.e2e.site import IS_3_0, Site

PACK, OTHER = "gddl_pack.grouped.small.1", "gddl_pack.dated.small.1"
SMALL = "gddl_pack.nyc.small.1"
TABLES = [f"grouped.t{n:02d}" for n in range(40)]
BAD, GOOD = TABLES[-1], TABLES[0]
FIRST_PAGE = {"x": 66, "y": 0, "width": 1434, "height": 505}
"""What the first page shows: without the menu and the empty part below."""
seen = pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium (apt-get install chromium)")


@pytest.fixture(scope="module")
def failed(site: Site) -> RunRef:
    """The run in which one of 40 tables fails."""
    site.rows("grouped", *(f"{{table: {name}, keys: [id]}}" for name in TABLES), source="grouped")
    site.runs.wait_for([PACK])
    for name in TABLES:
        site.land(name)
    site.refuse(BAD)
    run = site.runs.trigger(PACK)
    with pytest.raises(FatalError):
        site.runs.finish([run])
    (site.root / f"refuse-{BAD}").unlink()
    return run


@pytest.fixture(scope="module")
def page(site: Site) -> Iterator[Page]:
    with browser.page(site.running.rest.url) as opened:
        yield opened


def address(run: RunRef, table: str) -> str:
    return f"/dags/{PACK}/runs/{quote(run.run_id, safe='')}/tasks/{table.replace('.', '-')}.initial_load"


def clear(site: Site, run: RunRef, table: str) -> None:
    """As the UI's dialog does, which includes downstream tasks unless a user says otherwise."""
    task = f"{table.replace('.', '-')}.initial_load"
    more = {"include_downstream": True, "reset_dag_runs": True, "only_failed": False}
    body = {"dry_run": False, "dag_run_id": run.run_id, "task_ids": [task], **more}
    site.running.rest.post(f"dags/{PACK}/clearTaskInstances", body)


def state(site: Site, run: RunRef) -> str:
    return str(site.running.rest.get(run.path)["state"])


@pytest.mark.deep  # forty tasks; tests/airflow plays the rules without a UI
@seen
def test_a_red_table_is_seen_cleared_and_green_again(site: Site, page: Page, pictures: Path, failed: RunRef) -> None:
    states = site.runs.tasks(failed)
    red = {task for task, one in states.items() if one == "failed"}
    assert red == {"grouped-t39.initial_load"}
    page.goto(f"/dags/{PACK}")
    for name in (GOOD, BAD):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    picture(page, pictures, "groups_red")
    clear(site, failed, BAD)
    site.running.wait("the run to be green", lambda: state(site, failed) == "success")
    assert [job["tables"] for job in site.jobs("grouped")][-1] == [BAD]
    page.goto(f"/dags/{PACK}")
    expect(page.get_by_text(BAD, exact=True).first).to_be_visible()
    picture(page, pictures, "groups_green")

    site.find_nothing(GOOD)
    clear(site, failed, GOOD)
    jobs = lambda: [job["tables"] for job in site.jobs("grouped", "end")][-1]  # noqa: E731 - as it reads
    site.running.wait("the cleared table", lambda: jobs() == [GOOD] and state(site, failed) == "success")
    page.goto(address(failed, GOOD))
    expect(page.get_by_text(re.compile("nothing new to load")).first).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("action=reload")).first).to_be_visible()
    picture(page, pictures, "cleared_green")


@pytest.mark.deep
@seen
def test_the_picture_of_the_first_page(site: Site, page: Page, pictures: Path) -> None:
    """Four small tables, one of them opened, and one that has failed."""
    names = ("airlines", "airports", "planes", "weather")
    site.rows("nyc", *(f"{{table: nyc.{name}, keys: [id]}}" for name in names), source="nyc")
    site.runs.wait_for([SMALL])
    for name in names:
        site.land(f"nyc.{name}")
    site.load(SMALL)
    site.land("nyc.weather", "20240102-000000000.parquet")
    site.refuse("nyc.weather")
    with pytest.raises(FatalError):
        site.runs.finish([site.runs.trigger(SMALL)])
    page.goto(f"/dags/{SMALL}/runs")
    group = page.get_by_text("nyc.weather", exact=True).first
    group.locator("xpath=ancestor::*[.//*[local-name()='svg']][1]").locator("svg").first.click()
    expect(page.get_by_text("incremental_load", exact=True)).to_have_count(2)
    expect(page.get_by_role("link", name=re.compile("manual__|20..-")).first).to_be_visible()
    page.wait_for_timeout(1000)  # the grid's lines move apart
    page.screenshot(path=pictures / "groups_small.png", animations="disabled", clip=FIRST_PAGE)


@pytest.fixture(scope="module")
def dated(site: Site) -> None:
    site.rows("dated", "{table: dated.a, keys: [id], schedule: '@hourly'}", source="dated")
    site.runs.wait_for([OTHER])


def accepted(site: Site, backfill: dict[str, str]) -> bool:
    """Airflow 3.0 with SQLite fails while another process writes; the first of two requests holds."""
    try:
        site.running.rest.post("backfills", backfill)
    except RefusedError as error:
        if error.status not in (HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.CONFLICT):
            raise
        return error.status == HTTPStatus.CONFLICT
    return True


@pytest.mark.usefixtures("dated")
def test_a_backfill_makes_no_red_run(site: Site) -> None:
    # Airflow 3.0 fails, or ends its scheduler, where both make the run of the newest interval at once.
    site.runs.finish([site.runs.first(OTHER, 60)])
    now = datetime.now(UTC)
    asked = {"dag_id": OTHER, "from_date": (now - timedelta(hours=5)).isoformat(), "to_date": now.isoformat()}
    if not IS_3_0:
        with pytest.raises(FatalError, match=r"does not allow backfill runs|40\d"):
            site.running.rest.post("backfills", asked)
        return
    site.running.wait("the backfill to be accepted", lambda: accepted(site, asked))
    path = f"dags/{OTHER}/dagRuns"
    runs = lambda: [one for one in site.running.rest.get(path)["dag_runs"] if one["run_type"] == "backfill"]  # noqa: E731 - as it reads
    site.running.wait("the runs of the backfill", lambda: runs() and all(one["state"] == "success" for one in runs()))


@seen
@pytest.mark.skipif(IS_3_0, reason="Airflow 3.2 is the first whose DAGs can refuse them")
@pytest.mark.usefixtures("dated")
def test_the_backfill_dialog_says_so_at_once(page: Page, pictures: Path) -> None:
    page.goto(f"/dags/{OTHER}")
    page.get_by_role("button", name="Trigger").click()
    form = page.get_by_role("dialog")
    form.get_by_text("Backfill", exact=True).hover()
    expect(page.get_by_text("This Dag's schedule does not support backfills")).to_be_visible()
    picture(page, pictures, "backfill")
