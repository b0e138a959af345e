"""Tables of Debezium's events: a full load from the source, and a resync of some rows, under a writer."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Rebuild, ResyncRows, Verify
from airflow_gddl.contract.spec import InitialLoad, JobOptions, TableSpec
from tests.databases.debezium_service import DebeziumService, begin, end
from tests.databases.test_initial_load import AGAIN, LOAD, NAME, done
from tests.harness.lake import Lake
from tests.one_task.postgres import emptied, execute, postgres

SPEC = TableSpec(
    table="s.t", keys=("id",), dialect="debezium", options={"verify_connection": NAME}, settle="0s", sweep_after="0s",
    sweep_limit=1.0, initial_load=InitialLoad(chunk_rows=20, parallel=2),
)  # fmt: skip
VERIFY = JobOptions(action=Verify(settle_seconds=0))
_COLUMNS: dict[str, Callable[[str], Any]] = {
    "id": int, "v": str, "n": str,
    "at": lambda text: text.replace(" ", "T").replace("+00", "Z"),
    "day": lambda text: (datetime.fromisoformat(text) - datetime(1970, 1, 1)).days,  # noqa: DTZ001 - a date
}  # fmt: skip
_SCHEMA = {
    "id": {"type": "int32"}, "v": {"type": "string"}, "n": {"type": "string"},
    "at": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    "day": {"type": "int32", "name": "io.debezium.time.Date"},
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres(settings="wal_level = logical") as engine:
        yield engine


@pytest.fixture
def source(server: sa.Engine) -> Iterator[sa.Engine]:
    engine = emptied(server)
    execute(
        engine, "CREATE TABLE s.t (id int PRIMARY KEY, v text, n numeric, at timestamptz, day date)",
        "INSERT INTO s.t SELECT i, 'v' || i, i / 4.0, timestamptz '2024-01-01Z' + i * interval '1 hour', "
        "date '2024-01-01' + i FROM generate_series(1, 100) i",
    )  # fmt: skip
    begin(engine)
    yield engine
    end(engine)


@pytest.fixture
def service(source: sa.Engine, tmp_path: Path) -> DebeziumService:
    return DebeziumService(source, Path(Lake(tmp_path).layout(SPEC).landing), _COLUMNS, _SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def rows(lake: Lake) -> dict[int, tuple[Any, ...]]:
    found = pa.table(DeltaTable(lake.layout(SPEC).replica).scan()).to_pylist()
    return {row["id"]: (row["v"], Decimal(row["n"]), row["at"], row["day"]) for row in found}


def truth(engine: sa.Engine) -> dict[int, tuple[Any, ...]]:
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT id, v, n, at, day FROM s.t")).all()
    return {row.id: (row.v, row.n, row.at.astimezone(UTC), row.day) for row in found}


def write_some(engine: sa.Engine, chance: random.Random) -> None:
    """A transaction of several changes; one in ten is rolled back."""
    with engine.connect() as connection:
        for _ in range(6):
            statement = chance.choice((
                "INSERT INTO s.t VALUES (:id, :v, :n, now(), '2024-02-29') ON CONFLICT DO NOTHING",
                "UPDATE s.t SET v = :v, n = :n WHERE id = :id", "DELETE FROM s.t WHERE id = :id",
                "UPDATE s.t SET day = day + 1 WHERE id = :id",
            ))  # fmt: skip
            values = {"id": chance.randrange(140), "v": str(chance.random()), "n": chance.randrange(100)}
            connection.execute(sa.text(statement), values)
        if chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()


@contextmanager
def writing(service: DebeziumService, seed: int) -> Iterator[None]:
    """A writer of the database and a service that lags, side by side with what is done."""
    stop = threading.Event()

    def work() -> None:
        chance = random.Random(seed)  # noqa: S311 - repeatable by its seed
        while not stop.is_set():
            write_some(service.engine, chance)
            service.write(delay=chance.randrange(12))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        service.write()


@pytest.mark.parametrize("seed", range(3))
def test_load_under_a_writer_equals_the_source(
    seed: int, source: sa.Engine, service: DebeziumService, lake: Lake
) -> None:
    with writing(service, seed):
        done(lake, source, SPEC)
        done(lake, source, SPEC)
    done(lake, source, SPEC)
    assert rows(lake) == truth(source)
    assert (Path(lake.layout(SPEC).landing) / "LOAD00000005.parquet").is_file()
    assert done(lake, source, SPEC, VERIFY).details["source"]["different"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_second_load_under_a_writer_removes_what_the_source_lacks(
    seed: int, source: sa.Engine, service: DebeziumService, lake: Lake
) -> None:
    with writing(service, seed):
        done(lake, source, SPEC)
    done(lake, source, SPEC)
    execute(source, "DELETE FROM s.t WHERE id % 3 = 0", "UPDATE s.t SET v = 'unseen' WHERE id % 3 = 1")
    service.write(lost=lambda _: True)
    with writing(service, seed + 100):
        done(lake, source, SPEC, AGAIN)
        done(lake, source, SPEC)
    done(lake, source, SPEC)
    assert rows(lake) == truth(source)
    assert done(lake, source, SPEC, VERIFY).details["verdict"] == "equal"


@pytest.mark.parametrize("seed", range(4))
def test_resync_of_what_was_lost_under_a_writer_ends_in_the_source(
    seed: int, source: sa.Engine, service: DebeziumService, lake: Lake
) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable by its seed
    done(lake, source, SPEC, LOAD)
    for _ in range(4):
        write_some(source, chance)
        service.write(lost=lambda _: chance.random() < 0.4)
        done(lake, source, SPEC)
    with writing(service, seed + 100):
        keys = tuple({"id": str(key)} for key in range(0, 140, 7))
        done(lake, source, SPEC, JobOptions(action=ResyncRows(keys=keys)))
        for low in range(0, 140, 35):
            keys = tuple({"id": str(key)} for key in range(low, low + 35))
            done(lake, source, SPEC, JobOptions(action=ResyncRows(keys=keys)))
    done(lake, source, SPEC)
    assert rows(lake) == truth(source)
    assert done(lake, source, SPEC, VERIFY).details["source"]["different"] == 0


def test_repair_is_repeated_while_no_event_comes(source: sa.Engine, service: DebeziumService, lake: Lake) -> None:
    done(lake, source, SPEC)
    execute(source, "UPDATE s.t SET v = 'seen' WHERE id = 1")
    service.write()
    for statement in (
        "DELETE FROM s.t WHERE id = 1", "INSERT INTO s.t VALUES (1, 'a', 1.50, now(), '2024-02-29')",
        "DELETE FROM s.t WHERE id = 1",
    ):  # fmt: skip
        execute(source, statement)
        service.write(lost=lambda _: True)
        done(lake, source, SPEC, JobOptions(action=ResyncRows(keys=({"": "1"}, {"id": "2"}))))
        assert rows(lake) == truth(source), statement
    done(lake, source, SPEC, JobOptions(action=Rebuild()))
    assert rows(lake) == truth(source)


@pytest.mark.parametrize("is_there", [False, True])
def test_order_by_columns_that_give_rows_no_place_is_refused(
    *, is_there: bool, source: sa.Engine, service: DebeziumService, lake: Lake
) -> None:
    spec = replace(SPEC, sequence_by=("place",), options={**SPEC.options, "semantic_types": {}})
    execute(source, "ALTER TABLE s.t ADD place bigint DEFAULT 1", "UPDATE s.t SET n = 0 WHERE id = 1")
    other = replace(service, columns={**_COLUMNS, "place": int}, schema={**_SCHEMA, "place": {"type": "int64"}})
    other.write()
    done(lake, source, replace(spec, initial_load=None))
    if not is_there:
        execute(source, "ALTER TABLE s.t DROP place")
    with pytest.raises(AssertionError, match="RESYNC_ROWS_REFUSED"):
        done(lake, source, spec, JobOptions(action=ResyncRows(keys=({"id": "1"},))))
