"""Tables that get a file a batch: small files are joined in passing, and neither rows nor readers notice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime, Step
from spark_jobs.batch.table_run import TableRun
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.tables import small_files
from tests.harness.lake import Lake, spec_of

MANY = 8
SPEC = spec_of()
KEYLESS = TableSpec(table="s.log", keys=(), sequence_by=("seq",))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(small_files, "MANY", MANY)
    return Lake(tmp_path)


def run_batches(lake: Lake, spec: TableSpec, numbers: range) -> None:
    for number in numbers:
        lake.change(spec, number, [("I", 1000 + number, f"v{number}")])
        assert lake.done(spec).batches == 1


def files(path: str) -> int:
    return len(DeltaTable(path).file_uris())


def actions(path: str) -> Iterator[tuple[int, str, bool]]:
    """Version, kind and `dataChange` of what commits did with files."""
    for commit in sorted(Path(path, "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            for kind, action in json.loads(line).items():
                if kind in ("add", "remove"):
                    yield int(commit.stem), kind, action["dataChange"]


def rearranged(path: str) -> list[int]:
    """Versions that hold the same rows in other files, as who follows the table's changes sees them."""
    kinds: dict[int, set[bool]] = {}
    for version, _, changes in actions(path):
        kinds.setdefault(version, set()).add(changes)
    assert all(len(seen) == 1 for seen in kinds.values())
    return [version for version, seen in kinds.items() if seen == {False}]


def test_change_table_keeps_few_small_files(lake: Lake) -> None:
    lake.load(SPEC)
    assert lake.done(SPEC).mode == "initial"
    for number in range(1, 30):
        run_batches(lake, SPEC, range(number, number + 1))
        assert files(lake.layout(SPEC).changes) <= MANY
    assert len(rearranged(lake.layout(SPEC).changes)) == 4
    changes = pa.table(DeltaTable(lake.layout(SPEC).changes).scan())
    assert sorted(changes["id"].to_pylist()) == [0, 1, 2, *range(1001, 1030)]
    assert lake.replica(SPEC) == {0: "load 0", 1: "load 1", 2: "load 2"} | {1000 + n: f"v{n}" for n in range(1, 30)}
    assert lake.done(SPEC, JobOptions(action=Verify())).details["buckets_different"] == 0


def test_replica_without_keys_keeps_few_small_files(lake: Lake) -> None:
    run_batches(lake, KEYLESS, range(1, 20))
    for path in (lake.layout(KEYLESS).changes, lake.layout(KEYLESS).replica):
        assert files(path) <= MANY
        assert rearranged(path)
        assert pa.table(DeltaTable(path).scan()).num_rows == 19


def test_resumed_batch_compacts_nothing(lake: Lake) -> None:
    """It may have appended already, and finds its rows by the file that it added."""
    run_batches(lake, SPEC, range(1, MANY + 1))
    lake.change(SPEC, 99, [("U", 1001, "after")])

    def die(step: Step) -> None:
        if step.step == "quarantine":
            raise KeyboardInterrupt

    job = lake.job([SPEC])
    run = TableRun(job=job, spec=SPEC, runtime=Runtime(storage=Storage(), spark=NoSpark(), observe=die))
    with pytest.raises(KeyboardInterrupt):
        attempt(run, totals_of(job))
    assert lake.done(SPEC).batches == 1
    assert rearranged(lake.layout(SPEC).changes) == []
    assert lake.replica(SPEC)[1001] == "after"
    run_batches(lake, SPEC, range(100, 101))
    assert len(rearranged(lake.layout(SPEC).changes)) == 1
    assert len(lake.replica(SPEC)) == MANY + 1


def test_large_files_are_not_compacted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_files, "FULL", 100)
    run_batches(lake, replace(SPEC, table="s.large"), range(1, 2 * MANY))
    layout = lake.layout(replace(SPEC, table="s.large"))
    assert (files(layout.changes), rearranged(layout.changes)) == (2 * MANY - 1, [])
