"""The batches of a rebuild and a reload, without making them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.actions import Plan, Rebuild, Reload
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.plan.planned_batch import BatchCommit, TableState
from spark_jobs.rooms.actions.reload_run import new_plan, shadow_of
from tests.harness.lake import Lake
from tests.harness.landing import write

SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",))
REBUILD = JobOptions(action=Plan(of=Rebuild()), full_listing=True)
RELOAD = JobOptions(action=Plan(of=Reload()), full_listing=True)
FIRST, SECOND = "20240101-000000001.parquet", "20240101-000000002.parquet"


def land(lake: Lake, name: str) -> None:
    write(Path(lake.layout(SPEC).landing), name, pa.table({"Op": ["I"], "seq": [1], "id": [1]}))


def planned(lake: Lake, options: JobOptions = RELOAD) -> JobResult:
    return lake.result(SPEC, options)


def batches(result: JobResult) -> list[tuple[Any, ...]]:
    shown = ("batch", "mode", "resumed", "sweep")
    return [
        (*(batch[name] for name in shown), [Path(path).name for path in batch["files"]])
        for batch in result.details["batches"]
    ]


def files_of(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def test_a_rebuild_reads_no_loaded_file(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(lake, FIRST)
    lake.raising(SPEC)
    assert batches(planned(lake, REBUILD)) == [(2, "refresh", False, False, [])]
    land(lake, SECOND)
    found = batches(planned(lake, REBUILD))
    assert found == [(2, "refresh", False, False, []), (3, "incremental", False, False, [SECOND])]


def test_a_reload_reads_loaded_files_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(lake, FIRST)
    lake.raising(SPEC)
    land(lake, SECOND)
    before = files_of(tmp_path)
    assert batches(planned(lake, JobOptions(action=Plan()))) == [(2, "incremental", False, False, [SECOND])]
    found = planned(lake)
    assert (found.status, batches(found)) == ("succeeded", [(1, "refresh", False, False, [FIRST, SECOND])])
    assert files_of(tmp_path) == before


def test_an_interrupted_reload_has_what_is_left_of_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(lake, FIRST)
    lake.raising(SPEC)
    run, ledger = lake.table_run(SPEC), lake.ledger(SPEC)
    plan = new_plan(run, ledger)
    ledger.write_plan(plan)
    assert batches(planned(lake)) == [(1, "refresh", False, False, [FIRST])]
    assert batches(planned(lake, JobOptions(action=Plan()))) == [(1, "refresh", False, False, [FIRST])]
    fresh = shadow_of(run, plan).ledger()
    for number in (1, 2):  # a first commit, and the one that seals the ledger
        empty = BatchCommit(
            number=number, plan=plan, files=(), state=TableState(batch=number, generation=1, schemas=())
        )
        fresh.commit(empty)
    assert batches(planned(lake)) == [(2, "refresh", True, False, [])]


def test_without_files_nothing_can_be_refreshed(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    found = planned(lake)
    landing = lake.layout(SPEC).landing
    message = (
        f"[NOTHING_TO_REFRESH] s.t: no file below {landing} can be read. Remedy: restore the files; "
        "the tables are unchanged"
    )
    assert found.error is not None
    assert (found.error.code, found.error.message) == ("NOTHING_TO_REFRESH", message)
