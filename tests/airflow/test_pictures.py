"""The pictures in docs/operate.md show the page as it is: its words are those beside the pictures, `page.txt`.

    GDDL_PICTURES=1 python -m pytest tests/airflow/test_pictures.py

takes them anew. Look at them afterwards.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.result import ErrorInfo, Freshness, JobResult, MainCounts
from airflow_gddl.runtime.state.recording import StateRecorder, write_record
from airflow_gddl.runtime.state.table_runs import TablePoll
from airflow_gddl.stores import open_store
from tests.airflow import ledgers
from tests.airflow.page_site import NOW, PACK, Site
from tests.airflow.stage import Stage

pytest.importorskip("playwright")
browser = importlib.import_module("tests.airflow.browser")
pytestmark = pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium (apt-get install chromium)")

IMAGES = Path(__file__).parents[2] / "docs" / "images"
VIEW = {"width": 1200, "height": 1000}
TAKEN_ANEW = "GDDL_PICTURES" in os.environ
ROWS_OF = {"orders": 1_240_000, "payments": 980_000, "refunds": 30_000, "customers": 40_000, "order_lines": 5_600_000}
REFUSED = "column total was decimal(10,2) and is string in 20231114-215000000.parquet"
REMEDY = "set type_change to rescue or widen, or correct the source, then rerun"


def runs_of(name: str) -> Iterator[JobResult]:
    """Hourly runs of a day; one of `orders` left rows in quarantine, and its last failed."""
    rows = ROWS_OF[name]
    for hour in range(14):
        started = datetime.fromtimestamp(NOW, UTC) - timedelta(hours=13 - hour, minutes=9)
        common: dict[str, Any] = {
            "table": f"shop.{name}",
            "tasks": "one",
            "run_id": f"run-{hour}",
            "started_at": started.isoformat(),
        }
        if (name, hour) == ("orders", 13):
            error = ErrorInfo(code="SCHEMA_REFUSED", message=f"{REFUSED}. Remedy: {REMEDY}.")
            yield JobResult(status="failed", error=error, **common)
            continue
        read, refused = rows // 50 + hour * 37, 3 if (name, hour) == ("orders", 5) else 0
        lag = Freshness(commit_ts=started.isoformat(), lag_seconds=500.0 + 100 * (hour * 7 % 5))
        counts = {"rows_read": read, "changes_written": read - refused, "quarantined": refused, "files": 2}
        counts |= {"in_quarantine": 3 if name == "orders" and hour >= 5 else 0}
        main = MainCounts(rows=rows + hour * rows // 100)
        yield JobResult(
            status="succeeded", freshness=lag, main=main, seconds=4.5 + hour * 5 % 7, **{**counts, **common}
        )


@pytest.fixture
def shop(stage: Stage) -> Site:
    stage.rows(
        "{table: shop.orders, keys: [id], mask: {email: hash}, owner: sales, freshness: 1d}",
        "{table: shop.payments, keys: [id], owner: finance, freshness: 5m}",
        "{table: shop.refunds, keys: [id], freshness: soon}",
        "{table: shop.stock, keys: [id], owner: logistics}",
        "{table: shop.shipments, keys: [id], owner: logistics, freshness: 1h}",
        "{table: shop.customers, keys: [id], owner: crm, freshness: 1h}",
        "{table: shop.order_lines, keys: [order_id, line_no], owner: sales, freshness: 1h}",
    )
    text = (stage.metadata / "tables/shop.yaml").read_text().replace("tables:", "source: shop\ntables:", 1)
    stage.write("tables/shop.yaml", text)
    made = Site(stage)
    recorder = StateRecorder(made.roots, PACK, (), lambda: NOW)
    for name in ROWS_OF:
        for result in runs_of(name):
            write_record(open_store(), made.roots, result)
            recorder.take(result, ("scheduled__2023-11-14T00:00:00+00:00", "incremental_load"))
    recorder.begin(["shop.stock"])
    recorder.flush()
    polls = {f"shop.{name}": TablePoll(polled=NOW - 60, files=48, waiting=0) for name in ROWS_OF}
    polls["shop.payments"] = TablePoll(polled=NOW - 60, files=51, waiting=3, since=NOW - 540)
    recorder.change(
        lambda known: known.with_records(
            {name: replace(known.record(name), poll=poll, seen=poll.polled) for name, poll in polls.items()}
        )
    )
    ledgers.write(made.roots, "shop.orders", batches=3)
    quarantine(stage.lake / "shop" / "orders__errors")
    return made


def quarantine(folder: Path) -> None:
    deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    records = (
        {"id": 4711, "total": "12,50", "email": "ada@example.org", "note": "gift"},
        {"id": 4712, "total": "n/a", "email": "grace@example.org", "note": None},
        {"id": None, "total": "8.00", "email": "alan@example.org", "note": ""},
    )
    unfit = ("CAST_FAILED", "the value does not fit decimal(10,2)", "total")
    codes, reasons, columns = zip(unfit, unfit, ("KEY_NULL", "a part of the key is null", "id"), strict=True)
    rows = {
        "occurred_at": ["2023-11-14T14:52:11.000000+00:00"] * 3,
        "code": codes,
        "reason": reasons,
        "column": columns,
        "source_file": ["shop/orders/20231114-145000000.parquet"] * 3,
        "batch_id": ["00000000000000000006"] * 3,
        "record": [json.dumps(record) for record in records],
        "resolved_at": arrow.array([None] * 3, arrow.string()),
    }
    deltalake.write_deltalake(folder, arrow.table({name: arrow.array(values) for name, values in rows.items()}))


def words(text: str) -> str:
    """Those that a picture of a table's page has: it ends above the plots."""
    lines = [" ".join(line.split()) for line in text.partition("Lag at the end of each run")[0].splitlines()]
    return "\n".join(line for line in lines if line)


def test_pictures_show_the_page_as_it_is(shop: Site, users: dict[str, dict[str, str]]) -> None:
    shown = []
    with browser.chromium() as launched, browser.served(shop.app) as url:
        page = browser.opened(launched, url, users["admin"], timezone_id="UTC", viewport=VIEW)
        page.emulate_media(color_scheme="light")
        page.goto("/gddl/")
        page.get_by_text("7 of 7 tables").wait_for()
        page.wait_for_load_state("networkidle")
        shown.append(taken(page, page.locator("body"), "page-tables"))
        page.goto("/gddl/#/table/shop.orders")
        held = page.locator("#quarantine")
        held.get_by_role("button", name="all codes 3").wait_for()
        page.wait_for_load_state("networkidle")
        shown.append(taken(page, page.locator("body"), "page-table"))
        shown.append(taken(page, held, "page-quarantine"))
    described = IMAGES / "page.txt"
    if TAKEN_ANEW:
        described.write_text("\n\n".join(shown) + "\n", encoding="utf-8")
    assert "\n\n".join(shown) + "\n" == described.read_text(encoding="utf-8"), "take the pictures anew, as above"


def taken(page: Any, part: Any, name: str) -> str:
    """The words in the picture."""
    if TAKEN_ANEW:
        path = IMAGES / f"{name}.png"
        if name == "page-table":
            page.screenshot(path=path, clip={"x": 0, "y": 0, **VIEW})
        elif name == "page-tables":
            page.screenshot(path=path, full_page=True)
        else:
            part.screenshot(path=path)
    return f"# {name}.png\n{words(part.inner_text())}"
