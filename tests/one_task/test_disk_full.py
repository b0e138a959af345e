"""A disk that fills up at any write of a run, and has space again afterwards."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage, local
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import run_guarded
from spark_jobs.ledger import claim
from tests.harness.lake import Lake, spec_of

SPEC = spec_of(history=True, delete="soft")
ROWS = {0: "changed", 1: "load 1", 2: "load 2", 9: "new"}


class Disk:
    """Writes into the lake, counted; from number `full_at` on there is no space, until it is null."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lake: str) -> None:
        self.written, self.full_at = 0, None
        real = local.put

        def put(path: str, data: bytes) -> None:
            if path.startswith(lake):
                self.written += 1
                if self.full_at is not None and self.written >= self.full_at:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(path, data)

        monkeypatch.setattr(local, "put", put)

    written: int
    full_at: int | None


def landed(root: Path) -> Lake:
    lake = Lake(root)
    lake.load(SPEC)
    lake.change(SPEC, 1, [("U", 0, "changed"), ("I", 9, "new")])
    return lake


def result_of(lake: Lake, run_id: str) -> JobResult:
    job = lake.job([SPEC], JobOptions(wait_seconds=20.0), run_id=run_id)
    outcome = run_guarded(job, SPEC, Runtime(storage=Storage(), spark=NoSpark()))
    assert isinstance(outcome, TableOutcome)
    return outcome.result


@pytest.mark.wide
def test_every_write_that_finds_no_space_says_so_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "RELEASE_RETRY_SECONDS", 0.02)
    disk = Disk(monkeypatch, str(tmp_path))
    assert result_of(landed(tmp_path / "whole"), "whole").status == "succeeded"
    writes, codes = disk.written, set()
    assert writes > 20
    for number in range(1, writes + 1):
        lake = landed(tmp_path / str(number))
        disk.written, disk.full_at = 0, number
        found = result_of(lake, "full")
        codes.add(found.error.code if found.error is not None else found.status)
        disk.full_at = None
        again = result_of(lake, "again")
        assert again.status in ("succeeded", "skipped"), (number, again.error)
        assert lake.replica(SPEC) == ROWS
    # Records of runs and hints are no part of a run's outcome.
    assert codes == {"DISK_FULL", "succeeded"}
