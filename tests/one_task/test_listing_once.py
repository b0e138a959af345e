"""What a run lists before it has the claim counts, unless another run came between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Continuous, JobOptions
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.batch.runtime import NoSpark, Runtime, Step
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from tests.harness.lake import Lake, spec_of

SPEC = spec_of()


class Watched(Storage):
    """Counts listings of the landing folder."""

    listings = 0

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:
        self.listings += "/landing/" in folder
        return super().list(folder, after, within)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.load(SPEC)
    made.done(SPEC)
    return made


@dataclass(frozen=True, kw_only=True)
class Interrupted(TableRun):
    """Something happens after it has listed and before it has the claim."""

    before: Callable[[], None] = lambda: None

    def claim(self) -> Claim:
        self.before()
        return super().claim()


def run(lake: Lake, before: Callable[[], None] = lambda: None) -> tuple[TableOutcome, int]:
    """With it, how often the folder was listed."""
    storage, job = Watched(), lake.job([SPEC])
    runtime = Runtime(storage=storage, spark=NoSpark())
    found = attempt(Interrupted(job=job, spec=SPEC, runtime=runtime, before=before), totals_of(job))
    assert isinstance(found, TableOutcome)
    return found, storage.listings


def test_run_lists_the_folder_once(lake: Lake) -> None:
    lake.change(SPEC, 1, [("U", 0, "one")])
    found, listings = run(lake)
    assert (found.result.batches, listings) == (1, 1)
    assert lake.replica(SPEC)[0] == "one"


def test_run_lists_again_after_a_concurrent_run(lake: Lake) -> None:
    lake.change(SPEC, 1, [("U", 0, "one")])
    found, listings = run(lake, lambda: _other(lake))
    assert (found.result.batches, found.result.changes_written, listings) == (1, 1, 2)
    assert lake.replica(SPEC) == {0: "two", 1: "load 1", 2: "load 2"}


def _other(lake: Lake) -> None:
    """Another run takes what waits; then one more file lands."""
    lake.done(SPEC)
    lake.change(SPEC, 2, [("U", 0, "two")])


def test_resumed_batch_finds_its_late_file(lake: Lake) -> None:
    """Though this continuous process looked far back a moment ago."""
    for number in (1, 2):
        lake.change(SPEC, number, [("U", 0, f"v{number}")], day=number)
        lake.done(SPEC)
    runtime = Runtime(storage=Watched(), spark=NoSpark())
    job = lake.job([SPEC], JobOptions(continuous=Continuous()))

    def turn(before: Callable[[], None] = lambda: None) -> JobResult:
        found = attempt(Interrupted(job=job, spec=SPEC, runtime=runtime, before=before), totals_of(job))
        assert isinstance(found, TableOutcome)
        return found.result

    assert turn().status == "skipped"
    lake.change(SPEC, 0, [("I", 7, "late")], day=1)
    die_in_the_middle(lake)
    assert (turn().files, lake.replica(SPEC)[7]) == (1, "late")


def die_in_the_middle(lake: Lake) -> None:
    def die(step: Step) -> None:
        if step.step == "quarantine":
            raise KeyboardInterrupt

    job = lake.job([SPEC], run_id="other")
    run = TableRun(job=job, spec=SPEC, runtime=Runtime(storage=Storage(), spark=NoSpark(), observe=die))
    with pytest.raises(KeyboardInterrupt):
        attempt(run, totals_of(job))
    assert Ledger.open(Storage(), lake.layout(SPEC).state).plan() is not None
