"""What `gddl status` reads of Airflow's database is there, in this release of Airflow."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from airflow.models.dag import DagModel
from sqlalchemy import create_engine, insert
from sqlalchemy.schema import CreateTable

from airflow_gddl.cli.paused import known_dags


@pytest.mark.parametrize("form", ["sqlite:///{}", "sqlite+pysqlite:///{}"])
def test_paused_dags_are_read_from_airflows_own_table(form: str, tmp_path: Path) -> None:
    """By the driver of SQLite, and by SQLAlchemy as of a server."""
    file, table = tmp_path / "airflow.db", DagModel.__table__
    engine = create_engine(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as database:
        database.execute(str(CreateTable(table).compile(engine)))
    needed = {
        column.name: "x" if column.type.python_type is str else 0
        for column in table.columns
        if not column.nullable and column.default is None and column.server_default is None
    }
    with engine.begin() as connection:
        for dag_id, paused in (("gddl.a", True), ("gddl.b", False), ("other", True)):
            connection.execute(insert(table).values(**{**needed, "dag_id": dag_id, "is_paused": paused}))
    environ = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": form.format(file)}
    assert known_dags(environ, {"gddl.a", "gddl.b", "gddl.c"}) == {"gddl.a": True, "gddl.b": False}
