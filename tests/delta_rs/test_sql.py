"""DuckDB works on tables that it is handed, and on nothing else of the machine."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from spark_jobs.rules.sql import connection, query

ROOT = Path(__file__).parents[2]
REACHING_OUT = (
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM read_text('{file}')",
    "COPY (SELECT 1) TO '{file}'",
    "ATTACH '{file}' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET allowed_directories = ['/']",
    "RESET enable_external_access",
)


@pytest.mark.parametrize("statement", REACHING_OUT)
def test_no_statement_reaches_a_file_or_an_extension(statement: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a\nhunter2\n")
    with pytest.raises(duckdb.Error):
        connection().execute(statement.format(file=file))
    assert file.read_text() == "a\nhunter2\n"


def test_the_connection_of_each_thread_is_locked() -> None:
    found: list[str] = []

    def ask() -> None:
        (row,) = query("SELECT current_setting('enable_external_access') AS e", {"t": pa.table({"x": [1]})}).to_pylist()
        found.append(str(row["e"]).lower())

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["false", "false"]


def test_it_is_opened_in_one_place() -> None:
    opening = re.compile(r"\bduckdb\.(connect|sql|query|execute|read_\w+|from_\w+)\(")
    opened = [
        path.relative_to(ROOT).as_posix()
        for folder in ("airflow_gddl", "spark_jobs")
        for path in (ROOT / folder).rglob("*.py")
        if opening.search(path.read_text())
    ]
    assert opened == ["spark_jobs/rules/sql.py"]
