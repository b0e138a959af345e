"""What `gddl adopt` proves where it is asked to, before it writes: files of the cut, and a real PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Adopt, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.adopt.taking_over import (
    AFTER,
    BEFORE,
    SCHEMA,
    Landed,
    Rows,
    adopting,
    chance,
    stamp,
    table_of,
    values,
)
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write
from tests.one_task.postgres import emptied, execute, postgres

WITHOUT_SEQUENCE = pa.schema([field for field in SCHEMA if field.name != "seq"])


def started(root: Path, rows: Rows, *, cut: int, seed: str = "7", schema: pa.Schema = SCHEMA) -> tuple[Lake, TableSpec]:
    """A table of another job with these rows; files up to number `cut` count as in it."""
    lake, spec, source = Lake(root), spec_of(), Landed.of(seed)
    source.land(lake, spec, range(cut + 1), BEFORE)
    source.land(lake, spec, range(cut + 1, len(source.files)), AFTER)
    write_deltalake(lake.layout(spec).replica, table_of(rows, schema))
    return lake, spec


def unwritten(lake: Lake, spec: TableSpec) -> bool:
    layout = lake.layout(spec)
    return DeltaTable(layout.replica).version() == 0 and not Path(layout.changes).exists()


@pytest.mark.parametrize("schema", [SCHEMA, WITHOUT_SEQUENCE], ids=["sequence", "none"])
@pytest.mark.parametrize("seed", range(6))
def test_changes_of_files_in_the_cut_are_in_the_table(seed: int, schema: pa.Schema, tmp_path: Path) -> None:
    """Where the cut is early, the table has newer rows: by their sequence, or by files after the cut."""
    random, source = chance(f"early {seed}"), Landed.of(str(seed))
    applied = random.randrange(1, len(source.files))
    cut = random.randint(0, applied)
    lake, spec = started(tmp_path, source.states[applied], cut=cut, seed=str(seed), schema=schema)
    options = adopting(prove_files=random.randint(1, 9), dry_run=True)
    proved = lake.done(spec, options).details["adopt"]["proved"]["files"]
    assert proved["files"] == min(options.asked(Adopt).prove_files, cut + 1)
    assert proved["keys"] > 0
    assert proved["newer"] == 0 or applied > cut


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_cut_that_is_too_late_is_told_by_its_files_and_keys(dry_run: bool, tmp_path: Path) -> None:
    source = Landed.of("7")
    lake, spec = started(tmp_path, source.states[4], cut=6)
    lake.done(spec, adopting(dry_run=True))
    error = lake.result(spec, adopting(prove_files=2, dry_run=dry_run)).error
    assert error is not None
    assert error.code == "ADOPT_NOT_PROVED"
    assert "20240101-000000006.parquet" in error.message
    changed = [
        key for key in {*source.states[4], *source.states[6]} if source.states[4].get(key) != source.states[6].get(key)
    ]
    assert any(f'{{"id":{key}}}' in error.message for key in changed), error.message
    assert "in the table" in error.message
    assert unwritten(lake, spec)


def test_an_edited_row_and_a_delete_that_is_missing_are_told(tmp_path: Path) -> None:
    source = Landed.of("7")
    rows = dict(source.states[5])
    changed = next(key for key in rows if source.states[4].get(key) != rows[key])
    lake, spec = started(tmp_path / "edited", rows | {changed: ("edited", rows[changed][1])}, cut=5)
    error = lake.result(spec, adopting(prove_files=1)).error
    assert error is not None
    assert (error.code, "edited" in error.message) == ("ADOPT_NOT_PROVED", True)
    number, gone = next(
        (at, key) for at in range(1, 9) for key in source.states[at - 1] if key not in source.states[at]
    )
    rows = dict(source.states[number]) | {gone: source.states[number - 1][gone]}
    lake, spec = started(tmp_path / "undeleted", rows, cut=number)
    error = lake.result(spec, adopting(prove_files=1)).error
    assert error is not None
    assert (error.code, "no row by the files" in error.message) == ("ADOPT_NOT_PROVED", True)
    assert unwritten(lake, spec)


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres() as engine:
        yield engine


@pytest.fixture
def database(server: sa.Engine) -> sa.Engine:
    return emptied(server)


def filled(engine: sa.Engine, rows: Rows) -> None:
    execute(engine, "CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    for key, value in values(rows).items():
        execute(engine, f"INSERT INTO s.t VALUES ({key}, '{value}')")


def proved(lake: Lake, spec: TableSpec, engine: sa.Engine, **options: Any) -> JobResult:
    environ = {"GDDL_SOURCE_SHOP": engine.url.render_as_string(hide_password=False)}
    return lake.result(spec, adopting(source_connection="GDDL_SOURCE_SHOP", **options), environ=environ)


def test_table_equals_its_source_with_the_files_after_the_cut_or_without(database: sa.Engine, tmp_path: Path) -> None:
    source = Landed.of("7")
    filled(database, source.states[-1])
    lake, spec = started(tmp_path, source.states[5], cut=5)
    done = proved(lake, spec, database, dry_run=True)
    assert done.error is None, done.error
    found = done.details["adopt"]["proved"]["source"]
    late = [key for key in {*source.states[5], *source.states[-1]} if differs(source, key)]
    assert (found["source_rows"], found["by_files"]) == (len(source.states[-1]), len(late))
    assert (found["compared"], list(found["not_compared"])) == (["id", "v"], ["seq"])
    assert unwritten(lake, spec)
    both = proved(lake, spec, database, prove_files=3)
    assert both.error is None, both.error
    assert set(both.details["adopt"]["proved"]) == {"source", "files"}
    lake.done(spec)
    assert lake.replica(spec) == values(source.states[-1])


def differs(source: Landed, key: int) -> bool:
    before, after = (values(source.states[at]).get(key) for at in (5, -1))
    return before != after


@pytest.mark.parametrize("wrong", ["edited", "missing", "extra"])
def test_what_differs_from_the_source_is_told(wrong: str, database: sa.Engine, tmp_path: Path) -> None:
    source = Landed.of("7")
    filled(database, source.states[-1])
    rows = dict(source.states[5])
    key = next(key for key in rows if not differs(source, key))
    if wrong == "edited":
        rows[key] = ("edited", rows[key][1])
    elif wrong == "missing":
        del rows[key]
    else:
        rows[key := 99] = ("of nobody", 1)
    lake, spec = started(tmp_path, rows, cut=5)
    error = proved(lake, spec, database).error
    assert error is not None
    state = {"edited": "different"}.get(wrong, wrong)
    assert (error.code, f"{key} ({state})" in error.message) == ("ADOPT_NOT_PROVED", True), error.message
    assert error.message.count("1 keys") == 1
    assert unwritten(lake, spec)


def test_a_source_that_is_not_named_or_lacks_the_table(database: sa.Engine, tmp_path: Path) -> None:
    lake, spec = started(tmp_path, Landed.of("7").states[5], cut=5)
    error = lake.result(spec, adopting(source_connection="GDDL_SOURCE_NONE"), environ={}).error
    assert error is not None
    assert error.code == "SOURCE_CONNECTION_MISSING"
    error = proved(lake, spec, database).error
    assert error is not None
    assert error.code == "SOURCE_TABLE_MISSING"
    assert unwritten(lake, spec)


def test_columns_of_the_old_job_are_no_differences(tmp_path: Path) -> None:
    source = Landed.of("7")
    lake, spec = started(tmp_path, source.states[5], cut=5)
    path = lake.layout(spec).replica
    mine = table_of(source.states[5]).append_column("loaded_by", pa.array(["merge"] * len(source.states[5])))
    write_deltalake(path, mine, mode="overwrite", schema_mode="overwrite")
    proved = lake.done(spec, adopting(prove_files=6, dry_run=True)).details["adopt"]["proved"]["files"]
    assert (proved["newer"], proved["keys"] > 0) == (0, True)
    copy = replace(spec, table="s.copy", source_table=spec.table)
    shutil.copytree(path, lake.layout(copy).replica)
    lake.done(copy, adopting())
    lake.done(copy)
    last = source.states[-1]
    mine = table_of(last).append_column("loaded_by", pa.array(["merge again"] * len(last)))
    write_deltalake(path, mine, mode="overwrite")
    found = lake.done(copy, JobOptions(action=Verify(against=path))).details["against"]
    assert (found["equal"], found["behind"], found["not_compared"]) == (len(last), 0, {"loaded_by": "files lack it"})


def test_a_file_that_cannot_be_read_proves_nothing(tmp_path: Path) -> None:
    lake, spec = started(tmp_path, Landed.of("7").states[5], cut=5)
    file = lake.landing(spec) / "20240101-000000004.parquet"
    file.write_bytes(b"no Parquet")
    stamp(file, BEFORE)
    assert lake.done(spec, adopting(prove_files=1, dry_run=True)).details["adopt"]["proved"]["files"]["files"] == 1
    error = lake.result(spec, adopting(prove_files=2)).error
    assert error is not None
    assert (error.code, "20240101-000000004.parquet" in error.message) == ("ADOPT_NOT_PROVED", True)
    assert unwritten(lake, spec)


@pytest.mark.parametrize("late", [True, False])
def test_a_later_change_of_a_part_of_the_row_explains_no_row_that_is_older(late: bool, tmp_path: Path) -> None:
    """The table's sequence tells that the old job has loaded neither; where it has both, that the row is newer."""
    lake, spec = Lake(tmp_path), spec_of()
    lake.landing(spec).mkdir(parents=True)
    for number, row in enumerate(({"v": "new", "w": "new"}, {"v": "newer"}), start=1):
        columns = {"Op": ["U"], "seq": [number], "id": pa.array([1], pa.int32())}
        name = f"20240101-{number:09d}.parquet"
        write(lake.landing(spec), name, pa.table(columns | {column: [text] for column, text in row.items()}))
        stamp(lake.landing(spec) / name, BEFORE if number == 1 else AFTER)
    row = {"v": "old", "w": "old", "seq": 0} if late else {"v": "newer", "w": "new", "seq": 2}
    kind = pa.schema([("id", pa.int32()), ("v", pa.string()), ("w", pa.string()), ("seq", pa.int64())])
    write_deltalake(lake.layout(spec).replica, pa.Table.from_pylist([{"id": 1, **row}], kind))
    result = lake.result(spec, adopting(prove_files=1, dry_run=True))
    if late:
        assert result.error is not None
        assert result.error.code == "ADOPT_NOT_PROVED"
    else:
        assert result.error is None, result.error
        assert result.details["adopt"]["proved"]["files"]["newer"] == 1
