"""Files that are written while a run lists and reads them: what they hold in the end is in the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.actions import Reload
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import HasEtag, Storage, StoredObject
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write
from tests.one_task.test_table_snapshots import SPEC as SNAPSHOTS
from tests.one_task.test_table_snapshots import Exports

When = Literal["listed", "fingerprinted", "opened"]
ROWS = pa.table(
    {"Op": ["U", "D", "I"], "seq": [100, 101, 102], "id": pa.array([0, 1, 9], pa.int32()), "v": ["a", "b", "c"]}
)
LOADED = pa.table({"id": pa.array([8, 9], pa.int32()), "v": ["x", "y"]})


@dataclass
class Growing(Storage):
    """Calls `grow` once: after the path was listed, after its content was hashed, or before it is opened."""

    path: str
    when: When
    grow: Callable[[], object] | None

    def __post_init__(self) -> None:
        super().__init__()

    def _at(self, when: When, path: str) -> None:
        if self.grow is not None and (when, path) == (self.when, self.path):
            grow, self.grow = self.grow, None
            grow()

    def fingerprint(self, file: HasEtag) -> str:
        self._at("listed", file.path)
        made = super().fingerprint(file)
        self._at("fingerprinted", file.path)
        return made

    def open_input(self, path: str) -> BinaryIO:
        self._at("opened", path)
        return super().open_input(path)


def run(lake: Lake, spec: TableSpec, storage: Storage, options: JobOptions | None = None) -> JobResult:
    job = lake.job([spec], options)
    found = attempt(TableRun(job=job, spec=spec, runtime=Runtime(storage=storage, spark=NoSpark())), totals_of(job))
    assert isinstance(found, TableOutcome), found
    return found.result


def content(path: Path, rows: pa.Table = ROWS) -> bytes:
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(rows, path)
    else:
        pq.write_table(rows, path)
    return path.read_bytes()


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("part", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("when", ["listed", "fingerprinted", "opened"])
def test_file_that_grows_during_a_run_is_read_whole(when: When, part: float, form: str, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(settle="0s", options={"csv_header": True})
    lake.load(spec)
    lake.done(spec)
    path = Path(lake.layout(spec).landing) / f"20240101-000000001.{form}"
    whole = content(path)
    path.write_bytes(whole[: int(len(whole) * part)])
    first = run(lake, spec, Growing(str(path), when, lambda: path.write_bytes(whole)))
    path.write_bytes(whole)
    assert first.error is None
    if when == "listed":  # left by this listing, and read whole by the next one of this run
        assert {warning.code for warning in first.warnings} <= {"TEXT_CONVERTED"}
    lake.done(spec)
    assert lake.replica(spec) == {0: "a", 2: "load 2", 9: "c"}


def test_file_that_is_written_again_during_a_run_counts_as_neither_missing_nor_known(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(settle="0s", options={"csv_header": True})
    lake.load(spec)
    lake.change(spec, 1, [("U", 0, "first")])
    lake.done(spec)
    path = Path(lake.layout(spec).landing) / "20240101-000000001.parquet"
    before = path.read_bytes()
    lake.change(spec, 1, [("U", 0, "second")])
    whole = path.read_bytes()
    path.write_bytes(before + b" ")
    first = run(lake, spec, Growing(str(path), "listed", lambda: path.write_bytes(whole)))
    assert [warning.code for warning in first.warnings] == ["FILE_REWRITTEN"]
    assert lake.replica(spec)[0] == "second"


def test_snapshot_that_grows_during_a_run_is_taken_by_the_next_one(tmp_path: Path) -> None:
    exports = Exports(Lake(tmp_path))
    exports.land(1, {1: "a", 2: "b"})
    path = exports.folder(1) / "part-00000.parquet"
    whole = path.read_bytes()
    path.write_bytes(b"")
    result = run(exports.lake, SNAPSHOTS, Growing(str(path), "listed", lambda: path.write_bytes(whole)))
    assert result.error is not None
    assert result.error.code == "FILES_CHANGED"
    exports.run()
    assert exports.lake.replica(SNAPSHOTS) == {1: "a", 2: "b"}


@pytest.mark.parametrize("kind", ["change", "load"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("part", [None, 0.0, 0.5])
def test_file_that_is_copied_again_while_it_is_read_is_read_whole(
    part: float | None, form: str, kind: str, tmp_path: Path
) -> None:
    """Its content is in the end what it was when it was listed: only its tag says that it was written meanwhile."""
    lake, spec = Lake(tmp_path), spec_of(settle="0s", options={"csv_header": True})
    lake.load(spec)
    before = {0: "load 0", 1: "load 1", 2: "load 2"}
    lake.done(spec)
    name, rows, after = {
        "change": ("20240101-000000001", ROWS, {0: "a", 2: "load 2", 9: "c"}),
        "load": ("LOAD00000002", LOADED, {**before, 8: "x", 9: "y"}),
    }[kind]
    path = Path(lake.layout(spec).landing) / f"{name}.{form}"
    whole = content(path, rows)

    def begin() -> None:
        path.unlink()
        if part is not None:
            path.write_bytes(whole[: int(len(whole) * part)])

    first = run(lake, spec, Growing(str(path), "opened", begin))
    assert first.revisit == (part is not None)  # a file that is gone has no row in the ledger
    assert [warning.sample for warning in first.warnings if warning.code == "FILES_UNSETTLED"] == [
        (str(path),) for _ in range(first.revisit)
    ]
    assert ("FILE_VANISHED" in {warning.code for warning in first.warnings}) == (part is None)
    path.write_bytes(whole)
    lake.done(spec)
    assert lake.replica(spec) == after


@pytest.mark.parametrize("day", [1, 2])
def test_snapshot_that_is_copied_again_while_it_is_read_is_read_again(day: int, tmp_path: Path) -> None:
    """The new one or the one before, in which other rows are seen for a moment."""
    exports = Exports(Lake(tmp_path))
    exports.land(1, {1: "a", 2: "b"})
    exports.run()
    exports.land(2, {1: "a", 2: "c", 3: "d"})
    path = exports.folder(day) / "part-00000.parquet"
    whole = path.read_bytes()
    written_meanwhile = Growing(str(path), "opened", lambda: exports.land(day, {2: "c"}))
    result = run(exports.lake, SNAPSHOTS, written_meanwhile)
    path.write_bytes(whole)
    assert result.error is not None
    assert result.error.code == "FILES_CHANGED"
    exports.run()
    assert exports.lake.replica(SNAPSHOTS) == {1: "a", 2: "c", 3: "d"}
    exports.land(3, {1: "a", 2: "c", 3: "d", 4: "e"})
    exports.run()
    assert exports.lake.replica(SNAPSHOTS) == {1: "a", 2: "c", 3: "d", 4: "e"}


@pytest.mark.parametrize("name", ["LOAD00000001.parquet", "20240101-000000001.parquet"])
@pytest.mark.parametrize("when", ["listed", "fingerprinted", "opened"])
def test_reload_during_which_a_file_is_copied_again_leaves_the_table(when: When, name: str, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(settle="0s")
    lake.load(spec)
    lake.change(spec, 1, [("U", 0, "a"), ("I", 7, "b")])
    lake.done(spec)
    path = Path(lake.layout(spec).landing) / name
    whole, reload = path.read_bytes(), JobOptions(action=Reload(confirmed=True))
    result = run(lake, spec, Growing(str(path), when, lambda: path.write_bytes(whole[:100])), reload)
    rows = {0: "a", 1: "load 1", 2: "load 2", 7: "b"}
    assert result.error is not None
    assert (result.error.code, lake.replica(spec)) == ("FILES_CHANGED", rows)
    path.write_bytes(whole)
    lake.done(spec, reload)
    assert lake.replica(spec) == rows
    assert lake.done(spec).status == "skipped"


Moment = Literal["listed", "folder", "root"]


@dataclass
class Mounting(Storage):
    """Brings the landing root back after it was listed, or after the table's folder or itself was asked for.

    Attributes:
        when: null: never.
    """

    root: Path
    when: Moment | None

    def __post_init__(self) -> None:
        super().__init__()

    def _mount(self) -> None:
        if not self.root.exists():
            self.root.with_name("elsewhere").rename(self.root)

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:
        yield from super().list(folder, after, within)
        if self.when == "listed" and folder.startswith(str(self.root)):
            self._mount()

    def exists(self, folder: str) -> bool:
        found = super().exists(folder)
        if folder == {"root": f"{self.root}", "folder": f"{self.root}/s/t"}.get(self.when or ""):
            self._mount()
        return found


def unmounted(root: Path, when: Moment | None) -> Mounting:
    root.rename(root.with_name("elsewhere"))
    return Mounting(root, when)


@pytest.mark.parametrize("when", ["listed", "folder", "root", None])
def test_landing_root_that_was_not_there_for_a_moment_empties_no_table(when: Moment | None, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(options={"missing_folder": "empty"})
    lake.load(spec)
    lake.done(spec)
    result = run(lake, spec, unmounted(tmp_path / "landing", when))
    assert result.error is not None
    assert result.error.code == "LANDING_MISSING"
    assert sorted(lake.replica(spec)) == [0, 1, 2]


@pytest.mark.parametrize("when", ["listed", "folder", "root", None])
def test_landing_root_that_was_not_there_for_a_moment_ends_no_reload(when: Moment | None, tmp_path: Path) -> None:
    """Load files of the generation before could not be seen; their rows wait for them all the same."""
    lake, spec = Lake(tmp_path), spec_of(sweep_limit=1.0)
    lake.load(spec)
    write(Path(lake.layout(spec).landing), "LOAD00000002.parquet", LOADED)
    lake.done(spec)
    lake.load(spec, 2)
    assert [warning.code for warning in lake.done(spec).warnings] == ["SWEEP_PENDING"]
    result = run(lake, spec, unmounted(tmp_path / "landing", when))
    assert result.error is not None
    assert result.error.code == "LANDING_MISSING"
    assert sorted(lake.replica(spec)) == [0, 1, 2, 8, 9]
