"""Any garbage beside good rows: nothing raises, nothing good is lost, and nothing bad gets in."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.codec import from_json, to_json
from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.loading import load
from tests.unit.metadata_folder import write

FIELDS = [
    "table",
    "keys",
    "schedule",
    "size",
    "mask",
    "options",
    "columns",
    "depends_on",
    "freshness",
    "history",
    "tags",
]
WORDS = ["x.y", "id", "@hourly", "soft", "30m", "null", "a.b.c", "_gddl.x", "\u2028", "<<", "*", "{", "🙂", ""]


def rows(text: st.SearchStrategy[str]) -> st.SearchStrategy[list[Any]]:
    """Lists of garbage, of rows with garbage in known fields, and of `("good", number)`."""
    text = st.one_of(st.sampled_from(WORDS), text)
    scalar = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), text)
    names = st.one_of(text, st.sampled_from(FIELDS))
    garbage = st.recursive(
        scalar,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)),
        max_leaves=12,
    )
    bad_row = st.dictionaries(st.sampled_from(FIELDS), garbage, min_size=1, max_size=5)
    return st.lists(st.one_of(garbage, bad_row, st.integers(0, 5).map(lambda n: ("good", n))), max_size=8)


def good(number: int, position: int) -> dict[str, Any]:
    return {"table": f"good.t{number}_{position}", "keys": ["id"]}


def mixed(items: list[Any]) -> tuple[list[Any], set[str]]:
    """Rows to write, and the tables that must come through. Names of good rows are out of garbage's reach."""
    written = [good(item[1], i) if isinstance(item, tuple) else item for i, item in enumerate(items)]
    return written, {row["table"] for row, item in zip(written, items, strict=True) if isinstance(item, tuple)}


def survivors(files: dict[str, str | bytes]) -> set[str]:
    with tempfile.TemporaryDirectory() as folder:
        catalog = load(write(Path(folder), files), {})
    for problem in catalog.problems:
        assert problem.code
        assert problem.remedy
        assert len(problem.value) <= 80
        assert "\n" not in str(problem)
    for spec in catalog.tables:
        assert check_table(spec) == ()
        assert from_json(TableSpec, to_json(spec)) == spec
    return {spec.table for spec in catalog.tables}


@given(rows(st.text(st.characters(), max_size=12)))
def test_good_rows_survive_garbage_in_json(items: list[Any]) -> None:
    written, expected = mixed(items)
    assert expected <= survivors({"tables/a.json": json.dumps({"tables": written})})


@given(rows(st.text(max_size=12)))
def test_good_rows_survive_garbage_in_yaml(items: list[Any]) -> None:
    written, expected = mixed(items)
    assert expected <= survivors({"tables/a.yaml": yaml.dump({"tables": written}, Dumper=yaml.CSafeDumper)})


@given(st.lists(st.one_of(st.lists(st.text(max_size=8), min_size=1, max_size=6), st.integers(0, 5)), max_size=8))
def test_good_rows_survive_garbage_in_csv(items: list[Any]) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["table", "keys", "schedule", "mask"])
    expected = set()
    for i, item in enumerate(items):
        row = good(item, i) if isinstance(item, int) else None
        writer.writerow(item if row is None else [row["table"], "id"])
        expected |= {row["table"]} if row else set()
    assert expected <= survivors({"tables/a.csv": file.getvalue().encode("utf-8", "replace")})


@given(st.binary(max_size=200), st.sampled_from(["tables/a.yaml", "tables/a.json", "tables/a.csv", "keys/a.yaml"]))
def test_files_of_any_bytes(content: bytes, name: str) -> None:
    files: dict[str, str | bytes] = {name: content, "tables/z.json": json.dumps({"tables": [good(1, 1)]})}
    assert "good.t1_1" in survivors(files)
