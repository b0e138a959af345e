"""The page as it is seen: nothing is clipped at any width, light and dark, with hostile values.

The pictures stay in `tests/e2e/pictures`.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.python_command import JOB
from airflow_gddl.contract.result import ErrorInfo, Freshness, JobResult, MainCounts, RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.runtime.state.recording import StateRecorder, write_record
from airflow_gddl.runtime.state.table_runs import TablePoll, TableRecord
from airflow_gddl.stores import open_store
from tests.airflow import ledgers
from tests.airflow.page_site import NOW, PACK, Site
from tests.airflow.stage import Stage

pytest.importorskip("playwright")
browser = importlib.import_module("tests.airflow.browser")
expect = browser.expect
pytestmark = pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium (apt-get install chromium)")

HOSTILE = '<img src=x onerror="window.hacked=1">'
LONG = "a_long_name_of_a_column_or_a_file_that_has_no_blank_" * 3
REFUSED = f"[SCHEMA_REFUSED] column {LONG} was bigint and is text now: {HOSTILE}. " + "Remedy: set type_change. " * 6
OVERLAPPING = """() => [...document.querySelectorAll("svg.plot")].flatMap((one) => {
  const boxes = [...one.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([text, a], at) => boxes.slice(at + 1)
    .filter(([, b]) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
    .map(([other]) => `${text} and ${other}`));
})"""
"""Texts of plots that lie on one another."""
MASKED = "someone@example.org"


@pytest.fixture(autouse=True)
def _real_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__JOB_COMMAND", json.dumps(JOB))


def runs_of(table: str, *, failing: bool) -> Iterator[JobResult]:
    """Two weeks of daily runs with a bit of everything."""
    first = datetime.fromtimestamp(NOW, UTC) - timedelta(days=14)
    for day in range(14):
        started = first + timedelta(days=day, hours=23)
        lag = Freshness(
            commit_ts=(started - timedelta(minutes=10)).isoformat(), lag_seconds=600.0 + 90 * (day * 7 % 11)
        )
        counts: dict[str, Any] = {"rows_read": 1_234_567 * day, "changes_written": 1_234_567 * day, "files": day}
        counts |= {"main": MainCounts(rows=98_000_000 + 4_321_000 * day), "freshness": lag, "seconds": 4.5 + 61 * day}
        if day == 5:
            counts |= {"changes_written": 1_234_567 * day - 5, "quarantined": 5}
        if day == 8:
            files = (f"shop/orders/{LONG}.parquet", f"shop/orders/{HOSTILE}.parquet")
            message = "2 files can't be read. Remedy: have the source write them again."
            counts |= {"warnings": (RunWarning(code="FILE_UNREADABLE", message=message, count=7, sample=files),)}
            counts |= {"schema_changes": (f"added column {HOSTILE} string", "widened seats int -> bigint")}
        if day == 9:
            ties = RunWarning(code="SEQUENCE_TIE", message="3 ties", count=3, sample=(MASKED,))
            counts |= {"warnings": (ties,)}
        if day == 13 and failing:
            counts = {"error": ErrorInfo(code="SCHEMA_REFUSED", message=REFUSED)}
        status = "failed" if "error" in counts else "succeeded"
        yield JobResult(
            **{"table": table, "status": status, "started_at": started.isoformat(), "run_id": f"r{day}", **counts}
        )


@pytest.fixture
def shop(stage: Stage) -> Site:
    """A table in each state; `shop.orders` failed, has rows in quarantine, and masks a column."""
    stage.rows(
        f"{{table: shop.orders, keys: [order_id, line_no], mask: {{email: hash}}, owner: '{HOSTILE}', freshness: 1d}}",
        "{table: shop.lines_of_orders_with_a_long_name_that_must_not_be_cut_anywhere, keys: [id]}",
        "{table: shop.broken, keys: [id], freshness: soon}",
        "{table: shop.late, keys: [id], sequence_by: [seq], freshness: 5m}",
        "{table: shop.new, keys: [id], freshness: 1h}",
        "{table: shop.runs, keys: [id]}",
        "{table: shop.waits, keys: [id]}",
        "{table: shop.off, keys: [id], enabled: false}",
        f"{{table: shop.odd, keys: [id], '{HOSTILE}': 1}}",
    )
    text = (stage.metadata / "tables/shop.yaml").read_text().replace("tables:", "source: shop\ntables:", 1)
    stage.write("tables/shop.yaml", text + "  - {table: nodot, keys: [id]}\n")
    made = Site(stage)
    recorder = StateRecorder(made.roots, PACK, (), lambda: NOW)
    for name in ("orders", "lines_of_orders_with_a_long_name_that_must_not_be_cut_anywhere", "broken", "late"):
        for result in runs_of(f"shop.{name}", failing=name == "orders"):
            write_record(open_store(), made.roots, result)
            recorder.take(result, ("scheduled__2023-11-14T00:00:00+00:00", "incremental_load"))
    recorder.begin(["shop.runs"])
    recorder.flush()
    waits = TableRecord(poll=TablePoll(polled=NOW - 60, files=4, waiting=3, since=NOW - 500), seen=NOW - 500)
    recorder.change(lambda known: known.with_records({"shop.waits": waits}))
    ledgers.write(made.roots, "shop.orders", batches=3)
    quarantine(stage.lake / "shop" / "orders__errors")
    return made


def quarantine(folder: Path) -> None:
    deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    records = [
        json.dumps({"order_id": 7, "line_no": None, "note": HOSTILE, "email": MASKED, "price": "1.50", "text": LONG}),
        json.dumps({"order_id": 8, "line_no": 1, "note": "", "EMAIL": MASKED}),
        f"8;{MASKED};a line that can't be split",
    ]
    rows = {
        "occurred_at": ["2023-11-14T21:00:00.123456+00:00"] * 3,
        "code": ["KEY_NULL", "CAST_FAILED", "ROW_MALFORMED"],
        "reason": ["a part of the key is null", f"the value does not fit int {HOSTILE}", None],
        "column": ["line_no", "line_no", None],
        "source_file": [f"shop/orders/{LONG}.csv"] * 3,
        "batch_id": ["00000000000000000012"] * 3,
        "record": records,
        "resolved_at": arrow.array([None] * 3, arrow.string()),
    }
    deltalake.write_deltalake(folder, arrow.table(rows))


def loaded(shop: Site, table: str, note: str = "") -> None:
    """Rows of `shop.orders`; of another table a key with three changes, one of them late, and a bad row."""
    if table == "shop.orders":
        deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
        rows = {"order_id": [1, 2], "line_no": [1, None], "email": [MASKED] * 2, "note": [note] * 2}
        deltalake.write_deltalake(shop.stage.lake / "shop" / "orders", arrow.table(rows))
        return
    small = importlib.import_module("tests.harness.lake")
    lake, spec = small.Lake(shop.stage.root), TableSpec(table=table, keys=("id",), sequence_by=("seq",))
    for number, rows in (
        (1, [("U", 1, "first"), ("?", 1, "bad")]),
        (3, [("U", 1, "third")]),
        (2, [("U", 1, "second")]),
    ):
        lake.change(spec, number, rows)
        lake.done(spec)


@pytest.fixture(scope="module")
def launched() -> Iterator[Any]:
    with browser.chromium() as found:
        yield found


@pytest.fixture
def pages(shop: Site, users: dict[str, dict[str, str]], launched: Any) -> Iterator[Any]:
    """Opens the page as a browser without cookies and storage does."""
    with browser.served(shop.app) as url:
        yield lambda **context: browser.opened(launched, url, users["admin"], **context)
        for context in launched.contexts:
            context.close()


def size(width: int) -> dict[str, Any]:
    return {"viewport": {"width": width, "height": 900}}


def looks(page: Any, name: str, *wanted: tuple[int, str]) -> Iterator[int]:
    """Each width and scheme in turn; after a look its picture is taken."""
    for width, scheme in wanted:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        yield width
        browser.picture(page, f"{name}_{width}_{scheme}")


@pytest.mark.parametrize(("width", "scheme"), zip(browser.WIDTHS, ("dark", "light", "dark"), strict=True))
def test_nothing_is_clipped(pages: Any, width: int, scheme: str) -> None:
    page, said = pages(color_scheme=scheme, **size(width)), []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.goto("/gddl/")
    page.get_by_role("link", name="shop.orders").wait_for()
    assert page.evaluate(browser.CLIPPED) == []
    browser.picture(page, f"tables_{width}_{scheme}")
    rows = page.locator("table.matrix tbody tr")
    message = rows.filter(has_text=REFUSED)
    expect(message).to_be_visible()
    for label in ("Lag", "Up to date", "Rows", "Waiting", "Quarantined"):
        cell = page.locator("tr", has_text="shop.orders").first.locator(f'[data-label="{label}"]')
        box = cell.bounding_box()
        assert box is not None, label
        assert box["x"] >= 0, label
        assert box["x"] + box["width"] <= width, label
    page.get_by_role("link", name="shop.orders").click()
    page.get_by_role("heading", name="Files").wait_for()
    page.locator("svg.plot").nth(1).wait_for()
    assert page.evaluate(browser.CLIPPED) == []
    browser.picture(page, f"table_{width}_{scheme}")
    names = page.locator("dl.values dt").evaluate_all("all => all.map((one) => one.offsetHeight)")
    assert max(names) < 30, "a short name is on one line"
    link = page.get_by_role("link", name="task and log").first.bounding_box()
    assert link is not None
    assert link["height"] < 30
    for text in (REFUSED, f"shop/orders/{LONG}.parquet", f"shop/orders/{HOSTILE}.parquet", "and 5 more"):
        expect(page.get_by_text(text).last).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert said == [], "the content security policy or a script complained"


def test_rows_in_quarantine_show_their_values_and_no_masked_ones(pages: Any) -> None:
    page = pages(**size(1400))
    page.goto("/gddl/#/table/shop.orders")
    held = page.locator("#quarantine")
    held.get_by_role("button", name="all codes 3").wait_for()
    rows = held.locator("tr.message dl.values")
    assert [" ".join(text.split()) for text in rows.all_inner_texts()] == [
        f"order_id 7 line_no null note {HOSTILE} email masked price 1.50 text {LONG}",
        'order_id 8 line_no 1 note "" EMAIL masked',
        "record masked",
    ]
    assert MASKED not in page.content()
    in_the_browsers_zone = held.locator("td, th").filter(has_text="2023-11-14\u00a022:00:00")
    expect(in_the_browsers_zone).to_have_count(3)
    assert held.locator("li.remedy code").all_inner_texts() == ["gddl rebuild --table shop.orders"]
    held.get_by_role("button", name="CAST_FAILED 1").click()
    held.get_by_text("1 row", exact=True).wait_for()
    expect(held.locator("tr.message")).to_have_count(1)
    expect(held.get_by_text(f"the value does not fit int {HOSTILE}")).to_be_visible()
    expect(held.get_by_role("button", name="KEY_NULL 1")).to_be_visible()  # the other codes can still be chosen
    page.get_by_role("button", name="Replay quarantine").click()
    question = "Processes the quarantined rows with code CAST_FAILED again."
    expect(page.locator("#confirm")).to_contain_text(question)
    with page.expect_request("**/dagRuns") as asked:
        page.locator("#confirm").get_by_role("button", name="Replay quarantine").click()
    conf = asked.value.post_data_json["conf"]
    assert conf == {"tables": ["shop.orders"], "action": "replay", "codes": ["CAST_FAILED"]}


def test_rows_of_one_code_are_dismissed_with_a_reason(pages: Any) -> None:
    page = pages(**size(420))
    page.goto("/gddl/#/table/shop.orders")
    button, dialog = page.get_by_role("button", name="Dismiss quarantine"), page.locator("#confirm")
    button.click()
    page.get_by_text("Choose the code of the rows to dismiss").wait_for()
    expect(dialog).to_be_hidden()
    page.locator("#quarantine").get_by_role("button", name="KEY_NULL 1").click()
    page.locator("#quarantine").get_by_text("1 row", exact=True).wait_for()
    button.click()
    expect(dialog).to_contain_text("Leaves out the quarantined rows with code KEY_NULL")
    confirmed = dialog.get_by_role("button", name="Dismiss quarantine")
    expect(confirmed).to_be_disabled()
    dialog.get_by_label("Reason").fill(" ")
    expect(confirmed).to_be_disabled()
    dialog.get_by_label("Reason").fill(" test rows of the source ")
    with page.expect_request("**/dagRuns") as asked:
        confirmed.click()
    assert asked.value.post_data_json["conf"] == {
        "tables": ["shop.orders"], "action": "dismiss", "codes": ["KEY_NULL"], "reason": "test rows of the source",
    }  # fmt: skip


def test_the_command_that_explains_a_key_is_filled_in(pages: Any) -> None:
    page = pages(**size(900))
    page.goto("/gddl/#/table/shop.orders")
    command = page.locator("#explain-command")
    page.get_by_label("Value of order_id").fill("it's; rm -rf $HOME")
    page.get_by_label("Value of line_no").fill("@1")
    expected = "gddl explain --table shop.orders --key 'order_id=it'\\''s; rm -rf $HOME' --key line_no=@1"
    expect(command).to_have_text(expected)
    page.goto("/gddl/#/table/shop.late")
    page.get_by_label("Value of id").fill("42")
    expect(command).to_have_text("gddl explain --table shop.late --key 42")
    page.get_by_label("Value of id").fill("@me")
    expect(command).to_have_text("gddl explain --table shop.late --key id=@me")  # no file is named


def test_a_row_in_quarantine_leads_to_the_history_of_its_key(pages: Any, shop: Site) -> None:
    loaded(shop, "shop.late")
    page = pages()
    page.goto("/gddl/#/table/shop.late")
    held, found = page.locator("#quarantine"), page.locator("#explain")
    held.get_by_role("button", name="History of this key").click()
    expect(found.locator("#explain-why")).to_have_text(
        "Change 3 (U) wins: its sequence is higher than that of change 2."
    )
    expect(page.get_by_label("Value of id")).to_have_value("1")
    rows = found.get_by_role("table", name="Changes of the key").locator("tbody tr")
    expect(rows.nth(1)).to_contain_text("late")
    expect(found.get_by_text("1 record of this key in quarantine:")).to_be_visible()
    expect(found.locator("dl.values").first).to_contain_text("third")
    for _ in looks(page, "explain", (420, "light"), (1024, "dark"), (1440, "light")):
        assert page.evaluate(browser.CLIPPED) == []
        assert page.evaluate(browser.UNREADABLE) == []
        assert browser.inaccessible(page) == []
    page.get_by_label("Value of id").fill("404")
    found.get_by_role("button", name="Show history").click()
    expect(found.get_by_text("[KEY_NOT_FOUND]")).to_be_visible()


def test_the_first_rows_are_shown_on_request(pages: Any, shop: Site) -> None:
    loaded(shop, "shop.orders", note=HOSTILE)
    page = pages()
    page.goto("/gddl/#/table/shop.orders")
    shown = page.locator("#preview")
    shown.get_by_role("button", name="Show rows").click()
    expect(shown.locator("ol.rows li")).to_have_count(2)
    texts = [" ".join(text.split()) for text in shown.locator("dl.values").all_inner_texts()]
    assert sorted(texts) == [
        f"order_id 1 line_no 1 email masked note {HOSTILE}",
        f"order_id 2 line_no null email masked note {HOSTILE}",
    ]
    assert MASKED not in page.content()
    expect(shown.get_by_role("button", name="History of this key")).to_have_count(1)  # a null key leads nowhere
    assert page.evaluate("window.hacked") is None
    for _ in looks(page, "rows", (420, "dark"), (1024, "light"), (1440, "dark")):
        assert page.evaluate(browser.CLIPPED) == []
        assert page.evaluate(browser.UNREADABLE) == []
        assert browser.inaccessible(page) == []


def test_no_word_is_broken_inside(pages: Any, shop: Site) -> None:
    deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    names = ["id", "dms_timestamp", "transact_seq", "customer_delivery_address_of_the_first_order_in_this_year"]
    moment = datetime.fromtimestamp(NOW, UTC)
    rows = arrow.table({name: [1] for name in names}).append_column("changed", arrow.array([[{"at": moment}]]))
    deltalake.write_deltalake(shop.stage.lake / "shop" / "waits", rows)
    errors = {name: ["2023-11-14T21:00:00"] for name in ("occurred_at",)}
    errors |= {"code": ["TIMESTAMP_OUT_OF_RANGE"], "reason": [f"{names[3]} is out of range"], "column": [names[3]]}
    errors |= {"source_file": ["s3://landing-of-the-shop/shop/late/20231114-210000000.parquet"], "batch_id": ["1"]}
    errors |= {"record": [json.dumps(dict.fromkeys(names, "1"))], "resolved_at": arrow.array([None], arrow.string())}
    deltalake.write_deltalake(shop.stage.lake / "shop" / "waits__errors", arrow.table(errors))
    page = pages()
    page.goto("/gddl/#/table/shop.waits")
    page.get_by_role("button", name="Show rows").click()
    expect(page.locator("#preview ol.rows li")).to_have_count(1)
    expect(page.locator("#quarantine dl.values")).to_have_count(1)
    expect(page.get_by_role("table", name="Schema", exact=True)).to_be_visible()
    for _ in looks(page, "names", (420, "light"), (1024, "dark"), (1440, "light")):
        assert page.evaluate(browser.BROKEN) == []


def test_the_overview_shows_what_the_filters_leave(pages: Any) -> None:
    page = pages()
    page.goto("/gddl/#/?search=shop")
    shown = page.locator("#overview")
    expect(shown).to_contain_text("9 tables, 4 runs.")
    shown.get_by_label("Overview of the").select_option("fortnight")
    expect(shown).to_contain_text("9 tables, 56 runs. Complete since 2023-11-01 22:13:20")
    assert "span=fortnight" in page.url
    expect(shown.locator("svg.plot")).to_have_count(3)
    expect(shown.locator("svg.plot").first.get_by_text("✕1")).to_be_visible()
    expect(shown.locator("figcaption")).to_have_text(
        ["Rows appended; 1 failed run", "Lag: p95, p50 dashed", "Duration of runs: p95, p50 dashed"]
    )
    shown.get_by_text("By source and owner").click()
    owners = shown.get_by_role("table", name="By owner").locator("tbody tr")
    expect(owners).to_have_count(2)
    expect(owners.nth(1)).to_contain_text(HOSTILE)
    for _ in looks(page, "overview", (420, "dark"), (1024, "light"), (1440, "light"), (1440, "dark")):
        assert page.evaluate(OVERLAPPING) == []
        assert page.evaluate(browser.CLIPPED) == []
        assert page.evaluate(browser.UNREADABLE) == []
        assert browser.inaccessible(page) == []
    page.get_by_role("searchbox").fill("orders late")
    expect(shown).to_contain_text("0 tables, 0 runs.")
    page.get_by_role("searchbox").fill("shop.late")
    expect(shown).to_contain_text("1 table, 14 runs.")
    expect(page.locator("#state-all")).to_have_text("all 1")
    expect(page.locator("#state-attention")).to_have_text("!attention 0")
    expect(shown.locator("figcaption").first).to_have_text("Rows appended; 0 failed runs")


def test_a_phone_shows_the_tables_before_the_overview(pages: Any) -> None:
    page = pages(**size(420))
    page.goto("/gddl/")
    page.locator("#overview svg.plot").first.wait_for()

    def is_above() -> bool:
        tables, overview = (page.locator(which).bounding_box() for which in ("table.matrix", "#overview"))
        return bool(tables["y"] < overview["y"])

    assert is_above()
    page.get_by_role("searchbox").fill("shop")
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(page.get_by_role("searchbox")).to_have_value("shop")
    assert not is_above()


def test_failures_of_many_hours_are_added_up_where_they_would_overlap(pages: Any, shop: Site) -> None:
    error = ErrorInfo(code="FILE_UNREADABLE", message="it can't be read")
    for hour in range(12):
        started = (datetime.fromtimestamp(NOW, UTC) - timedelta(hours=12 - hour)).isoformat()
        for number in range(1 + hour % 3):
            result = JobResult(
                table="shop.new", status="failed", error=error, run_id=f"failed-{hour}-{number}", started_at=started
            )
            write_record(open_store(), shop.roots, result)
            shop.ran("shop.new", {"status": "failed", "error": error, "run_id": result.run_id, "started_at": started})
    page = pages()
    page.goto("/gddl/")
    plot = page.locator("#overview svg.plot").first
    plot.wait_for()
    failed = 0
    for _ in looks(page, "failures", (420, "light"), (1024, "light"), (1440, "light")):
        marks = plot.locator("text.limit").all_text_contents()
        assert marks
        failed = failed or sum(int(mark.removeprefix("✕")) for mark in marks)
        assert sum(int(mark.removeprefix("✕")) for mark in marks) == failed > 5
        assert page.evaluate(OVERLAPPING) == []


def test_lineage_leads_from_the_source_to_the_consumers(pages: Any) -> None:
    page = pages()
    answer = browser.assets(
        ("shop.orders", "revenue_report", None),
        ("shop.orders", HOSTILE, None),
        ("shop.orders", "checks", "compare"),
        ("shop.orders_of_others", "other", None),
    )
    page.route("**/api/v2/assets?name_pattern=shop.orders&*", lambda route: route.fulfill(json=answer))
    page.goto("/gddl/#/table/shop.orders")
    shown = page.locator("#lineage")
    stages = shown.locator("ol.lineage > li")
    expect(stages.nth(0)).to_contain_text("shop: shop.orders")
    expect(stages.nth(1).locator("li")).to_have_count(3)
    expect(stages.nth(2).locator("li")).to_have_text(
        ["revenue_report (starts with it)", f"{HOSTILE} (starts with it)", "checks (task compare)"]
    )
    expect(shown.get_by_role("link", name="checks")).to_have_attribute("href", re.compile("/dags/checks$"))
    assert page.evaluate("window.hacked") is None
    for _ in looks(page, "lineage", (420, "dark"), (1024, "light"), (1440, "dark")):
        assert page.evaluate(browser.CLIPPED) == []
        assert page.evaluate(browser.UNREADABLE) == []
        assert browser.inaccessible(page) == []
    page.goto("/gddl/#/table/shop.late")
    expect(stages.nth(2)).to_contain_text("No DAG is scheduled by this table's asset")
    page.route("**/api/v2/assets?*", lambda route: route.fulfill(status=403, json={"detail": "Forbidden"}))
    page.goto("/gddl/#/table/shop.new")
    expect(stages.nth(2)).to_contain_text("Airflow's assets can't be read: Forbidden")


def test_rows_are_sorted_by_size_and_freshness(pages: Any) -> None:
    page = pages(**size(1024))
    page.goto("/gddl/#/?search=shop")
    first = page.locator("table.matrix tbody th a").first
    page.get_by_role("button", name="Rows", exact=True).click()
    expect(first).to_have_text(re.compile("^shop\\.(lines|late|broken)"))
    page.get_by_role("button", name="Up to date", exact=True).click()
    page.get_by_role("button", name="Up to date ▴").click()
    expect(first).to_have_text(re.compile("^shop\\.(lines|late|broken)"))
    assert "order=as_of&direction=down" in page.url


def test_a_danger_button_is_red_in_its_dialog(pages: Any) -> None:
    page = pages(**size(1024))
    page.goto("/gddl/#/table/shop.orders")
    red = page.get_by_role("button", name="Rebuild").evaluate("one => getComputedStyle(one).color")
    for name in ("Rebuild", "Reload from files"):
        page.get_by_role("button", name=name).click()
        shown = page.locator("#confirm").get_by_role("button", name=name)
        assert shown.evaluate("one => getComputedStyle(one).backgroundColor") == red
        page.locator("#confirm").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Rerun").click()
    shown = page.locator("#confirm").get_by_role("button", name="Rerun")
    assert shown.evaluate("one => getComputedStyle(one).backgroundColor") != red


def test_a_broken_row_is_counted_found_and_explained(pages: Any) -> None:
    page = pages(**size(900))
    page.goto("/gddl/")
    page.get_by_text("2 tables have an invalid row and are not loaded").wait_for()
    page.get_by_role("button", name="Show them").click()
    page.get_by_text("2 of 9 tables").wait_for()
    assert "state=broken_row" in page.url
    expect(page.get_by_text("[FIELD_UNKNOWN] shop.odd")).to_be_visible()
    page.get_by_text("1 more problem in the metadata").click()
    expect(page.get_by_role("listitem").filter(has_text="[FIELD_VALUE]")).to_be_visible()
    page.get_by_role("link", name="shop.broken").click()
    page.get_by_text("The row of this table is invalid").wait_for()
    expect(page.get_by_text("[FIELD_VALUE] shop.broken freshness")).to_be_visible()
    expect(page.get_by_text("last state: fresh")).to_be_visible()
    expect(page.get_by_role("button", name="Rerun")).to_be_disabled()
    expect(page.locator("table.grid.wide tbody tr").nth(14)).to_be_visible()  # its runs are there
    assert page.evaluate(browser.CLIPPED) == []
    browser.picture(page, "table_broken_900")


@pytest.mark.usefixtures("paused")
def test_a_paused_dag_is_said_where_its_tables_are(pages: Any) -> None:
    page = pages(**size(360))
    page.goto("/gddl/")
    page.get_by_text("1 DAG is paused: no schedule loads its tables").click()
    expect(page.get_by_role("link", name="gddl_pack.shop.small.1")).to_be_visible()
    assert page.evaluate(browser.CLIPPED) == []
    browser.picture(page, "paused_360")
    page.get_by_role("link", name="shop.orders").first.click()
    expect(page.get_by_text("is paused: no schedule loads the table")).to_be_visible()
    assert page.evaluate(browser.CLIPPED) == []


def test_numbers_are_right_aligned_and_zero_differs_from_unknown(pages: Any) -> None:
    page = pages(**size(1400))
    page.goto("/gddl/")
    never = page.locator("tr", has_text="shop.new").first
    for label in ("Rows", "Lag", "Waiting", "Quarantined"):
        expect(never.locator(f'[data-label="{label}"]')).to_have_text("\u2013")
    page.goto("/gddl/#/table/shop.late")
    first = page.locator("table.wide tbody tr").nth(0)
    first.wait_for()
    expect(first.locator('[data-label="Quarantined"]')).to_have_text("0")
    read = page.locator('[data-label="Read"]')
    style = "all => all.map((one) => getComputedStyle(one)).map((one) => `${one.textAlign} ${one.fontVariantNumeric}`)"
    assert set(read.evaluate_all(style)) == {"right tabular-nums"}


def test_a_plot_has_an_axis_and_shows_the_value_under_the_pointer(pages: Any) -> None:
    page = pages(**size(420))
    page.goto("/gddl/#/table/shop.late")
    drawn = page.locator("svg.plot").nth(1)
    drawn.wait_for()
    texts = [text.text_content() for text in drawn.locator("text").all()]
    assert texts[:-2] == ["0", "50,000,000", "100,000,000", "150,000,000", "200,000,000"]
    assert all(re.fullmatch(r"2023-11-\d\d\s\d\d:\d\d:\d\d", str(text)) for text in texts[-2:])
    sizes = drawn.locator("text").evaluate_all("all => all.map((one) => parseFloat(getComputedStyle(one).fontSize))")
    assert min(sizes) >= 12
    box = drawn.bounding_box()
    assert box is not None
    for text in drawn.locator("text").all():
        inner = text.bounding_box()
        assert inner is not None
        assert inner["x"] >= box["x"] - 1
        assert inner["x"] + inner["width"] <= box["x"] + box["width"] + 1
    published = page.locator("figure").nth(1).locator(".value")
    expect(published).to_contain_text("Newest 154,173,000, at least 98,000,000")
    drawn.hover(position={"x": box["width"] - 15, "y": 60})
    expect(published).to_have_text("2023-11-14\u00a022:13:20: 154,173,000")
    lag = page.locator("figure").nth(0)
    expect(lag).to_contain_text("freshness 5m\u00a000s")


def test_moments_are_in_the_zone_that_airflow_s_ui_was_set_to(pages: Any) -> None:
    page = pages(timezone_id="America/New_York", **size(1400))
    page.goto("/gddl/")
    expect(page.locator("#as-of")).to_have_text("2023-11-14\u00a017:13:20 (America/New_York)")
    page.evaluate("window.localStorage.setItem('timezone', '\"Asia/Tokyo\"')")
    page.reload()
    page.get_by_text("2023-11-15\u00a007:13:20 (Asia/Tokyo)").wait_for()
    page.evaluate("window.localStorage.setItem('timezone', '<img>')")
    page.reload()
    page.get_by_text("(America/New_York)").wait_for()


def test_a_table_s_page_follows_what_happens(pages: Any, shop: Site) -> None:
    page = pages(**size(900))
    page.goto("/gddl/#/table/shop.runs")
    page.locator(".facts .state.running").wait_for()
    page.get_by_label("Value of id").fill("42")
    done = {"status": "succeeded", "started_at": "2023-11-14T22:13:00+00:00", "run_id": "done", "rows_read": 3}
    done |= {"changes_written": 3, "main": MainCounts(rows=3)}
    shop.ran("shop.runs", done)
    write_record(open_store(), shop.roots, JobResult(table="shop.runs", **done))
    page.locator(".facts .state.fresh").wait_for()
    expect(page.locator("table.wide tbody tr")).to_have_count(1)
    expect(page.get_by_label("Value of id")).to_have_value("42")  # what was typed stays


def test_a_search_that_was_just_typed_does_not_undo_a_click(pages: Any) -> None:
    page = pages(**size(900))
    page.goto("/gddl/")
    page.get_by_role("link", name="shop.late").wait_for()
    page.evaluate("""() => {
      const search = document.querySelector("input[type=search]");
      search.value = "late";
      search.dispatchEvent(new Event("input"));
      document.querySelector('a[href="#/table/shop.late"]').click();
      return new Promise((done) => setTimeout(done, 500));
    }""")
    page.get_by_role("heading", name="shop.late").wait_for()
    assert page.url.endswith("/gddl/#/table/shop.late")
    page.go_back()
    expect(page.get_by_role("searchbox")).to_have_value("late")
    page.get_by_text("1 of 9 tables").wait_for()


def test_a_click_is_not_lost_when_the_list_is_drawn_again(pages: Any) -> None:
    page = pages(**size(900))
    page.goto("/gddl/")
    link = page.get_by_role("link", name="shop.late")
    link.wait_for()
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    asked = re.compile("/gddl/api/v1/tables.*search=late")
    page.route(asked, hold)
    with page.expect_request(asked):
        page.get_by_role("searchbox").fill("late")
    link.hover()
    page.mouse.down()
    with page.expect_response(asked):
        held[0].continue_()
    page.evaluate("new Promise((done) => setTimeout(done, 300))")  # it would be drawn meanwhile
    page.mouse.up()
    page.get_by_role("heading", name="shop.late").wait_for()


def test_tables_with_rows_in_quarantine_can_be_picked(pages: Any, shop: Site) -> None:
    """Half of a table in quarantine needs attention, and is found by the filter of its own."""
    counts = {"rows_read": 150, "changes_written": 75, "quarantined": 75, "in_quarantine": 75}
    started = datetime.fromtimestamp(NOW - 60, UTC).isoformat()
    shop.ran("shop.new", {"status": "succeeded", "started_at": started, "main": MainCounts(rows=75), **counts})
    page = pages(**size(1280))
    page.goto("/gddl/?#/?search=shop.new")
    page.locator("#state-quarantined").click()
    page.get_by_text("1 of 9 tables").wait_for()
    assert "state=quarantined" in page.url
    expect(page.get_by_text("Needs attention: QUARANTINE_RATE")).to_be_visible()
    expect(page.locator("#state-quarantined")).to_have_attribute("aria-pressed", "true")
    assert page.evaluate(browser.CLIPPED) == []


def test_a_table_s_page_is_whole_where_airflow_s_environment_has_no_delta(
    pages: Any, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the recommended installation has it: jobs read the table."""
    deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    rows = arrow.table({"order_id": [1, 2], "line_no": [1, 1], "amount": [10, 20]})
    deltalake.write_deltalake(shop.stage.lake / "shop" / "orders", rows)
    for name in ("deltalake", "pyarrow", "pyspark"):
        monkeypatch.setitem(sys.modules, name, None)
    page = pages()
    page.goto("/gddl/#/table/shop.orders")
    page.get_by_role("button", name="Show rows").click()
    expect(page.locator("#preview ol.rows li")).to_have_count(2)
    expect(page.locator("#quarantine dl.values").first).to_be_visible()
    schema = page.get_by_role("table", name="Schema", exact=True)
    expect(schema).to_contain_text("amount")
    expect(page.get_by_text("PACKAGE_MISSING")).to_have_count(0)
    for _ in looks(page, "by_jobs", (1440, "light")):
        assert page.evaluate(browser.CLIPPED) == []
