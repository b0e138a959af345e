"""Tables that a continuous job reads from Kafka: from a commit in PostgreSQL, by Debezium, to the row in the replica.

    python benchmarks/topics.py [--scale 0.1] [--tables 2]

The last line of standard output is one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa
from deltalake import DeltaTable
from measuring import WrongResultError, print_figures, say

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import DEFAULT_TIERS, Continuous, JobOptions, JobSpec, Roots, TableSpec
from tests.kafka.broker import Broker, broker
from tests.kafka.connect import Connect, relayed
from tests.one_task.postgres import postgres

_SECONDS, _EVERY, _ROWS, _PATIENCE = 300.0, 2.0, 10_000, 300.0


@dataclass
class Ground:
    """Tables of ten columns in a PostgreSQL, and a job that follows their topics.

    Attributes:
        committed: by table, the key of each row to the moment after its commit.
    """

    root: Path
    source: sa.Engine
    kafka: Broker
    tables: int
    committed: dict[str, dict[int, float]] = field(default_factory=dict)

    @property
    def roots(self) -> Roots:
        return Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))

    @property
    def specs(self) -> list[TableSpec]:
        options = {"topic": "crm.{schema}.{table}", "bootstrap_servers": self.kafka.address}
        return [
            TableSpec(table=f"shop.t{n}", keys=("id",), dialect="debezium", options=options, trigger="1s", settle="0s")
            for n in range(self.tables)
        ]

    def create(self) -> None:
        columns = ", ".join(f"c{n} text" for n in range(9))
        values = ", ".join(f"'value {n} ' || i" for n in range(9))
        with self.source.begin() as connection:
            connection.execute(sa.text("CREATE SCHEMA shop"))
            for spec in self.specs:
                connection.execute(sa.text(f"CREATE TABLE {spec.table} (id int PRIMARY KEY, {columns})"))
                rows = f"SELECT -i, {values} FROM generate_series(1, {_ROWS}) i"  # noqa: S608 - made here
                connection.execute(sa.text(f"INSERT INTO {spec.table} {rows}"))

    def change(self, key: int) -> None:
        """A transaction for each table: a new row, and an update of one that was there."""
        for spec in self.specs:
            with self.source.begin() as connection:
                insert = f"INSERT INTO {spec.table} (id, c0) VALUES (:key, 'new')"  # noqa: S608 - a name made here
                update = f"UPDATE {spec.table} SET c1 = 'changed' WHERE id = :other"  # noqa: S608 - as above
                for statement in (insert, update):
                    connection.execute(sa.text(statement), {"key": key, "other": -(key % _ROWS) - 1})
            self.committed.setdefault(spec.table, {})[key] = time.time()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The job as `gddl` starts it."""
        order = self.root / "order.json"
        options = JobOptions(continuous=Continuous())
        job = JobSpec(run_id="topics", roots=self.roots, tables=tuple(self.specs), tiers=DEFAULT_TIERS, options=options)
        order.write_text(to_json(job), encoding="utf-8")
        command = [sys.executable, "-m", "spark_jobs.main", "--spec", str(order)]
        with (
            (self.root / "job.log").open("a") as log,
            subprocess.Popen(command, stdout=log, stderr=log, process_group=0) as child,
        ):
            try:
                yield
            finally:
                os.killpg(child.pid, signal.SIGKILL)

    def replica(self, spec: TableSpec) -> str:
        return Layout.of(self.roots, spec).replica

    def visible(self, spec: TableSpec) -> Mapping[int, int]:
        """Key to the batch that brought the row."""
        if not Path(self.replica(spec), "_delta_log").exists():
            return {}
        found = pa.table(DeltaTable(self.replica(spec)).scan()).select(["id", "_gddl"]).to_pylist()
        return {row["id"]: int(row["_gddl"]["batch_id"]) for row in found}

    def wait(self, rows: int) -> None:
        deadline = time.monotonic() + _PATIENCE
        while any(len(self.visible(spec)) < rows for spec in self.specs):
            if time.monotonic() > deadline:
                seen = {spec.table: len(self.visible(spec)) for spec in self.specs}
                raise WrongResultError(f"after {_PATIENCE:.0f} s {seen} of {rows} rows: {self.root / 'job.log'}")
            time.sleep(1.0)

    def latencies(self) -> list[float]:
        """Seconds from the commit of each new row to that of the replica's version with its batch."""
        found = []
        for spec in self.specs:
            moments = _moments(Path(self.replica(spec), "_delta_log"))
            batches = self.visible(spec)
            if max(batches.values()) != len(moments):
                raise WrongResultError(f"{spec.table} has {len(moments)} commits of {max(batches.values())} batches")
            found += [moments[batches[key]] - moment for key, moment in self.committed[spec.table].items()]
        return found

    def check(self) -> None:
        """Every row of every table."""
        for spec in self.specs:
            with self.source.connect() as connection:
                found = connection.execute(sa.text(f"SELECT id, c0, c1 FROM {spec.table}"))  # noqa: S608 - a name made here
                wanted = {tuple(row) for row in found}
            rows = pa.table(DeltaTable(self.replica(spec)).scan()).select(["id", "c0", "c1"]).to_pylist()
            if len(rows) != len(wanted) or {tuple(row.values()) for row in rows} != wanted:
                raise WrongResultError(f"{spec.table} differs from its source")


def _moments(log: Path) -> dict[int, float]:
    """Number of a batch, each of which changes the replica, to the moment of its commit."""
    found: dict[int, float] = {}
    for path in sorted(log.glob("*.json")):
        for line in path.read_text().splitlines():
            if (transaction := json.loads(line).get("txn")) is not None:
                found.setdefault(int(transaction["version"]), path.stat().st_mtime)
    return {number: found[version] for number, version in enumerate(sorted(found), start=1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--tables", type=int, default=10)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="gddl-topics-") as folder,
        postgres(settings="wal_level = logical") as source,
        relayed(source) as port,
        broker(Path(folder) / "broker") as kafka,
    ):
        root = Path(folder)
        ground = Ground(root, source, kafka, asked.tables)
        ground.create()
        connect = Connect(root / "connect", kafka, port, {"schema.include.list": "shop", "poll.interval.ms": "100"})
        connect.start()
        try:
            with ground.running():
                ground.wait(_ROWS)
                say(f"{asked.tables} tables of {_ROWS:,} rows are loaded")
                for number in range(1, max(2, round(_SECONDS * asked.scale / _EVERY)) + 1):
                    ground.change(number)
                    time.sleep(_EVERY)
                ground.wait(_ROWS + number)
        finally:
            connect.kill()
        ground.check()
        found = sorted(ground.latencies())
    figures = {
        "tables": asked.tables,
        "commits": len(found),
        "median_seconds": round(statistics.median(found), 2),
        "p95_seconds": round(found[int(len(found) * 0.95)], 2),
        "longest_seconds": round(found[-1], 2),
    }
    print_figures(figures, "commits", "median_seconds")


if __name__ == "__main__":
    main()
