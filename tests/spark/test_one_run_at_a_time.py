"""Several jobs at once on one table: one works, the others stop or wait (design, rule 13)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_gddl.contract import codec
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from tests.oracle import replay
from tests.spark.children import Ended, job_child
from tests.spark.crash_tables import RUNS, TYPES, spec_of
from tests.spark.lake import Lake, on_spark
from tests.spark.table_lines import by_engine, by_oracle, differences

BUSY = 75
SPEC = spec_of("contested")


@dataclass(frozen=True)
class Played:
    lake: Lake
    rivals: Sequence[Ended]
    waiting: Ended


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Two jobs start together, a third, which may wait, once one of them has the table."""
    lake = Lake(tmp_path_factory.mktemp("rivals"))
    for run in RUNS[:1]:
        lake.land(SPEC, run, TYPES)
    with ExitStack() as group:
        rivals = [group.enter_context(job_child(on_spark(lake.job([SPEC], run_id=f"rival-{n}")))) for n in range(2)]
        _await_claim(lake)
        patient = JobOptions(wait_seconds=200)
        waiting = group.enter_context(job_child(on_spark(lake.job([SPEC], patient, run_id="waiting"))))
        lake.land(SPEC, RUNS[1], TYPES)
        return Played(lake, [child.end() for child in rivals], waiting.end())


def _await_claim(lake: Lake) -> None:
    claims = Path(lake.layout(SPEC).state, "claims")
    deadline = time.monotonic() + 60
    while not list(claims.glob("*.json")):
        assert time.monotonic() < deadline, "no job has claimed the table"
        time.sleep(0.02)


def result_of(ended: Ended) -> JobResult:
    lines = ended.out.splitlines()
    assert len(lines) == 1, ended
    return codec.decode(JobResult, json.loads(lines[0]))


def test_concurrent_run_fails_with_table_busy(played: Played) -> None:
    assert sorted(ended.status for ended in played.rivals) == [0, BUSY], played.rivals
    by_status: Mapping[str, JobResult] = {r.status: r for r in map(result_of, played.rivals)}
    winner, loser = by_status["succeeded"], by_status["failed"]
    assert winner.rows_read > 0
    assert loser.error is not None
    assert loser.error.code == "TABLE_BUSY"
    assert winner.run_id in loser.error.message
    assert (loser.batches, loser.rows_read) == (0, 0)


def test_waiting_run_succeeds(played: Played) -> None:
    """The files that came last are worked off by whoever saw them first, once."""
    assert played.waiting.status == 0, played.waiting
    rows = sum(len(file.rows) for run in RUNS for file in run.files)
    done = [result_of(ended) for ended in (*played.rivals, played.waiting)]
    assert sum(result.rows_read for result in done) == rows


def test_tables_match_the_oracle(played: Played) -> None:
    wanted = by_oracle(replay(SPEC, RUNS), SPEC)
    assert differences(wanted, by_engine(played.lake.layout(SPEC))) == []
