"""A PostgreSQL with logical replication, and tables of it that jobs load and follow by Debezium's engine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract.actions import LoadFromSource, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import InitialLoad, JobOptions, TableSpec
from tests.databases.test_initial_load import NAME, run
from tests.harness.lake import Lake
from tests.harness.repeated import Repeated
from tests.one_task.postgres import emptied, execute

CAPTURE = {"connector": "postgresql", "properties": {"slot.name": "gddl", "publication.name": "gddl"}}
SPEC = TableSpec(
    table="s.t", keys=("id",), dialect="debezium", options={"verify_connection": NAME, "capture": CAPTURE}, settle="0s",
    sweep_after="0s", sweep_limit=1.0, initial_load=InitialLoad(),
)  # fmt: skip
VERIFY = JobOptions(action=Verify())
LOAD_AGAIN = JobOptions(action=LoadFromSource(again=True))
PUBLISHED = "CREATE PUBLICATION gddl FOR TABLES IN SCHEMA s WITH (publish_via_partition_root = true)"


def prepared(server: sa.Engine, *statements: str) -> None:
    """An empty schema `s`, no slot, and the publication `gddl` of the schema."""
    end(server)
    execute(emptied(server), "DROP PUBLICATION IF EXISTS gddl", PUBLISHED)
    if statements:
        execute(server, *statements)


def end(server: sa.Engine) -> None:
    drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'gddl'"
    execute(server, drop)


def rows_of(engine: sa.Engine, table: str = "s.t") -> list[dict[str, Any]]:
    with engine.connect() as connection:
        found = connection.execute(sa.text(f"SELECT * FROM {table}"))
        return sorted((dict(row._mapping) for row in found), key=str)


def replica(lake: Lake, spec: TableSpec = SPEC) -> list[dict[str, Any]]:
    rows = pa.table(DeltaTable(lake.layout(spec).replica).scan()).to_pylist()
    kept = [{k: v for k, v in row.items() if not k.startswith(("_gddl", "_dbz"))} for row in rows]
    return sorted(kept, key=str)


def result_of(
    lake: Lake, engine: sa.Engine, number: object, spec: TableSpec = SPEC, options: JobOptions | None = None
) -> JobResult:
    """A run of another job: one reads the log once."""
    return run(lake, engine, spec, job=replace(lake.job([spec], options), run_id=f"run {number}"))


def again(
    lake: Lake, engine: sa.Engine, number: object, spec: TableSpec = SPEC, options: JobOptions | None = None
) -> JobResult:
    """The same, which has to succeed."""
    found = result_of(lake, engine, number, spec, options)
    assert found.error is None, found.error
    return found


def refused(lake: Lake, engine: sa.Engine, number: object, spec: TableSpec = SPEC) -> tuple[str, str]:
    """Code and message of a run that has to fail."""
    found = result_of(lake, engine, number, spec)
    assert found.error is not None
    return found.error.code, found.error.message


def change_some(engine: sa.Engine, chance: random.Random, count: int = 10) -> None:
    """Some transactions of several changes each; one in ten is rolled back."""
    with engine.connect() as connection:
        for _ in range(count):
            key, other, value = chance.randrange(300), chance.randrange(300, 10**6), str(chance.random())
            statement = chance.choice((
                "INSERT INTO s.t VALUES (:id, :v) ON CONFLICT DO NOTHING", "UPDATE s.t SET v = :v WHERE id = :id",
                "DELETE FROM s.t WHERE id = :id", "UPDATE s.t SET id = :other WHERE id = :id",
            ))  # fmt: skip
            connection.execute(sa.text(statement), {"id": key, "v": value, "other": other})
        if chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()


@dataclass
class Writer(Repeated):
    """Changes the table; `with Writer(...)`."""

    engine: sa.Engine
    seed: int

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - repeatable by its seed

    def once(self) -> None:
        with suppress(sa.exc.DBAPIError):  # a deadlock, or a key that the other writer has taken
            change_some(self.engine, self.chance)


@contextmanager
def unflushed(engine: sa.Engine) -> Iterator[None]:
    """A row with key 1000 whose transaction is written to the log and not flushed, so that no slot has it yet."""
    written = "SELECT pg_current_wal_lsn() > CAST(:at AS pg_lsn)"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for setting in ("wal_writer_flush_after = '2GB'", "wal_writer_delay = '10s'"):
            connection.execute(sa.text(f"ALTER SYSTEM SET {setting}"))
        connection.execute(sa.text("SELECT pg_reload_conf()"))
        connection.execute(sa.text("SET synchronous_commit = off"))
        connection.execute(sa.text("INSERT INTO s.t VALUES (1000, 'x')"))
        at = connection.execute(sa.text("SELECT CAST(pg_current_wal_insert_lsn() AS text)")).scalar()
        while not connection.execute(sa.text(written), {"at": at}).scalar():
            connection.execute(sa.text("UPDATE s.t SET v = repeat('y', 500) WHERE id < 200"))
        yield
        connection.execute(sa.text("ALTER SYSTEM RESET ALL"))
        connection.execute(sa.text("SELECT pg_reload_conf()"))
