"""What `gddl adopt` proves where it is asked to, before it writes: that the table equals a real PostgreSQL."""

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

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.adopt.taking_over import (
    AFTER,
    BEFORE,
    Landed,
    Rows,
    adopting,
    table_of,
    values,
)
from tests.harness.lake import Lake, spec_of
from tests.one_task.postgres import emptied, execute, postgres


def started(root: Path, rows: Rows) -> tuple[Lake, TableSpec]:
    """A table of another job with these rows; files up to number 5 count as in it."""
    lake, spec, source = Lake(root), spec_of(), Landed.of("7")
    source.land(lake, spec, range(6), BEFORE)
    source.land(lake, spec, range(6, len(source.files)), AFTER)
    write_deltalake(lake.layout(spec).replica, table_of(rows))
    return lake, spec


def unwritten(lake: Lake, spec: TableSpec) -> bool:
    layout = lake.layout(spec)
    return DeltaTable(layout.replica).version() == 0 and not Path(layout.changes).exists()


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
    lake, spec = started(tmp_path, source.states[5])
    done = proved(lake, spec, database, dry_run=True)
    assert done.error is None, done.error
    found = done.details["adopt"]["proved"]
    late = [key for key in {*source.states[5], *source.states[-1]} if differs(source, key)]
    assert (found["source_rows"], found["by_files"]) == (len(source.states[-1]), len(late))
    assert (found["compared"], list(found["not_compared"])) == (["id", "v"], ["seq"])
    assert unwritten(lake, spec)
    assert proved(lake, spec, database).error is None
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
    lake, spec = started(tmp_path, rows)
    error = proved(lake, spec, database).error
    assert error is not None
    state = {"edited": "different"}.get(wrong, wrong)
    assert (error.code, f"{key} ({state})" in error.message) == ("ADOPT_NOT_PROVED", True), error.message
    assert error.message.count("1 keys") == 1
    assert unwritten(lake, spec)


def test_a_source_that_is_not_named_or_lacks_the_table(database: sa.Engine, tmp_path: Path) -> None:
    lake, spec = started(tmp_path, Landed.of("7").states[5])
    error = lake.result(spec, adopting(source_connection="GDDL_SOURCE_NONE"), environ={}).error
    assert error is not None
    assert error.code == "SOURCE_CONNECTION_MISSING"
    error = proved(lake, spec, database).error
    assert error is not None
    assert error.code == "SOURCE_TABLE_MISSING"
    assert unwritten(lake, spec)


def test_columns_of_the_old_job_are_no_differences(tmp_path: Path) -> None:
    source = Landed.of("7")
    lake, spec = started(tmp_path, source.states[5])
    path = lake.layout(spec).replica
    mine = table_of(source.states[5]).append_column("loaded_by", pa.array(["merge"] * len(source.states[5])))
    write_deltalake(path, mine, mode="overwrite", schema_mode="overwrite")
    copy = replace(spec, table="s.copy", source_table=spec.table)
    shutil.copytree(path, lake.layout(copy).replica)
    lake.done(copy, adopting())
    lake.done(copy)
    last = source.states[-1]
    mine = table_of(last).append_column("loaded_by", pa.array(["merge again"] * len(last)))
    write_deltalake(path, mine, mode="overwrite")
    found = lake.done(copy, JobOptions(action=Verify(against=path))).details["against"]
    assert (found["equal"], found["behind"], found["not_compared"]) == (len(last), 0, {"loaded_by": "files lack it"})
