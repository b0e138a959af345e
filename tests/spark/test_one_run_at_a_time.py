"""Several jobs at once on one table: one works, the others stop or wait (design, rule 13)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from airflow_gddl.contract import codec
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Step
from tests.conftest import LocalPort
from tests.harness.lake import Lake, on_spark
from tests.oracle import replay
from tests.spark.children import Ended, job_child
from tests.spark.crash_tables import RUNS, TYPES, spec_of
from tests.spark.table_lines import by_engine, by_oracle, differences

BUSY = 75
PATIENCE = 200
SPEC = spec_of("contested")


@dataclass(frozen=True)
class Played:
    lake: Lake
    winner: JobResult
    loser: Ended
    waiting: JobResult


@dataclass
class Gate:
    """Stops a run that has the table, at its first plan, until it is opened."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def __call__(self, reported: Step) -> None:
        if reported.step == "plan":
            self.reached.set()
            assert self.opened.wait(PATIENCE)


class Watched(Storage):
    """Tells that the holder of a claim was looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = threading.Event()

    def read(self, path: str, most: int | None = None) -> bytes:
        data = super().read(path, most)
        if "/claims/" in path:
            self.seen.set()
        return data


@contextmanager
def held(lake: Lake) -> Iterator[tuple[Future[JobResult], ThreadPoolExecutor]]:
    """A run that has the table until the block ends, and threads for other runs."""
    gate = Gate()
    with ThreadPoolExecutor(2) as pool:
        try:
            job = lake.job([SPEC], run_id="winner")
            winner = pool.submit(lambda: lake.results(LocalPort("many"), job, gate)[SPEC.table])
            while not gate.reached.wait(0.1):
                assert not winner.done(), winner.result()
            yield winner, pool
        finally:
            gate.opened.set()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """While one job has the table, another starts, and a third, which may wait."""
    lake = Lake(tmp_path_factory.mktemp("rivals"))
    lake.land(SPEC, RUNS[0], TYPES)
    port, storage = LocalPort("many"), Watched()
    port.runtime = replace(port.runtime, storage=storage)
    with held(lake) as (winner, pool):
        with job_child(on_spark(lake.job([SPEC], run_id="loser"))) as child:
            loser = child.end()
        patient = lake.job([SPEC], JobOptions(wait_seconds=PATIENCE), run_id="waiting")
        waiting = pool.submit(lambda: lake.results(port, patient)[SPEC.table])
        assert storage.seen.wait(PATIENCE)
        lake.land(SPEC, RUNS[1], TYPES)
    return Played(lake, winner.result(), loser, waiting.result())


def result_of(ended: Ended) -> JobResult:
    lines = ended.out.splitlines()
    assert len(lines) == 1, ended
    return codec.decode(JobResult, json.loads(lines[0]))


def test_concurrent_run_fails_with_table_busy(played: Played) -> None:
    assert played.loser.status == BUSY, played.loser
    winner, loser = played.winner, result_of(played.loser)
    assert (winner.status, loser.status) == ("succeeded", "failed")
    assert winner.rows_read > 0
    assert loser.error is not None
    assert loser.error.code == "TABLE_BUSY"
    assert winner.run_id in loser.error.message
    assert (loser.batches, loser.rows_read) == (0, 0)


def test_waiting_run_succeeds(played: Played) -> None:
    """The files that came last are worked off by whoever saw them first, once."""
    assert played.waiting.status == "succeeded", played.waiting
    rows = sum(len(file.rows) for run in RUNS for file in run.files)
    assert played.winner.rows_read + played.waiting.rows_read == rows


def test_tables_match_the_oracle(played: Played) -> None:
    wanted = by_oracle(replay(SPEC, RUNS), SPEC)
    assert differences(wanted, by_engine(played.lake.layout(SPEC))) == []
