"""A table in tasks of one job: of two at once one works, and both answer with what it did."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import result_name
from airflow_gddl.contract.result import MainCounts, RunWarning
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime, utc_now
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import Declined, TableOutcome, TaskOutcome
from spark_jobs.job.spread_spark import SparkSpread, TaskResultStore, _watched, once
from spark_jobs.job.stop import refused
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.ledger.claim import Claim
from tests.harness.lake import Lake, spec_of

SPEC = spec_of()


def landed(tmp_path: Path) -> tuple[Lake, JobSpec]:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    return lake, replace(lake.job([SPEC], run_id="this-job"), tables=())


def status(found: TaskOutcome) -> tuple[str, str | None]:
    assert isinstance(found, TableOutcome)
    return found.result.status, found.result.error.code if found.result.error else None


def test_retried_task_returns_the_stored_result(tmp_path: Path) -> None:
    """Not with `skipped`, which is all that it finds itself."""
    _, job = landed(tmp_path)
    first = once(job, SPEC)
    assert status(first) == ("succeeded", None)
    assert once(job, SPEC) == first


def test_second_task_waits_for_the_first(tmp_path: Path) -> None:
    lake, job = landed(tmp_path)
    state = lake.layout(SPEC).state
    answers: list[TaskOutcome] = []
    with Claim.acquire(Storage(), state, job.run_id, utc_now):
        late = threading.Thread(target=lambda: answers.append(once(job, SPEC)))
        late.start()
        late.join(2.5)
        assert late.is_alive(), "it did not wait for the task that holds the table"
    late.join(30)
    assert [status(a) for a in answers] == [("succeeded", None)]


def test_table_of_another_job_is_busy(tmp_path: Path) -> None:
    lake, job = landed(tmp_path)
    with Claim.acquire(Storage(), lake.layout(SPEC).state, "another-job", utc_now):
        assert status(once(job, SPEC)) == ("failed", "TABLE_BUSY")


def test_only_results_of_expected_tables_are_read(tmp_path: Path) -> None:
    """An object that somebody puts among them is neither run nor believed."""
    _, job = landed(tmp_path)
    once(job, SPEC)
    store = TaskResultStore.of(job, Storage())
    (mine,) = Path(store.folder).glob("*.json")
    planted = Path(tmp_path, "code-ran")
    (mine.parent / "0.pickle").write_bytes(f"cposix\nsystem\n(S'touch {planted}'\ntR.".encode())
    (mine.parent / result_name("s.other")).write_bytes(mine.read_bytes())
    assert [status(found) for found in store.all([SPEC, spec_of("other")])] == [("succeeded", None)]
    mine.write_bytes((mine.parent / "0.pickle").read_bytes())
    assert store.all([SPEC]) == []
    assert status(once(job, SPEC)) == ("skipped", None)
    assert not planted.exists()
    store.clear([SPEC, spec_of("other")])
    assert [file.name for file in mine.parent.iterdir()] == ["0.pickle"]


def test_declined_table_keeps_its_reason_and_totals(tmp_path: Path) -> None:
    _, job = landed(tmp_path)
    totals = totals_of(job)
    totals.warn([RunWarning(code="SEQUENCE_TIE", message="m", count=2, sample=("7", 8))])
    totals.main = MainCounts(inserted=3)
    totals.schema_changes.append("added v")
    declined = Declined(SPEC, "it has deletion vectors", totals)
    store = TaskResultStore.of(job, Storage())
    store.put(declined)
    assert store.get(SPEC) == declined


def test_clearing_leaves_what_tasks_of_other_tables_write(tmp_path: Path) -> None:
    """In a continuous job other tables are at work: a result that is deleted while it is renamed fails its task."""
    lake, job = landed(tmp_path)
    other = spec_of("other")
    lake.load(other)
    for spec in (SPEC, other):
        once(job, spec)
    store = TaskResultStore.of(job, Storage())
    (folder,) = tmp_path.glob("lake/_gddl/jobs/*")
    for name in (result_name(SPEC.table), result_name(other.table)):
        (folder / f".{name}.begun-2.5f2a.tmp").write_bytes(b"")
    before = {file.name for file in folder.iterdir()}
    store.clear([SPEC])
    left = {file.name for file in folder.iterdir()}
    assert left == {name for name in before if result_name(other.table) in name}
    assert store.tries(other) == 1
    assert store.get(other) is not None


def test_a_result_that_can_t_be_stored_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second try would find the files loaded, and say `skipped`."""
    _, job = landed(tmp_path)

    def refuse(_: object, __: object) -> None:
        raise FileNotFoundError("deleted meanwhile")

    monkeypatch.setattr(TaskResultStore, "put", refuse)
    assert status(once(job, SPEC)) == ("succeeded", None)


