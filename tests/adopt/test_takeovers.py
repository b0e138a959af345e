"""Random sources whose table is taken over in the middle, and adoptions that are killed at each write."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Rebuild, Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from tests.adopt.taking_over import (
    AFTER,
    BEFORE,
    SCHEMA,
    Dying,
    KilledError,
    Landed,
    adopting,
    chance,
    release,
    table_of,
    values,
    without_gddl,
)
from tests.harness.lake import Lake, spec_of

pytestmark = pytest.mark.deep


def verified(lake: Lake, spec: TableSpec) -> None:
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


@pytest.mark.parametrize("by", ["until", "no sequence"])
@pytest.mark.parametrize("seed", range(12))
def test_taken_over_in_the_middle_it_equals_its_source(seed: int, by: str, tmp_path: Path) -> None:
    """The old job has applied some files; the cut is at the last of them or before it, so that files come twice."""
    random, lake = chance(f"{by} {seed}"), Lake(tmp_path)
    source = Landed.of(f"{by} {seed}")
    spec = spec_of(history=random.random() < 0.5)
    applied = random.randrange(len(source.files))
    told = random.randint(0, applied)
    source.land(lake, spec, range(told + 1), BEFORE)
    source.land(lake, spec, range(told + 1, len(source.files)), AFTER)
    schema = pa.schema([field for field in SCHEMA if field.name != "seq"]) if by == "no sequence" else SCHEMA
    partitions = {"partition_by": ["v"]} if random.random() < 0.3 else {}
    if partitions:
        spec = spec_of(history=spec.history, partition_by=("v",))
    write_deltalake(lake.layout(spec).replica, table_of(source.states[applied], schema), **partitions)
    before = set(DeltaTable(lake.layout(spec).replica).file_uris())
    lake.done(spec, adopting())
    assert set(DeltaTable(lake.layout(spec).replica).file_uris()) == before
    verified(lake, spec)
    assert lake.replica(spec) == values(source.states[applied])
    lake.done(spec)
    assert lake.replica(spec) == values(source.states[-1])
    verified(lake, spec)
    lake.done(spec, JobOptions(action=Rebuild()))
    assert lake.replica(spec) == values(source.states[-1])
    assert list(without_gddl(DeltaTable(lake.layout(spec).replica))) == []


def killed_at(lake: Lake, spec: TableSpec, options: JobOptions, number: int, *, after: bool) -> bool:
    """Whether the run died at its write of this number."""
    run = lake.table_run(spec, options)
    storage = Dying(number, after=after)
    run = type(run)(job=run.job, spec=spec, runtime=type(run.runtime)(storage=storage, spark=run.runtime.spark))
    try:
        done = attempt(run, totals_of(run.job))
    except KilledError:
        shutil.rmtree(f"{run.layout.state}/claims", ignore_errors=True)  # the claim of a dead process is taken
        return True
    assert isinstance(done, TableOutcome)
    assert done.result.error is None, done.result.error
    return False


def started(root: Path, **fields: Any) -> tuple[Lake, TableSpec, Landed]:
    lake, spec, source = Lake(root), spec_of(**fields), Landed.of("7")
    source.land(lake, spec, range(5), BEFORE)
    source.land(lake, spec, range(5, len(source.files)), AFTER)
    write_deltalake(lake.layout(spec).replica, table_of(source.states[4]))
    return lake, spec, source


@pytest.mark.parametrize("after", [False, True])
def test_adoption_killed_at_each_write_is_run_again(after: bool, tmp_path: Path) -> None:
    codes: set[str | None] = set()
    for number in range(50):
        lake, spec, source = started(tmp_path / str(number), history=True)
        died = killed_at(lake, spec, adopting(), number, after=after)
        if died:
            between = lake.result(spec)  # a run meanwhile loads nothing, or the adoption is in the ledger
            codes.add(None if between.error is None else between.error.code)
            if between.error is not None:
                lake.done(spec, adopting())
        verified(lake, spec)
        lake.done(spec)
        assert lake.replica(spec) == values(source.states[-1]), number
        verified(lake, spec)
        changes = pa.table(DeltaTable(lake.layout(spec).changes).scan()).to_pylist()
        assert sum(row["_gddl"]["batch_id"] == f"{1:012d}" for row in changes) == len(source.states[4])
        if not died:
            break
    assert 8 < number < 49
    assert codes == {"TABLE_NOT_OURS", "LEDGER_MISSING", None}


@pytest.mark.parametrize("after", [False, True])
def test_the_old_job_goes_on_while_an_adoption_is_broken_off(after: bool, tmp_path: Path) -> None:
    """Until the replica has `_gddl` the old job may write: the adoption begins anew."""
    anew = 0
    for number in range(50):
        lake, spec, source = started(tmp_path / str(number))
        if not killed_at(lake, spec, adopting(), number, after=after):
            break
        path = lake.layout(spec).replica
        if "_gddl" in {field.name for field in DeltaTable(path).schema().fields}:
            continue
        write_deltalake(path, table_of(source.states[5]), mode="overwrite")
        anew += 1
        lake.done(spec, adopting())
        verified(lake, spec)
        assert lake.replica(spec) == values(source.states[5])
        lake.done(spec)
        assert lake.replica(spec) == values(source.states[-1]), number
    assert anew > 5


def test_a_commit_of_the_old_job_beside_the_adoption_stops_it(tmp_path: Path) -> None:
    lake, spec, source = started(tmp_path)

    def write(step: Any) -> None:
        if step.step == "append":
            write_deltalake(lake.layout(spec).replica, table_of(source.states[5]), mode="overwrite")

    found = lake.result(spec, adopting(), observe=write)
    assert found.error is not None
    assert found.error.code == "DELTA_CONFLICT"
    lake.done(spec, adopting())
    lake.done(spec)
    assert lake.replica(spec) == values(source.states[-1])
    verified(lake, spec)


@pytest.mark.parametrize("after", [False, True])
def test_an_adoption_that_is_under_way_is_proved_anew_or_refused(after: bool, tmp_path: Path) -> None:
    """Until the replica has `_gddl` it begins anew; afterwards it can only be ended as it began."""
    codes = set()
    for number in range(50):
        lake, spec, source = started(tmp_path / str(number))
        if not killed_at(lake, spec, adopting(), number, after=after):
            break
        error = lake.result(spec, adopting(source_connection="GDDL_SOURCE_NONE"), environ={}).error
        codes.add(None if error is None else error.code)
        lake.result(spec, adopting())  # it ends, or it was done
        lake.done(spec)
        assert lake.replica(spec) == values(source.states[-1]), number
        verified(lake, spec)
    assert codes == {"SOURCE_CONNECTION_MISSING", "ADOPT_REFUSED"}


@pytest.mark.parametrize("after", [False, True])
def test_release_killed_at_each_write_is_run_again(after: bool, tmp_path: Path) -> None:
    for number in range(60):
        lake, spec, source = started(tmp_path / str(number), history=True)
        lake.done(spec, adopting())
        lake.done(spec)
        died = killed_at(lake, spec, release(), number, after=after)
        if died:
            between = lake.run(spec)  # declined: a log that lacks files
            code = between.result.error and between.result.error.code if isinstance(between, TableOutcome) else None
            assert code in (None, "TABLE_NOT_OURS", "LEDGER_MISSING", "TABLE_DAMAGED")
            again = lake.result(spec, release())
            assert again.error is None or again.error.code == "ADOPT_REFUSED", again.error
        table = DeltaTable(lake.layout(spec).replica)
        assert [field.name for field in table.schema().fields] == SCHEMA.names
        assert lake.replica(spec) == values(source.states[-1]), number
        assert len(list(without_gddl(table))) == len(table.file_uris())
        if not died:
            break
    assert 8 < number < 59
