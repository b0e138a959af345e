"""Full loads and changes are distinguished without the ledger: by the change table, and by the times of files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import Rebuild, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.conftest import LocalPort
from tests.harness.lake import Lake, read
from tests.harness.landing import to_table, write
from tests.oracle import Value

pytestmark = pytest.mark.deep_on_many

SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), history=True, sweep_limit=1.0)
REFRESH = JobOptions(action=Rebuild())
LOAD, SECOND_LOAD = "LOAD00000001.parquet", "LOAD00000002.parquet"
FIRST, SECOND = "20240101-000000001.parquet", "20240102-000000001.parquet"
TYPES = {"Op": "string", "seq": "int64", "id": "int64", "v": "string"}
OLD: tuple[Mapping[str, Value], ...] = ({"id": 1, "v": "a"}, {"id": 2, "v": "b"})
NEW: tuple[Mapping[str, Value], ...] = ({"id": 1, "v": "final"}, {"id": 2, "v": "back"})
CHANGES: tuple[Mapping[str, Value], ...] = (
    {"Op": "U", "seq": 1, "id": 1, "v": "mid"},
    {"Op": "D", "seq": 2, "id": 2, "v": None},
)
NOW = datetime.now(UTC)


def land(lake: Lake, name: str, rows: tuple[Mapping[str, Value], ...], age: timedelta | None = None) -> None:
    """A file written `age` ago; null: now."""
    columns = ["id", "v"] if name.startswith("LOAD") else ["Op", "seq", "id", "v"]
    path = write(Path(lake.layout(SPEC).landing), name, to_table(rows, columns, TYPES))
    if age is not None:
        moment = (NOW - age).timestamp()
        os.utime(path, (moment, moment))


def run(lake: Lake, engine: LocalPort, options: JobOptions | None = None, spec: TableSpec = SPEC) -> JobResult:
    return lake.results(engine, lake.job([spec], options))[SPEC.table]


def done(lake: Lake, engine: LocalPort, options: JobOptions | None = None, spec: TableSpec = SPEC) -> JobResult:
    result = run(lake, engine, options, spec)
    assert result.status == "succeeded", result.error
    return result


def rows(lake: Lake) -> dict[object, object]:
    return {row["id"]: row["v"] for row in read(lake.layout(SPEC).replica)}


def versions(lake: Lake) -> list[tuple[object, ...]]:
    found = [(row["id"], row["v"], row["__start_at"], row["__end_at"]) for row in read(lake.layout(SPEC).history)]
    return sorted(found, key=str)


def codes(result: JobResult) -> set[str]:
    return {warning.code for warning in result.warnings}


def lose_ledger(lake: Lake) -> None:
    shutil.rmtree(lake.layout(SPEC).state)


def verified(lake: Lake, engine: LocalPort) -> bool:
    result = run(lake, engine, JobOptions(action=Verify()))
    return result.status == "succeeded"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table with a full load, changes, and the load written again."""
    made = Lake(tmp_path)
    land(made, LOAD, OLD)
    return made


@pytest.mark.parametrize("ingested", [True, False], ids=["reload ingested", "reload waiting"])
def test_refresh_without_ledger_derives_reload_from_change_table(ingested: bool, lake: Lake, engine: LocalPort) -> None:
    done(lake, engine)
    land(lake, FIRST, CHANGES)
    done(lake, engine)
    land(lake, LOAD, NEW)
    if ingested:
        done(lake, engine)
        assert rows(lake) == {1: "final", 2: "back"}
    lose_ledger(lake)
    refused = run(lake, engine)
    assert refused.error is not None
    assert refused.error.code == "LEDGER_MISSING"
    assert "GENERATIONS_INFERRED" in codes(done(lake, engine, REFRESH))
    assert rows(lake) == {1: "final", 2: "back"}
    assert [version for version in versions(lake) if version[3] is None] == [
        (1, "final", 2, None),
        (2, "back", 2, None),
    ]
    assert verified(lake, engine)
    land(lake, SECOND, ({"Op": "U", "seq": 3, "id": 1, "v": "later"},))
    done(lake, engine)
    assert rows(lake) == {1: "later", 2: "back"}
    assert verified(lake, engine)


