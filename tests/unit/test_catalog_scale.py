"""Ten thousand rows load at parse time, sound or not."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from airflow_gddl.metadata.loading import load
from tests.unit.metadata_folder import write

MANY, WRONG = 10_000, 2_500
# Each takes a second or a few; work that grows faster than the rows would take minutes.
pytestmark = pytest.mark.timeout(120)


def rows(extra: dict[str, object]) -> list[dict[str, object]]:
    shared = {
        "keys": ["id", "line"],
        "schedule": "@hourly",
        "freshness": "30m",
        "options": {"date_partition": "YYYYMMDD"},
    }
    return [
        {"table": f"shop.t{i:05d}", **shared, "depends_on": [f"shop.t{max(i - 1, 0):05d}"] if i else [], **extra}
        for i in range(MANY)
    ]


def yaml_text(many: list[dict[str, object]]) -> str:
    lines = (f"  - {{{', '.join(f'{k}: {json.dumps(v)}' for k, v in row.items())}}}" for row in many)
    return "source: shop\ntables:\n" + "\n".join(lines)


def csv_text(many: list[dict[str, object]]) -> str:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(many[0]))
    writer.writeheader()
    writer.writerows({k: v if isinstance(v, str) else json.dumps(v) for k, v in row.items()} for row in many)
    return file.getvalue()


def json_text(many: list[dict[str, object]]) -> str:
    return json.dumps({"source": "shop", "tables": many}, indent=1)


def test_ten_thousand_rows_are_loaded(tmp_path: Path) -> None:
    many, third = rows({}), MANY // 3
    parts = {
        "yaml": yaml_text(many[:third]),
        "json": json_text(many[third : 2 * third]),
        "csv": csv_text(many[2 * third :]),
    }
    catalog = load(write(tmp_path, {f"tables/a.{ending}": text for ending, text in parts.items()}), {})
    assert (len(catalog.tables), catalog.problems) == (MANY, ())


def test_ten_thousand_problems_are_all_reported(tmp_path: Path) -> None:
    extra = {"delete": "sotf", "histry": True, "schedule": "61 * * * *", "size": "huge"}
    wrong = yaml_text(rows(extra)[:WRONG])
    folder = write(tmp_path, {"tables/a.yaml": wrong, "tables/b.json": '{"tables": [{"table": "a.b", "keys": []}]}'})
    catalog = load(folder, {})
    assert (len(catalog.problems), [spec.table for spec in catalog.tables]) == (4 * WRONG, ["a.b"])
    assert [problem.line for problem in catalog.problems[:5]] == [3, 3, 3, 3, 4]
