"""Small tables under a job that goes on: nothing lost, nothing doubled, nobody held up (docs/streaming.md)."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Continuous, DesiredState, JobOptions, JobSpec, TableSpec
from airflow_gddl.runtime.landing.continuous_job import DesiredStateKeeper
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime, SparkLeftOut, utc_now
from spark_jobs.job.job_tables import run_job
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from tests.harness.background_job import BackgroundJob, known_tables
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write_bytes
from tests.harness.waiting import wait_for
from tests.spark.children import job_child

pytestmark = pytest.mark.wide

GOES_ON = JobOptions(continuous=Continuous())


@dataclass
class Source:
    """Tables that get changes, and what their replicas must hold."""

    lake: Lake
    specs: Sequence[TableSpec]
    rows: dict[str, dict[int, str]] = field(default_factory=dict)
    landed: dict[str, int] = field(default_factory=dict)
    number: int = 0

    def load(self) -> None:
        for spec in self.specs:
            self.lake.load(spec)
            self.rows[spec.table] = {key: f"load {key}" for key in range(3)}
            self.landed[spec.table] = 3

    def change(self, *specs: TableSpec) -> None:
        """A file for each of the tables, all when none is named: an update, an insert, every third time a delete."""
        self.number += 1
        for spec in specs or self.specs:
            rows, new = self.rows[spec.table], 10 + self.number
            changes: list[tuple[str, int, str | None]] = [("U", 0, f"v{self.number}"), ("I", new, "new")]
            if self.number % 3 == 0 and new - 1 in rows:
                changes.append(("D", new - 1, None))
                del rows[new - 1]
            rows |= {0: f"v{self.number}", new: "new"}
            self.landed[spec.table] += len(changes)
            self.lake.change(spec, self.number, changes)

    def is_taken(self, *specs: TableSpec) -> bool:
        return all(self._is_taken(spec) for spec in specs or self.specs)

    def _is_taken(self, spec: TableSpec) -> bool:
        ledger = Ledger.open(Storage(), self.lake.layout(spec).state)
        landed = {str(path) for path in Path(self.lake.layout(spec).landing).glob("*.parquet")}
        return landed == set(ledger.all_entries()) and ledger.plan() is None

    def check(self) -> None:
        """Replicas hold what they must, and change tables each change once."""
        for spec in self.specs:
            assert self.lake.replica(spec) == self.rows[spec.table], spec.table
            changes = pa.table(DeltaTable(self.lake.layout(spec).changes).scan())
            assert changes.num_rows == self.landed[spec.table], spec.table


def specs_of(*names: str) -> list[TableSpec]:
    return [spec_of(name, trigger="1s") for name in names]


def runtime() -> Runtime:
    return Runtime(storage=Storage(), spark=SparkLeftOut())


def kept(lake: Lake, specs: Sequence[TableSpec], options: JobOptions = GOES_ON) -> BackgroundJob:
    return BackgroundJob(lake.job(specs, options), runtime())


def scheduled(lake: Lake, specs: Sequence[TableSpec]) -> dict[str, JobResult]:
    outcomes = run_job(lake.job(specs, run_id="scheduled"), runtime(), lambda _: None)
    return {outcome.result.table: outcome.result for outcome in outcomes}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    source = Source(Lake(tmp_path), specs_of("a", "b"))
    source.load()
    return source


def records(lake: Lake, spec: TableSpec) -> list[JobResult]:
    found = sorted(Path(Layout.of(lake.roots, spec).runs).glob("*.json"))
    return [json.loads(path.read_text()) for path in found]


def test_switching_between_scheduled_and_continuous_loses_nothing(source: Source) -> None:
    lake, specs = source.lake, source.specs
    scheduled(lake, specs)
    source.change()
    with kept(lake, specs) as job:
        for _ in range(2):
            job.until(source.is_taken)
            source.check()
            source.change()
        job.until(source.is_taken)
    source.check()
    assert {r.status for r in scheduled(lake, specs).values()} == {"skipped"}
    before = source.landed["s.a"]
    source.change()
    assert {r.rows_read for r in scheduled(lake, specs).values()} == {source.landed["s.a"] - before}
    source.check()


def test_only_turns_with_work_are_recorded(source: Source) -> None:
    spec = source.specs[0]
    with kept(source.lake, [replace(spec, freshness="4s")]) as job:
        job.until(lambda: source.is_taken(spec) and job.results_of(spec.table, "skipped") >= 4)
    assert len(records(source.lake, spec)) == job.results_of(spec.table)
    assert {record["status"] for record in records(source.lake, spec)} == {"succeeded"}


def test_added_row_is_started_and_removed_row_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, (a, b) = known_tables(monkeypatch), specs_of("a", "b")
    source = Source(Lake(tmp_path), [a, b])
    source.load()
    standing = DesiredStateKeeper(source.lake.roots, "pack", lambda: None)
    options = JobOptions(continuous=Continuous(folder=standing.folder))
    with kept(source.lake, [a], options) as job:
        job.until(lambda: source.is_taken(a))
        standing.put(DesiredState(tables=(a, b), tiers=job.job.tiers))
        job.until(source.is_taken)
        standing.put(DesiredState(tables=(b,), tiers=job.job.tiers))
        job.until(lambda: known.count((b.table,)) >= 3)
        source.change()
        job.until(lambda: source.is_taken(b))
        assert not source.is_taken(a)
        standing.put(DesiredState(tables=()))
        job.until(lambda: job.stop.is_asked)
    assert job.stop.why == "no table is left"


def test_failing_table_stops_no_other_and_recovers(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    known_tables(monkeypatch)
    a, b = source.specs
    folder = Path(source.lake.layout(a).landing)
    strange = replace(a, keys=("nothing",))
    standing = DesiredStateKeeper(source.lake.roots, "pack", lambda: None)
    options = JobOptions(continuous=Continuous(folder=standing.folder))
    with kept(source.lake, [strange, b], options) as job:
        job.until(lambda: job.results_of(a.table, "failed") >= 1)
        for _ in range(3):
            source.change(b)
            job.until(lambda: source.is_taken(b))
        failures = job.results_of(a.table, "failed")
        assert failures <= 3
        standing.put(DesiredState(tables=(a, b), tiers=job.job.tiers))
        job.until(lambda: source.is_taken(a))
    assert folder.exists()
    source.check()


def test_unreadable_file_delays_no_table(source: Source) -> None:
    a, b = source.specs
    with kept(source.lake, [a, b]) as job:
        write_bytes(Path(source.lake.layout(a).landing), "20240101-000000001.parquet", b"no parquet")
        source.number = 1
        source.change()
        job.until(source.is_taken)
    source.check()


def test_busy_table_is_retried_silently(source: Source) -> None:
    a, b = source.specs
    with (
        Claim.acquire(Storage(), source.lake.layout(a).state, "maintenance", utc_now),
        kept(source.lake, [a, b]) as job,
    ):
        job.until(lambda: source.is_taken(b))
        source.change(b)
        job.until(lambda: source.is_taken(b))
        assert (job.results_of(a.table), job.results_of(a.table, "failed"), records(source.lake, a)) == (0, 0, [])
    with kept(source.lake, [a, b]) as job:
        job.until(source.is_taken)
    source.check()


def test_concurrent_jobs_duplicate_nothing(source: Source) -> None:
    one, other = (replace(source.lake.job(source.specs, GOES_ON), run_id=name) for name in ("one", "other"))
    with BackgroundJob(one, runtime()) as first, BackgroundJob(other, runtime()):
        for _ in range(3):
            source.change()
            first.until(source.is_taken)
    source.check()


def process_job(source: Source, seconds: float | None = None) -> JobSpec:
    return source.lake.job(source.specs, JobOptions(continuous=Continuous(seconds=seconds)))


def test_stop_finishes_running_tables_and_starts_none(tmp_path: Path) -> None:
    source = Source(Lake(tmp_path), specs_of(*(f"t{n:03d}" for n in range(30))))
    source.load()
    with kept(source.lake, source.specs) as job:
        job.until(lambda: bool(job.results))
        job.stop.ask("enough")
    assert len({result.table for result in job.results}) < len(source.specs)
    assert {result.status for result in job.results} == {"succeeded"}
    with kept(source.lake, source.specs) as job:
        job.until(source.is_taken)
    source.check()


def test_process_stops_on_sigterm(source: Source) -> None:
    """`test_continuous_command` does the same with SIGINT."""
    with job_child(process_job(source)) as child:
        wait_for(source.is_taken)
        source.change()
        wait_for(source.is_taken)
        os.kill(child.pid, signal.SIGTERM)
        ended = child.end(30)
    assert ended.status == 0, ended.err
    assert {json.loads(line)["table"] for line in ended.out.splitlines()} == {"s.a", "s.b"}
    source.check()


def test_process_ends_after_its_duration(source: Source) -> None:
    started = time.monotonic()
    with job_child(process_job(source, seconds=6)) as child:
        ended = child.end(60)
    assert ended.status == 0, ended.err
    assert time.monotonic() - started >= 6
    assert source.is_taken()


def test_kill_and_restart_loses_and_duplicates_nothing(source: Source) -> None:
    chance = random.Random(8)  # noqa: S311 - moments, no secrets
    for _ in range(3):
        with job_child(process_job(source)) as child:
            deadline = time.monotonic() + chance.uniform(1.5, 5)
            while time.monotonic() < deadline:
                source.change()
                time.sleep(chance.uniform(0.1, 0.8))
            os.kill(child.pid, signal.SIGKILL)
    with job_child(process_job(source)) as child:
        source.change()  # else all may be taken before this job is up, and the signal would come too soon
        wait_for(source.is_taken)
        os.kill(child.pid, signal.SIGTERM)
        assert child.end(30).status == 0
    source.check()