@pytest.mark.parametrize("limit", ["late", "hungry"])
def test_a_stopped_table_reports_what_it_had_committed(tmp_path: Path, limit: str) -> None:
    _, job = landed(tmp_path)
    run, totals = TableRun(job=job, spec=SPEC, runtime=Runtime(storage=Storage(), spark=NoSpark())), totals_of(job)
    attempt(run, totals)
    store = TaskResultStore.of(job, Storage())
    getattr(_watched(run, totals, store), limit)()
    found = store.get(SPEC)
    if isinstance(found, TableOutcome):
        assert status(found) == ("failed", "TABLE_TIMEOUT")
        assert (found.result.batches, found.result.rows_read) == (1, 3)
        records = [record for record in Path(run.layout.runs).rglob("*.json") if "TABLE_TIMEOUT" in record.read_text()]
        assert len(records) == 1
    else:
        assert found is not None
        assert (found.totals.batches, found.totals.rows_read) == (1, 3)
    assert isinstance(found, TableOutcome) == (limit == "late")


def test_a_table_whose_task_ended_with_another_s_may_start_again(tmp_path: Path) -> None:
    _, job = landed(tmp_path)
    store, twice, done = TaskResultStore.of(job, Storage()), spec_of("twice"), spec_of("done")
    for spec, number in ((SPEC, 1), (twice, 1), (twice, 2), (done, 1)):
        store.begin(spec, number)
    store.put(Declined(done, "", totals_of(job)))
    store.forget_single_starts([SPEC, twice, done])
    assert [store.tries(spec) for spec in (SPEC, twice, done)] == [0, 2, 1]


class Rounds(SparkSpread):
    """Spark jobs that fail; each gives the first table its outcome if it `settles`."""

    settles = True
    count = 0

    def _round(
        self, job: JobSpec, _session: Any, _results: TaskResultStore, unanswered: dict[str, TableSpec], _: Any
    ) -> Generator[TaskOutcome, None, GddlError | None]:
        self.count += 1
        if self.settles:
            name = next(iter(unanswered))
            yield refused(job, unanswered.pop(name), RetriableError("TABLE_TIMEOUT", "too late"))
        return RetriableError("WORKER_DIED", "its task died")


@pytest.mark.parametrize(("settles", "rounds", "code"), [(True, 40, "TABLE_TIMEOUT"), (False, 20, "WORKER_DIED")])
def test_failed_spark_jobs_are_repeated_while_tables_get_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settles: bool, rounds: int, code: str
) -> None:
    monkeypatch.setattr("spark_jobs.job.spread_spark.is_this_python", lambda _: True)
    monkeypatch.setattr(NoSpark, "for_table", lambda *_: None)
    _, job = landed(tmp_path)
    specs = [spec_of(f"t{n}") for n in range(40)]
    spread = Rounds(NoSpark(), Storage())
    spread.settles = settles
    found = list(spread._spread(job, specs, dict.fromkeys((spec.table for spec in specs), 1)))
    assert [status(one) for one in found] == [("failed", code)] * 40
    assert spread.count == rounds
