"""Two databases with a table of one name: onboarded, loaded from their files, verified against each of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.metadata.loading import load
from tests.harness.landing import write
from tests.one_task.postgres import postgres
from tests.one_task.test_sources import replica

SETTINGS = """landing: ../landing
lake: ../lake
sources:
  crm: {landing: ../landing-crm, target: '{source}_{schema}.{table}', connection: GDDL_SOURCE_CRM}
  erp: {landing: ../landing-erp, target: '{source}_{schema}.{table}', connection: GDDL_SOURCE_ERP}
"""
KEYS = {"crm": "id", "erp": "number"}


@pytest.fixture(scope="module")
def databases() -> Iterator[dict[str, sa.Engine]]:
    """Each has a `public.orders` of three rows, with keys and values of its own."""
    with postgres() as server:
        with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for name in KEYS:
                connection.execute(sa.text(f"CREATE DATABASE {name}"))
        engines = {n: sa.create_engine(server.url.set(database=n), poolclass=sa.pool.NullPool) for n in KEYS}
        for name, engine in engines.items():
            with engine.begin() as connection:
                connection.execute(sa.text(f"CREATE TABLE orders ({KEYS[name]} int PRIMARY KEY, v text)"))
                connection.execute(sa.text(f"INSERT INTO orders SELECT n, '{name} ' || n FROM generate_series(1, 3) n"))
        yield engines


def test_from_two_databases_to_two_replicas(
    databases: dict[str, sa.Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {f"GDDL_SOURCE_{n.upper()}": e.url.render_as_string(hide_password=False) for n, e in databases.items()}
    metadata = tmp_path / "metadata"
    metadata.mkdir()
    (metadata / "gddl.yaml").write_text(SETTINGS)

    def gddl(*arguments: str) -> str:
        status = invoke(
            [*arguments, "--metadata", str(metadata)], replace(real(), environ={**real().environ, **environ})
        )
        shown = capsys.readouterr()
        assert status == 0, shown
        return shown.out

    written = []
    for _ in range(2):  # a second time nothing changes
        for name in KEYS:
            gddl("onboard", name, "--connection", f"GDDL_SOURCE_{name.upper()}", "--schema", "public", "--write")
        written.append({path: path.read_bytes() for path in metadata.rglob("*") if path.is_file()})
    assert written[0] == written[1]
    catalog = load(metadata, environ)
    assert [str(problem) for problem in catalog.problems] == []
    found = {spec.table: (spec.keys, spec.landing) for spec in catalog.tables}
    assert found == {f"{n}_public.orders": ((KEYS[n],), f"{tmp_path}/landing-{n}") for n in KEYS}
    assert "crm:public.orders" in (metadata / "keys" / "crm.yaml").read_text()
    for name, engine in databases.items():
        with engine.connect() as connection:
            rows = connection.execute(sa.text(f"SELECT {KEYS[name]}, v FROM orders ORDER BY 1")).all()
        columns = {KEYS[name]: pa.array([row[0] for row in rows], pa.int32()), "v": [row[1] for row in rows]}
        write(tmp_path / f"landing-{name}" / "public" / "orders", "LOAD00000001.parquet", pa.table(columns))
    gddl("run", "--json")
    verdicts = [json.loads(line) for line in gddl("verify", "--settle", "0", "--json").splitlines()]
    compared = {one["table"]: one["details"]["source"]["rows"] for one in verdicts}
    assert compared == {f"{name}_public.orders": 3 for name in KEYS}
    for name, key in KEYS.items():
        assert replica(tmp_path, f"{name}_public.orders", key) == {n: f"{name} {n}" for n in (1, 2, 3)}
