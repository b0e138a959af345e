"""`gddl adopt --beside`: a copy that ours loads files into, compared with the other job's table until it takes over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import LandingRetention
from airflow_gddl.reporting.results import LoadedTables
from airflow_gddl.runtime.state.table_status import attention_of
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime, silent
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.job_tables import run_job
from spark_jobs.job.spread_local import NoSpark
from spark_jobs.job.table_job import attempt, totals_of
from tests.adopt.taking_over import AFTER, BEFORE, Landed, adopting, compare, release, table_of, values
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write


@dataclass
class Shadowed:
    """A table that another job keeps: it has loaded the load and four files, which are before the cut."""

    lake: Lake
    spec: TableSpec
    source: Landed

    @classmethod
    def at(cls, root: Path, seed: str = "7", **fields: Any) -> Shadowed:
        made = cls(Lake(root), spec_of(**fields), Landed.of(seed))
        made.source.land(made.lake, made.spec, range(5), BEFORE)
        made.other_job_loads(4)
        return made

    @property
    def beside(self) -> Layout:
        return self.lake.layout(self.spec).beside(self.lake.roots, self.spec)

    def land(self, *numbers: int) -> None:
        self.source.land(self.lake, self.spec, numbers, AFTER)

    def other_job_loads(self, number: int) -> None:
        """The other job brings its table to the state of a file."""
        self.other_job_writes(self.source.states[number])

    def other_job_writes(self, rows: Any) -> None:
        write_deltalake(self.lake.layout(self.spec).replica, table_of(rows), mode="overwrite")

    def theirs(self) -> dict[int, str]:
        return self.lake.replica(self.spec)

    def ours(self) -> dict[int, str]:
        return {row["id"]: row["v"] for row in self.lake.rows(self.beside.replica)}

    def ours_by_file(self, number: int) -> dict[int, str]:
        """Rows that one change file makes of none."""
        rows: dict[int, str] = {}
        for line in self.source.files[number].to_pylist():
            rows = {key: v for key, v in rows.items() if key != line["id"]}
            rows |= {} if line["Op"] == "D" else {line["id"]: line["v"]}
        return rows

    def done(self, options: JobOptions | None = None) -> JobResult:
        return self.lake.done(self.spec, options)

    def code(self, options: JobOptions | None = None) -> str:
        error = self.lake.result(self.spec, options).error
        assert error is not None
        return error.code

    def compared(self) -> dict[str, Any]:
        return dict(self.lake.result(self.spec, compare()).details["compare"])


@pytest.fixture
def table(tmp_path: Path) -> Shadowed:
    return Shadowed.at(tmp_path)


def test_runs_load_into_the_copy_and_say_so(table: Shadowed) -> None:
    told = table.done(adopting(beside=True, dry_run=True)).details["adopt"]
    assert (told["beside"], told["copied_files"]) == (table.beside.replica, 1)
    assert told["copied_bytes"] > 0
    assert not Path(table.beside.replica).exists()
    done = table.done(adopting(beside=True))
    assert done.is_beside
    version = DeltaTable(table.lake.layout(table.spec).replica).version()
    assert table.ours() == table.theirs()
    table.land(5, 6)
    ran = table.done()
    assert (ran.files, ran.is_beside) == (2, True)
    assert attention_of(ran, 0.0, 1.0) == ("ADOPT_BESIDE",)
    assert table.ours() == values(table.source.states[6])
    assert table.theirs() == values(table.source.states[4])
    assert table.done(JobOptions(action="verify")).details["verdict"] == "equal"
    idle = table.done()
    assert (idle.status, idle.is_beside) == ("skipped", True)
    assert DeltaTable(table.lake.layout(table.spec).replica).version() == version
    assert not Path(table.lake.layout(table.spec).changes).exists()


def test_rows_are_equal_behind_ahead_or_different(table: Shadowed) -> None:
    table.done(adopting(beside=True))
    table.land(5, 6)
    table.done()
    states = table.source.states
    moved = {key for key in {*states[4], *states[6]} if states[4].get(key) != states[6].get(key)}
    found = table.compared()
    assert (found["behind"], found["ahead"], found["different"]) == (len(moved), 0, 0)
    assert found["equal"] == len({*states[4], *states[6]} - moved)
    table.other_job_loads(6)
    assert table.compared()["equal"] == len(states[6])
    table.land(7)
    table.other_job_loads(7)
    moved = {key for key in {*states[6], *states[7]} if states[6].get(key) != states[7].get(key)}
    found = table.compared()
    assert (found["behind"], found["ahead"], found["different"]) == (0, len(moved), 0)
    assert [Path(path).name for path in found["in_files"]] == ["20240101-000000007.parquet"]
    table.done()
    assert table.compared()["equal"] == len(states[7])


def test_rows_that_differ_are_shown_and_fail(table: Shadowed) -> None:
    table.done(adopting(beside=True))
    table.land(5)
    table.done()
    wrong = dict(table.source.states[5])
    key, (value, sequence) = next(iter(wrong.items()))
    wrong[key] = ("edited", sequence)
    wrong[99] = ("of nobody", 1)
    table.other_job_writes(wrong)
    result = table.lake.result(table.spec, compare())
    assert result.error is not None
    assert result.error.code == "ADOPT_DIFFERENT"
    found = result.details["compare"]
    shown = {row["key"]: (row["ours"], row["theirs"]) for row in found["rows_different"]}
    assert found["different"] == 2
    ours, theirs = shown[f'{{"id":{key}}}']
    assert value in ours
    assert "edited" in theirs
    assert shown['{"id":99}'][0] is None
    hidden = replace(table.spec, mask={"v": "hash"})
    assert "edited" not in str(table.lake.result(hidden, compare()).details)


def test_take_over_removes_the_copy(table: Shadowed) -> None:
    table.done(adopting(beside=True))
    table.land(5, 6)
    table.done()
    table.other_job_loads(5)
    table.done(adopting())
    assert table.theirs() == values(table.source.states[5])
    assert not [path for path in Path(table.lake.roots.lake, "_gddl/beside").rglob("*") if path.is_file()]
    assert not table.done().is_beside
    assert table.theirs() == values(table.source.states[6])
    assert table.done(JobOptions(action="verify")).details["verdict"] == "equal"
    assert table.code(compare()) == "ADOPT_REFUSED"


def test_release_removes_the_copy_without_asking(table: Shadowed) -> None:
    table.done(adopting(beside=True))
    table.land(5)
    table.done()
    before = DeltaTable(table.lake.layout(table.spec).replica).version()
    told = table.done(release(confirmed=False, dry_run=True)).details["release"]
    assert told["beside"] == table.beside.replica
    assert table.ours() == values(table.source.states[5])
    table.done(release(confirmed=False))
    assert not [path for path in Path(table.lake.roots.lake, "_gddl/beside").rglob("*") if path.is_file()]
    assert DeltaTable(table.lake.layout(table.spec).replica).version() == before
    assert table.code() == "TABLE_NOT_OURS"
    assert table.code(release()) == "ADOPT_REFUSED"


def test_what_is_refused(table: Shadowed) -> None:
    assert table.code(compare()) == "ADOPT_REFUSED"
    table.done(adopting(beside=True))
    assert table.code(adopting(beside=True)) == "ADOPT_REFUSED"
    assert table.code(adopting(files_until="", by_column="v")) == "ADOPT_CUT"
    assert table.ours() == table.theirs()


def test_files_that_vanish_while_they_are_copied_are_named(table: Shadowed) -> None:
    """The old job writes a version, and its VACUUM removes what the one before had."""
    path = table.lake.layout(table.spec).replica

    def vacuumed(step: Any) -> None:
        if step.step == "plan":
            table.other_job_loads(4)
            gone = DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
            assert gone

    failed = table.lake.run(table.spec, adopting(beside=True), observe=vacuumed)
    assert isinstance(failed, TableOutcome)
    assert failed.retriable
    assert failed.result.error is not None
    assert failed.result.error.code == "ADOPT_FILES_GONE"
    assert table.code() == "TABLE_NOT_OURS"
    table.done(adopting(beside=True))
    assert table.ours() == table.theirs()
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    table.other_job_loads(5)
    assert table.done(JobOptions(action="verify")).details["verdict"] == "equal"


def test_two_commands_at_once(table: Shadowed) -> None:
    codes = []

    def meanwhile(step: Any) -> None:
        if step.step == "plan":
            codes.extend([table.code(adopting(beside=True)), table.code(adopting()), table.code(release())])

    table.lake.done(table.spec, adopting(beside=True), observe=meanwhile)
    assert codes == ["TABLE_BUSY", "TABLE_BUSY", "TABLE_BUSY"]
    assert table.ours() == table.theirs()
    assert table.code(adopting(beside=True)) == "ADOPT_REFUSED"


@pytest.mark.parametrize("options", [adopting(), release()], ids=["take over", "release"])
def test_run_that_began_before_the_copy_went_writes_nothing(options: JobOptions, table: Shadowed) -> None:
    table.done(adopting(beside=True))
    table.land(5)
    run = table.lake.table_run(table.spec)
    assert run.layout == table.beside
    table.done(options)
    outcome = attempt(run, totals_of(run.job))
    assert isinstance(outcome, TableOutcome)
    assert outcome.result.error is not None
    assert (outcome.result.error.code, outcome.retriable) == ("TABLE_BUSY", True)
    assert not [path for path in Path(table.beside.changes).rglob("*") if path.is_file()]
    assert table.theirs() == values(table.source.states[4])


@pytest.mark.parametrize("files", [0, 2])
def test_empty_table_with_files_or_without(files: int, tmp_path: Path) -> None:
    lake, spec, source = Lake(tmp_path), spec_of(), Landed.of("7")
    lake.landing(spec).mkdir(parents=True)
    table = Shadowed(lake, spec, source)
    table.other_job_writes({})
    source.land(lake, spec, range(files), AFTER)
    assert table.code(adopting(prove_files=3)) == ("ADOPT_CUT" if files else "ADOPT_NOT_PROVED")
    if files:
        return
    told = table.done(adopting(beside=True, dry_run=True)).details["adopt"]
    assert (told["copied_files"], told["files"]) == (0, 0)
    table.done(adopting(beside=True))
    assert table.compared()["equal"] == 0
    table.other_job_writes({1: ("of nobody", 1)})
    assert table.code(compare()) == "ADOPT_DIFFERENT"
    table.other_job_writes({})
    source.land(lake, spec, [1], AFTER)
    table.done()
    assert table.compared()["behind"] == len(table.ours())
    table.done(adopting())
    table.done()
    assert table.theirs() == table.ours_by_file(1)


def test_repairs_and_upkeep_of_the_copy(table: Shadowed) -> None:
    table.done(adopting(beside=True))
    table.land(5)
    table.done()
    table.spec = replace(table.spec, landing_retention=LandingRetention(after="1d"))
    before = sorted(table.lake.landing(table.spec).iterdir())
    table.done(JobOptions(action="maintain"))
    assert sorted(table.lake.landing(table.spec).iterdir()) == before
    table.done(JobOptions(full_refresh=True))
    assert table.ours() == values(table.source.states[5])
    table.other_job_loads(5)
    assert table.compared()["equal"] == len(table.source.states[5])
    table.done(JobOptions(action="erase", key={"id": str(next(iter(table.source.states[5])))}))
    found = table.compared()
    assert (found["equal"], found["different"]) == (len(table.source.states[5]) - 1, 1)
    assert table.theirs() == values(table.source.states[5])
    assert table.code(JobOptions(action="move", move_to="s.other")) == "MOVE_NOT_POSSIBLE"
    warnings = {one.code: one.count for one in table.done(adopting()).warnings}
    assert warnings["ADOPT_ERASED"] == 1


def test_quarantine_goes_with_the_copy_and_one_of_others_is_refused(table: Shadowed) -> None:
    errors = Path(table.lake.layout(table.spec).errors)
    table.done(adopting(beside=True))
    bad = pa.table({"Op": ["U"], "seq": [500], "id": pa.array([None], pa.int32()), "v": ["nobody's"]})
    write(table.lake.landing(table.spec), "20240101-000000009.parquet", bad)
    assert table.done().quarantined == 1
    assert errors.exists()
    table.done(release())
    assert not [path for path in errors.rglob("*") if path.is_file()]
    write_deltalake(str(errors), table_of({1: ("another table", 1)}))
    assert table.code(adopting()) == "ADOPT_REFUSED"
    assert DeltaTable(str(errors)).version() == 0


def test_files_of_the_other_job_that_vanish_while_they_are_read_are_named(table: Shadowed) -> None:
    table.done(adopting(beside=True))
    for file in Path(table.lake.layout(table.spec).replica).glob("*.parquet"):
        file.unlink()
    for options in (compare(), adopting(), adopting(dry_run=True)):
        assert table.code(options) == "ADOPT_FILES_GONE"
    assert table.done().is_beside
    assert table.ours() == values(table.source.states[4])


def test_reload_of_the_copy_reads_the_files_that_are_there(table: Shadowed) -> None:
    table.done(adopting(beside=True))
    table.land(5, 6)
    table.done()
    table.done(JobOptions(reload=True, confirmed=True))
    assert table.ours() == values(table.source.states[6])
    table.other_job_loads(6)
    assert {name: table.compared()[name] for name in ("different", "ahead")} == {"different": 0, "ahead": 0}
    assert table.done(JobOptions(action="verify")).details["verdict"] == "equal"


def test_nobody_is_told_of_the_copy(table: Shadowed) -> None:
    """The catalog that the row names is none that the job knows, which each registration says."""
    table.spec = replace(table.spec, catalog="nowhere")

    def loaded() -> tuple[bool, bool]:
        job = table.lake.job([table.spec])
        (outcome,) = run_job(job, Runtime(storage=Storage(), spark=NoSpark()), silent)
        assert outcome.result.error is None, outcome.result.error
        assert outcome.result.batches == 1
        told = LoadedTables(roots=table.lake.roots, specs={table.spec.table: table.spec})
        told.take(outcome.result)
        return "CATALOG_UNKNOWN" in {one.code for one in outcome.result.warnings}, bool(told.sums)

    table.done(adopting(beside=True))
    table.land(5)
    assert loaded() == (False, False)
    table.done(adopting())
    assert loaded() == (True, True)


WRITES = {
    "run": JobOptions(),
    "full refresh": JobOptions(full_refresh=True),
    "reload": JobOptions(reload=True, confirmed=True),
    "maintain": JobOptions(action="maintain"),
}


@pytest.mark.parametrize("row", [{"dialect": "debezium"}, {"mode": "append"}, {"keys": ()}, {"history": True}])
def test_no_change_of_the_row_lets_a_run_write_the_other_jobs_table(row: dict[str, Any], table: Shadowed) -> None:
    table.done(adopting(beside=True))
    table.land(5)
    table.spec = replace(table.spec, **row)
    for options in WRITES.values():
        table.lake.result(table.spec, options)
    assert DeltaTable(table.lake.layout(table.spec).replica).version() == 0
    assert table.theirs() == values(table.source.states[4])


def test_ledger_that_has_lost_what_says_where_its_tables_are_is_refused(table: Shadowed) -> None:
    table.done(adopting(beside=True))
    table.land(5)
    table.done()
    table.land(6)
    state = Path(table.lake.layout(table.spec).state)
    (state / "beside.json").unlink()
    for name in ("run", "full refresh", "reload"):
        assert table.code(WRITES[name]) == "TABLE_NOT_OURS"
    assert DeltaTable(table.lake.layout(table.spec).replica).version() == 0
    for file in [path for path in state.rglob("*") if path.is_file()]:
        file.unlink()
    table.done(adopting())
    table.done()
    assert table.theirs() == values(table.source.states[6])
    assert not [path for path in Path(table.lake.roots.lake, "_gddl/beside").rglob("*") if path.is_file()]


def test_damaged_document_of_the_table_beside_is_removed_by_a_release(table: Shadowed) -> None:
    table.done(adopting(beside=True))
    state = Path(table.lake.layout(table.spec).state)
    (state / "beside.json").write_text('{"')
    assert table.code(compare()) == "LEDGER_DAMAGED"
    table.done(release())
    assert table.code() == "TABLE_NOT_OURS"
    table.done(adopting())
    assert table.theirs() == values(table.source.states[4])
