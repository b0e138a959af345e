"""`gddl plan`: what a person sees, what a program reads, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.init import PROJECT, TABLES, DemoFolder, write_project
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.codec import plain
from airflow_gddl.tools.capacity.plan import Advice
from tests.unit.metadata_folder import row_file, write
from tests.unit.pages import section

AROUND = CliContext(environ={}, now=lambda: datetime(2026, 11, 1, 12, tzinfo=UTC), new_id=lambda: "aa", job_command=())
ROOT = Path(__file__).parents[2]


def gddl(folder: Path, *arguments: str) -> int:
    return invoke(["plan", "--metadata", str(folder), *arguments], AROUND)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    rows = ("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id], size: medium}")
    return write(tmp_path, {"tables/t.yaml": row_file(*rows)})


def sample_of_this_project(folder: Path) -> Path:
    return Path(shutil.copytree(ROOT / "metadata", folder / "metadata"))


def sample_of_the_demo(folder: Path) -> Path:
    DemoFolder(folder).write_project()
    return folder / "metadata"


def sample_of_init(folder: Path) -> Path:
    write_project(folder, {**PROJECT, "metadata/tables/shop.yaml": TABLES.replace("#  - ", "  - ")})
    return folder / "metadata"


def sample_of_the_first_page(folder: Path) -> Path:
    named = re.findall(r"<!-- file: (\S+) -->\n```yaml\n(.*?)```", (ROOT / "docs" / "start.md").read_text(), re.DOTALL)
    return write(folder, dict(named)) / "metadata"


@pytest.mark.parametrize(
    "sample",
    [sample_of_this_project, sample_of_the_demo, sample_of_init, sample_of_the_first_page],
    ids=lambda f: f.__name__,
)
def test_samples_need_no_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sample: Callable[[Path], Path]
) -> None:
    assert gddl(sample(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["advice"] == []


def test_a_folder_that_fits(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gddl(small) == 0
    shown = capsys.readouterr().out
    assert "2 tables in 4 DAGs (2 cron, 2 of upkeep)" in shown
    assert "48 runs with 216 task instances on 2026-11-01, the busiest of the next 31 days" in shown
    assert "MWAA: mw1.micro is documented for as many DAGs" in shown
    assert "nothing to change" in shown


def test_advice_names_some_of_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = row_file(*(f"{{table: shop.t{n:03d}, keys: [id], freshness: 30m}}" for n in range(60)))
    assert gddl(write(tmp_path, {"tables/t.yaml": rows})) == 0
    shown = capsys.readouterr().out
    assert "[FRESHNESS_TOO_SHORT] `freshness` of rows with schedule @hourly is not longer" in shown
    assert "change freshness: longer, or schedule: more often" in shown
    assert "shop.t000, shop.t001, shop.t002, shop.t003, shop.t004 and 55 more" in shown


def test_json_is_one_line_that_adds_up(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gddl(small, "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    made = json.loads(line)
    assert (made["day"], made["runs"], made["task_instances"]) == ("2026-11-01", 48, 216)
    assert [(tier["tier"], tier["tables"], tier["runs"]) for tier in made["tiers"]] == [
        ("medium", 1, 24),
        ("small", 1, 24),
    ]
    reported = section("cli.md", "Plan")
    parts = (made, plain(Advice(code="A", message="m", change="c")))
    assert [key for part in parts for key in part if f"`{key}`" not in reported] == []


def test_bad_rows_are_named_and_the_others_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = row_file("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id], delete: sometimes}")
    assert gddl(write(tmp_path, {"tables/t.yaml": rows})) == 2
    shown = capsys.readouterr()
    assert "1 table in 3 DAGs" in shown.out
    assert "FIELD_VALUE" in shown.err


def test_plan_without_enabled_tables_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = row_file("{table: shop.a, keys: [id], enabled: false}")
    assert gddl(write(tmp_path, {"tables/t.yaml": rows})) == 2
    assert "[NO_TABLES]" in capsys.readouterr().err