def test_changes_after_the_reload_keep_their_generation(lake: Lake, engine: LocalPort) -> None:
    done(lake, engine)
    land(lake, FIRST, CHANGES)
    done(lake, engine)
    land(lake, LOAD, NEW)
    done(lake, engine)
    land(lake, SECOND, ({"Op": "U", "seq": 3, "id": 2, "v": "later"},))
    done(lake, engine)
    lose_ledger(lake)
    done(lake, engine, REFRESH)
    assert rows(lake) == {1: "final", 2: "later"}
    assert verified(lake, engine)


def test_rows_of_an_unchanged_load_file_are_kept(lake: Lake, engine: LocalPort) -> None:
    land(lake, SECOND_LOAD, ({"id": 3, "v": "c"},))
    done(lake, engine)
    land(lake, LOAD, NEW)
    assert "SWEEP_PENDING" in codes(done(lake, engine))
    assert rows(lake) == {1: "final", 2: "back", 3: "c"}
    lose_ledger(lake)
    assert "SWEEP_PENDING" in codes(done(lake, engine, REFRESH))
    assert rows(lake) == {1: "final", 2: "back", 3: "c"}
    assert verified(lake, engine)
    land(lake, SECOND_LOAD, ())
    done(lake, engine)
    assert rows(lake) == {1: "final", 2: "back"}


def days(number: float) -> timedelta:
    return timedelta(days=number)


@pytest.mark.parametrize("options", [None, REFRESH], ids=["run", "rebuild"])
def test_new_lake_over_a_reloaded_folder(options: JobOptions | None, lake: Lake, engine: LocalPort) -> None:
    land(lake, FIRST, (*CHANGES, {"Op": "I", "seq": 3, "id": 3, "v": "gone since"}), days(5))
    land(lake, LOAD, NEW, days(2))
    land(lake, SECOND, ({"Op": "U", "seq": 4, "id": 2, "v": "later"},), days(1))
    result = done(lake, engine, options)
    assert "GENERATIONS_INFERRED" in codes(result)
    assert rows(lake) == {1: "final", 2: "later"}
    assert verified(lake, engine)


def test_interrupted_first_load_keeps_inferred_generations(lake: Lake, engine: LocalPort) -> None:
    land(lake, FIRST, CHANGES, days(5))
    land(lake, LOAD, NEW, days(2))
    done(lake, engine, JobOptions(max_batches=1))
    done(lake, engine)
    assert rows(lake) == {1: "final", 2: "back"}
    assert verified(lake, engine)


def test_changes_during_the_load_win(lake: Lake, engine: LocalPort) -> None:
    """Times that are so near tell nothing; it is said."""
    land(lake, FIRST, CHANGES, timedelta(seconds=40))
    land(lake, LOAD, NEW, timedelta(seconds=10))
    assert "GENERATIONS_INFERRED" in codes(done(lake, engine))
    assert rows(lake) == {1: "mid"}


def test_files_in_order_need_no_inference(lake: Lake, engine: LocalPort) -> None:
    land(lake, LOAD, OLD, days(3))
    land(lake, FIRST, CHANGES, days(2))
    assert codes(done(lake, engine)) == set()
    assert rows(lake) == {1: "mid"}


HOURS_LATER = {FIRST: timedelta(hours=9), LOAD: timedelta(hours=5)}
IN_PART = {SECOND_LOAD: days(9), FIRST: days(5), LOAD: days(2)}


@pytest.mark.parametrize("options", [None, REFRESH], ids=["run", "rebuild"])
@pytest.mark.parametrize("ages", [HOURS_LATER, IN_PART], ids=["hours later", "in part"])
def test_ambiguous_times_require_a_setting(
    ages: Mapping[str, timedelta], options: JobOptions | None, lake: Lake, engine: LocalPort
) -> None:
    contents = {FIRST: CHANGES, LOAD: NEW, SECOND_LOAD: ({"id": 3, "v": "c"},)}
    for name, age in ages.items():
        land(lake, name, contents[name], age)
    for _ in range(2):
        result = run(lake, engine, options)
        assert result.error is not None
        assert result.error.code == "GENERATIONS_UNKNOWN"
        assert "generations: by_time" in result.error.message
    assert not Path(lake.layout(SPEC).replica).exists()
    others = {3: "c"} if SECOND_LOAD in ages else {}
    by_time = replace(SPEC, generations="by_time")
    one = replace(SPEC, generations="one")
    assert "GENERATIONS_INFERRED" not in codes(done(lake, engine, options, by_time))
    assert rows(lake) == {1: "final", 2: "back", **others}
    shutil.rmtree(lake.roots.lake)
    assert codes(done(lake, engine, options, one)) == set()
    assert rows(lake) == {1: "mid", **others}
