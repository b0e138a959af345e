"""`gddl plan --prices`: what a month costs, by tier, owner and table."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.spec import DEFAULT_TIERS
from airflow_gddl.metadata.files import read_yaml
from airflow_gddl.planning import AIRFLOW, Metadata, make_plan
from airflow_gddl.planning.prices import DAYS, REQUESTS_OF_A_BATCH, ZERO, Amount, Cost, Prices
from airflow_gddl.runtime.state.table_runs import RunFact, TableRecord
from tests.unit.pages import page
from tests.unit.test_cli_plan import gddl
from tests.unit.test_planning import EMR, SUNDAY, table, tables

EVERYTHING = Prices(
    core_hour=0.05, memory_gib_hour=0.006, dbu=0.1, dbus_per_core_hour=0.25, run=0.001, list_write_1000=0.005,
    read_1000=0.0004,
)  # fmt: skip
LISTS = re.findall(r"```yaml\n# (\w+)\.yaml\n(.*?)```", page("cli.md"), re.DOTALL)


def costs(rows: Any, prices: Prices = EVERYTHING, **more: Any) -> Cost:
    metadata = Metadata(**{"tables": tuple(rows), "tiers": DEFAULT_TIERS, **more})
    found = make_plan(metadata, AIRFLOW, SUNDAY, SUNDAY, prices).cost
    assert found is not None
    return found


def summed(amounts: Any) -> Amount:
    return sum(amounts, ZERO)


def test_parts_sum_to_the_total() -> None:
    rows = [*tables(30, owner="sales"), table(800, size="medium"), table(801, size="large", owner="ops", trigger="1m")]
    found = costs(rows, runner="emr_serverless", settings=EMR)
    for parts in (found.tiers, found.owners, found.tables):
        assert summed(parts.values()).month == pytest.approx(found.total.month)
        assert summed(parts.values()).core_hours == pytest.approx(found.total.core_hours)
    assert (len(found.tables), set(found.tiers), set(found.owners)) == (
        32, {"small", "medium", "large"}, {"sales", "", "ops"}
    )  # fmt: skip
    assert next(iter(found.tables)) == "shop.t00801", "the dearest comes first: its job runs all day"
    assert found.tables["shop.t00801"].core_hours == pytest.approx(24 * 2 * 2), "two cores of driver and worker"


def test_a_job_is_priced_by_hand() -> None:
    """A medium table at noon: 11 s for itself, 2 s until its job processes it, on one machine of the tier's size."""
    tier = DEFAULT_TIERS["medium"]
    found = costs([table(1, size="medium", schedule="0 12 * * *")], replace(EVERYTHING, dbu=0.0))
    hours = (11.0 + 2.0) / 3600
    requests = REQUESTS_OF_A_BATCH
    expected = hours * tier.cores * 0.05 + hours * float(tier.memory[:-1]) * 0.006 + 0.001
    expected += (1 + requests.lists + requests.writes) / 1000 * 0.005 + requests.reads / 1000 * 0.0004
    assert found.total.month == pytest.approx(DAYS * expected)
    assert found.total.requests == 1 + sum(requests)


def test_least_seconds_are_billed_once_for_a_run() -> None:
    prices = Prices(core_hour=1.0, least_seconds=3600.0)
    one, ten = (costs(tables(many, schedule="0 12 * * *"), prices).total for many in (1, 10))
    assert [one.core_hours, ten.core_hours] == pytest.approx([DEFAULT_TIERS["small"].cores] * 2)


def test_records_replace_what_is_assumed() -> None:
    """A table that had changes in two runs a day for ten days costs two batches a day."""
    now = datetime(2026, 11, 1, 12, tzinfo=UTC)
    fact = RunFact(
        started=now.timestamp(), status="succeeded", mode="incremental", tasks="one", seconds=5.0, files=1,
        rows_read=1, appended=1, redelivered=0, quarantined=0, rows=1, commit=None, lag=None, error=None, warnings=(),
        run_id="r",
    )  # fmt: skip
    record = TableRecord(newest=fact, changed_since=(now - timedelta(days=10)).timestamp(), changing_runs=21)
    rows = tables(2)
    found, assumed = costs(rows, records={"shop.t00000": record}), costs(rows)
    assert (found.recorded, assumed.recorded) == (1, 0)
    assert found.tables["shop.t00000"].runs == pytest.approx(2.0, rel=0.1)
    assert found.tables["shop.t00001"].runs == 24
    assert found.tables["shop.t00000"].month < assumed.tables["shop.t00000"].month


def test_what_is_not_priced_costs_nothing() -> None:
    assert costs(tables(3), Prices()).total.month == 0.0


@pytest.mark.parametrize(("name", "text"), LISTS)
def test_examples_of_the_docs_are_lists_of_prices(name: str, text: str, tmp_path: Path) -> None:
    assert costs(tables(3), Prices.of(read_yaml(text))).total.month > 0, name


def test_there_are_examples_of_each_platform() -> None:
    assert [name for name, _ in LISTS] == ["emr_serverless", "glue", "databricks"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "metadata"
    (folder / "tables").mkdir(parents=True)
    (folder / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    (folder / "tables/t.yaml").write_text("tables:\n  - {table: shop.a, keys: [id], owner: sales}\n")
    return folder


def test_the_command_shows_the_month(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = small / "prices.list"
    prices.write_text("currency: EUR\ncore_hour: 0.05\n")
    assert gddl(small, "--prices", str(prices)) == 0
    shown = capsys.readouterr().out
    assert re.search(r"[\d.]+ EUR in 30 days like this one", shown)
    assert re.search(r"sales +24 ", shown)
    assert gddl(small, "--prices", str(prices), "--json") == 0
    cost = json.loads(capsys.readouterr().out)["cost"]
    assert (cost["currency"], list(cost["tables"]), cost["recorded"]) == ("EUR", ["shop.a"], 0)
    assert gddl(small, "--json") == 0
    assert json.loads(capsys.readouterr().out)["cost"] is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("core_hour: -1", "core_hour: -1.0 is no price"),
        ("core_hour: .inf", ".inf"),
        ("core_hours: 1", "unknown field 'core_hours'"),
        ("core_hour: dear", "core_hour: 'dear' is not a number"),
        ("- 1", "[1] is not an object"),
        ("core_hour: [", ""),
    ],
)
def test_an_invalid_list_is_named(text: str, what: str, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = small / "prices.list"
    prices.write_text(text)
    assert gddl(small, "--prices", str(prices)) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert "[PRICES_INVALID]" in said
    assert what in said
    assert "Remedy:" in said
