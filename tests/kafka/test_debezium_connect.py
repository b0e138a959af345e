"""PostgreSQL, Debezium, Kafka and jobs under writers, each of them killed in turn: the replica is the source."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import ResyncRows
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Continuous, InitialLoad, JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime, SparkLeftOut
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from tests.harness.background_job import BackgroundJob
from tests.harness.lake import Lake
from tests.harness.waiting import wait_for
from tests.kafka.broker import Broker, broker
from tests.kafka.connect import Connect, relayed
from tests.one_task.postgres import execute, postgres

NAME = "GDDL_SOURCE_CRM"
TABLES = ("shop.items", "shop.lines")
_SCHEMA = """
CREATE SCHEMA shop;
CREATE TABLE shop.items (id int PRIMARY KEY, v text, big text, n numeric(12, 3), at timestamptz, d date, x bytea);
CREATE TABLE shop.lines (a text, b int, n bigint, ok bool, f float8, PRIMARY KEY (a, b));
ALTER TABLE shop.items ALTER COLUMN big SET STORAGE EXTERNAL;
ALTER TABLE shop.items REPLICA IDENTITY FULL;
INSERT INTO shop.items SELECT i, 'v' || i, repeat(md5(i::text), 100), i * 1.125, now(), current_date, '\\x00ff'
  FROM generate_series(1, 300) i;
INSERT INTO shop.lines SELECT 'a' || i % 7, i, i, i % 2 = 0, i / 3.0 FROM generate_series(1, 100) i;
"""
_CHANGES = (
    "INSERT INTO shop.items VALUES (:key, :text, repeat(:text, 300), :key / 8.0, now()) ON CONFLICT DO NOTHING",
    "UPDATE shop.items SET v = :text, n = n + 0.125 WHERE id = :key",
    "UPDATE shop.items SET big = repeat(:text, 500) WHERE id = :key",
    "DELETE FROM shop.items WHERE id = :key",
    "UPDATE shop.items SET id = :other WHERE id = :key",
    "INSERT INTO shop.lines VALUES (:text, :key, :other, true, 0.1) ON CONFLICT DO NOTHING",
    "UPDATE shop.lines SET n = :other, ok = NOT ok, f = NULL WHERE b = :key",
    "UPDATE shop.lines SET b = :other WHERE b = :key",
    "DELETE FROM shop.lines WHERE b = :key",
)


@contextmanager
def written(engine: sa.Engine, seed: int) -> Iterator[None]:
    """Transactions of several changes each, a tenth of them rolled back, in a thread until the block ends."""
    stop, chance = threading.Event(), random.Random(seed)  # noqa: S311 - repeatable by its seed

    def work() -> None:
        while not stop.wait(0.01):
            with suppress(sa.exc.DBAPIError), engine.connect() as connection:  # a key that another one has taken
                for _ in range(chance.randint(1, 8)):
                    values = {"key": chance.randrange(400), "other": chance.randrange(400, 10**6)}
                    values["text"] = f"t{chance.randrange(10**6)}"
                    connection.execute(sa.text(chance.choice(_CHANGES)), values)
                connection.rollback() if chance.random() < 0.1 else connection.commit()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join()


@dataclass
class Pipeline:
    """The whole way from the source to the lake."""

    lake: Lake
    source: sa.Engine
    kafka: Broker
    connect: Connect
    number: int = 0
    killed: list[str] = field(default_factory=list)

    @property
    def specs(self) -> list[TableSpec]:
        # A connector that is killed in its first snapshot takes another, which removes what was deleted between;
        # rows of several partitions are waited for by `sweep_after`.
        options = {"topic": "crm.{schema}.{table}", "bootstrap_servers": self.kafka.address, "verify_connection": NAME}
        keys = {"shop.items": ("id",), "shop.lines": ("a", "b")}
        return [
            TableSpec(
                table=name,
                keys=keys[name],
                dialect="debezium",
                options=options,
                settle="0s",
                sweep_after="0s",
                sweep_limit=1.0,
            )
            for name in TABLES
        ]

    def environ(self) -> dict[str, str]:
        return {**os.environ, NAME: self.source.url.render_as_string(hide_password=False)}

    def run(self, spec: TableSpec, options: JobOptions | None = None) -> JobResult:
        self.number += 1
        job = replace(self.lake.job([spec], options), run_id=f"run {self.number}")
        runtime = Runtime(storage=Storage(), spark=NoSpark(), environ=self.environ())
        found = attempt(TableRun(job=job, spec=spec, runtime=runtime), totals_of(job))
        assert isinstance(found, TableOutcome)
        return found.result

    def kill_a_job(self, chance: random.Random) -> None:
        """At some write of its; earlier than thought at first if the run has not so many."""
        spec, write, status = chance.choice(self.specs), chance.randint(1, 12), 0
        while status == 0:
            self.number += 1
            job, when = replace(self.lake.job([spec]), run_id=f"run {self.number}"), chance.choice(("before", "after"))
            command = [sys.executable, "-m", "tests.databases.killed_load", codec.to_json(job), str(write), when]
            status = subprocess.run(command, env=self.environ(), check=False).returncode
            assert status in (0, -signal.SIGKILL)
            write = max(1, write - 1)
        self.killed.append("job")

    def kill(self, part: Broker | Connect) -> None:
        part.kill()
        part.start()
        self.killed.append(type(part).__name__)

    def is_run_to_the_end(self) -> bool:
        """After another run of each table."""
        for spec in self.specs:
            found = self.run(spec)
            assert found.error is None or not found.error.fatal, found.error
            assert found.in_quarantine in (None, 0)
        return self.differences() == []

    def differences(self) -> list[Any]:
        """Rows of either side, all columns, that the other has not; changes on their way are differences, too."""
        found: list[Any] = []
        for spec in self.specs:
            with self.source.connect() as connection:
                rows = connection.execute(sa.text(f"SELECT * FROM {spec.table}")).mappings()
                there = {str(_plain(dict(row))) for row in rows}
            names = self.columns(spec)
            here = [str(_plain({name: row[name] for name in names})) for row in self.rows(spec)]
            found += [*(there ^ set(here)), *here[len(set(here)) :]]
        return found

    def columns(self, spec: TableSpec) -> list[str]:
        with self.source.connect() as connection:
            return list(connection.execute(sa.text(f"SELECT * FROM {spec.table} LIMIT 0")).keys())

    def rows(self, spec: TableSpec) -> list[dict[str, Any]]:
        path = self.lake.layout(spec).replica
        return pa.table(DeltaTable(path).scan()).to_pylist() if Path(path).exists() else []


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Values that are written alike if they are equal: moments in UTC, bytes."""
    moment = {name: value.astimezone(UTC) for name, value in row.items() if isinstance(value, datetime)}
    return {**row, **moment, **{name: bytes(value) for name, value in row.items() if isinstance(value, memoryview)}}


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with piped(tmp_path, {}) as made:
        yield made


