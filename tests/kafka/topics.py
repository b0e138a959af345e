"""Topics of a test's own on a broker, and tables that are read from them."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Observer, Runtime, silent
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.plan.batching import SourceLimits
from tests.harness.lake import Lake
from tests.kafka.broker import Broker


@dataclass
class Topic:
    """A topic and its table `shop.t`; its name is new each time."""

    broker: Broker
    root: Path
    partitions: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}.shop.t")
    runs: int = 0
    limits: SourceLimits = field(default_factory=SourceLimits)

    @property
    def spec(self) -> TableSpec:
        options = {"topic": self.name, "bootstrap_servers": self.broker.address, **self.options}
        return TableSpec(
            table="shop.t", keys=("id",), dialect="debezium", options=options, settle="0s", sweep_limit=1.0
        )

    @property
    def lake(self) -> Lake:
        return Lake(self.root)

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.address})

    def create(self) -> Topic:
        made = NewTopic(self.name, self.partitions, 1, config=dict(self.settings))
        self.admin.create_topics([made])[self.name].result()
        return self

    def delete(self) -> None:
        self.admin.delete_topics([self.name])[self.name].result()

    def send(self, records: Iterable[tuple[Any, Any]], **settings: Any) -> None:
        """Keys and values: bytes as they are, others as JSON, null a tombstone; each key in one partition."""
        producer = Producer({"bootstrap.servers": self.broker.address, "linger.ms": 5, **settings})
        if transactional := "transactional.id" in settings:
            producer.init_transactions()
            producer.begin_transaction()
        for key, value in records:
            producer.produce(self.name, _bytes(value), _bytes({"id": key} if isinstance(key, int) else key),
                             partition=key % self.partitions if isinstance(key, int) else 0)  # fmt: skip
        producer.flush()
        if transactional:
            producer.commit_transaction()

    def outcome(self, options: JobOptions | None = None, observe: Observer = silent) -> JobResult:
        """Of the run of another job."""
        self.runs += 1
        job = replace(self.lake.job([self.spec], options), run_id=f"run {self.runs}")
        runtime = Runtime(storage=Storage(), spark=NoSpark(), environ=os.environ, observe=observe, limits=self.limits)
        found = attempt(TableRun(job=job, spec=self.spec, runtime=runtime), totals_of(job))
        assert isinstance(found, TableOutcome), found
        return found.result

    def run(self, options: JobOptions | None = None) -> JobResult:
        """Of a run that has to succeed, or find nothing to do."""
        found = self.outcome(options)
        assert found.error is None, found.error
        return found

    def rows(self, spec: TableSpec | None = None) -> list[dict[str, Any]]:
        """The source's columns of the replica, by key.

        Args:
            spec: of the table; null: its own.
        """
        found = pa.table(DeltaTable(self.lake.layout(spec or self.spec).replica).scan()).to_pylist()
        kept = [{k: v for k, v in row.items() if not k.startswith(("_gddl", "_dbz"))} for row in found]
        return sorted(kept, key=lambda row: row["id"])

    def files(self) -> dict[str, bytes]:
        """The landing folder's, by their names."""
        folder = Path(self.lake.layout(self.spec).landing)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}

    @property
    def position(self) -> Path:
        return Path(self.lake.roots.lake, "_gddl", "topics", "default", self.name, "position.json")


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()


def event(op: str, row: Mapping[str, Any], place: int, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    source = {"connector": "postgresql", "lsn": place, "sequence": f'["{place}","{place}"]', "ts_ms": place}
    sides = {"before": dict(row), "after": None} if op == "d" else {"before": before, "after": dict(row)}
    return {**sides, "source": source, "op": op}
