"""`gddl adopt --beside`: a copy that ours loads files into, compared with the other job's table until it takes over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.adopt.taking_over import AFTER, BEFORE, Landed, adopting, compare, release, table_of, values
from tests.harness.lake import Lake, spec_of


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