@contextmanager
def piped(tmp_path: Path, settings: Mapping[str, str]) -> Iterator[Pipeline]:
    """A pipeline whose connector has these settings, too."""
    with (
        postgres(settings="wal_level = logical") as source,
        relayed(source) as port,
        broker(tmp_path / "broker") as kafka,
    ):
        execute(source, *filter(str.strip, _SCHEMA.split(";\n")))
        connect = Connect(tmp_path / "connect", kafka, port, {"schema.include.list": "shop", **settings})
        connect.start()
        try:
            yield Pipeline(Lake(tmp_path), source, kafka, connect)
        finally:
            connect.kill()


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2))
def test_replica_equals_the_source_though_each_part_is_killed(seed: int, pipeline: Pipeline) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable by its seed
    kills: list[Callable[[], None]] = [
        lambda: pipeline.kill(pipeline.kafka),
        lambda: pipeline.kill(pipeline.connect),
        lambda: pipeline.kill_a_job(chance),
    ]
    with written(pipeline.source, seed), written(pipeline.source, seed + 100):
        for number in range(9):
            kills[number % 3]()
            for spec in pipeline.specs:
                found = pipeline.run(spec)
                assert found.error is None or not found.error.fatal, found.error
    wait_for(pipeline.is_run_to_the_end, "the tables to be equal")
    assert {"Broker", "Connect", "job"} == set(pipeline.killed)


@pytest.mark.deep
def test_continuous_job_outlives_brokers_and_connectors(pipeline: Pipeline) -> None:
    specs = [replace(spec, trigger="1s") for spec in pipeline.specs]
    job = pipeline.lake.job(specs, JobOptions(continuous=Continuous()), "goes on")
    runtime = Runtime(storage=Storage(), spark=SparkLeftOut(), environ=pipeline.environ())
    with BackgroundJob(job, runtime) as background:
        with written(pipeline.source, 7):
            for part in (pipeline.kafka, pipeline.connect, pipeline.kafka):
                before = background.results_of("shop.items")
                pipeline.kill(part)
                background.until(lambda before=before: background.results_of("shop.items") > before)
        background.until(lambda: pipeline.differences() == [])


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2))
def test_load_and_resync_beside_a_connector_that_loses_deletes(seed: int, tmp_path: Path) -> None:
    """It takes no snapshot, so that the load alone brings the rows from before."""
    with piped(tmp_path, {"snapshot.mode": "no_data", "skipped.operations": "d"}) as pipeline:
        wait_for(lambda: _is_captured(pipeline.source), "the connector's slot")
        with written(pipeline.source, seed):
            for spec in pipeline.specs * 2:
                found = pipeline.run(replace(spec, initial_load=InitialLoad(chunk_rows=40, parallel=2)))
                assert found.error is None, found.error
                wait_for(lambda spec=spec: pipeline.run(spec).rows_read > 0, "changes")
                _resync(pipeline, spec)
        execute(pipeline.source, "DELETE FROM shop.items WHERE id % 3 = 0", "DELETE FROM shop.lines WHERE b % 3 = 0")
        wait_for(lambda: _is_ahead(pipeline), "rows that were deleted")
        for spec in pipeline.specs:
            _resync(pipeline, spec)
        wait_for(pipeline.is_run_to_the_end, "the tables to be equal")


def _is_captured(source: sa.Engine) -> bool:
    with source.connect() as connection:
        return bool(connection.execute(sa.text("SELECT count(*) FROM pg_replication_slots WHERE active")).scalar())


def _resync(pipeline: Pipeline, spec: TableSpec) -> None:
    keys = tuple({key: str(row[key]) for key in spec.keys} for row in pipeline.rows(spec))
    found = pipeline.run(spec, JobOptions(action=ResyncRows(keys=keys)))
    assert found.error is None, found.error
    assert found.details["resync"]["rows"] > 50


def _is_ahead(pipeline: Pipeline) -> bool:
    """Whether a run has left rows that the source has no more."""
    for spec in pipeline.specs:
        pipeline.run(spec)
    return pipeline.differences() != []
