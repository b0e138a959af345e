"""Phrases of the description: each names tests that exist, and at least one of them is played with each change."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.unit.pages import section

ROOT = Path(__file__).parents[2]
PAGE = (Path(__file__).parent / "promises.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")][1:]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
QUOTATION = (
    "The data pipeline runs on Spark through PySpark",
    "a DAG factory reads table metadata (size tier, priority, primary keys, schedule) from S3 or local files",
    "and generates per-table sensor, initial-load and incremental-load tasks that submit PySpark jobs",
    "performing the Auto-Loader-style ingest and Delta MERGE",
    "drop into an MWAA/Airflow dags folder",
    "add a metadata row to onboard a table",
    "trigger reruns from the Airflow UI",
    "with apache-airflow-providers-databricks and apache-airflow-providers-amazon",
)


def test_the_phrases_are_the_whole_description() -> None:
    phrases = " ".join(row[0].strip() for row in ROWS).replace("`", "").lower()
    assert phrases == " ".join(QUOTATION).lower()


def test_the_page_says_what_each_phrase_means() -> None:
    lines = section("trust.md", "What the description promises").splitlines()
    told = [line.strip("|").split(" | ")[0] for line in lines]
    assert [row[0] for row in ROWS] == [phrase for phrase in told if phrase.startswith(" ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_each_phrase_names_tests_that_are_played(row: list[str]) -> None:
    named = NAMED.findall(row[1])
    assert len(named) == row[1].count("::") > 0
    marks = []
    for file, function in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
        assert len(found) == 1, f"{file}::{function}"
        marks.append(" ".join(map(ast.unparse, found[0].decorator_list)))
    assert not all(re.search(r"mark\.(deep|skip\w*)\b", text) for text in marks)
