"""A ledger that is older than its tables is refused before anything is written; on both engines."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.lake import Lake, read
from tests.harness.landing import to_table, write
from tests.harness.sharded import Sharded
from tests.spark.breaking import Break, Breaker

KEYED = TableSpec(table="s.keyed", keys=("id",), sequence_by=("seq",), history=True)
KEYLESS = TableSpec(table="s.keyless", keys=(), sequence_by=("seq",))
REFRESH = JobOptions(action=Rebuild())
TABLES = ("replica", "changes", "history", "tombstones", "errors")


def land(lake: Lake, spec: TableSpec, number: int, op: str = "I") -> None:
    row = {"Op": op, "seq": number, "id": number}
    table = to_table([row], list(row), {"Op": "string", "seq": "int64", "id": "int64"})
    write(Path(lake.layout(spec).landing), f"20240101-{number:09d}.parquet", table)


def run(lake: Lake, engine: LocalPort, spec: TableSpec, options: JobOptions | None = None) -> JobResult:
    return lake.results(engine, lake.job([spec], options))[spec.table]


def done(lake: Lake, engine: LocalPort, spec: TableSpec, options: JobOptions | None = None) -> JobResult:
    result = run(lake, engine, spec, options)
    assert result.error is None, result.error
    return result


def loaded(lake: Lake, engine: LocalPort, spec: TableSpec, batches: int) -> None:
    for number in range(1, batches + 1):
        land(lake, spec, number)
        done(lake, engine, spec)


def commits(lake: Lake, spec: TableSpec) -> list[Path]:
    return sorted(Path(lake.layout(spec).state, "commits").iterdir())


def contents(lake: Lake, spec: TableSpec) -> dict[str, list[str]]:
    return {name: sorted(map(str, read(getattr(lake.layout(spec), name)))) for name in TABLES}


def ids(lake: Lake, spec: TableSpec) -> list[object]:
    return sorted(row["id"] for row in read(lake.layout(spec).replica))


@pytest.mark.parametrize("behind", [1, 2])
@pytest.mark.parametrize("spec", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_ledger_behind_its_tables_is_refused(engine: LocalPort, tmp_path: Path, spec: TableSpec, behind: int) -> None:
    lake = Lake(tmp_path)
    loaded(lake, engine, spec, 3)
    for commit in commits(lake, spec)[-behind:]:
        commit.unlink()
    before = contents(lake, spec)
    for options in (None, JobOptions(full_listing=True)):
        result = run(lake, engine, spec, options)
        assert result.error is not None
        assert result.error.code == "LEDGER_BEHIND"
        assert "changes" in result.error.message
        assert contents(lake, spec) == before
        assert lake.ledger(spec).plan() is None
    done(lake, engine, spec, REFRESH)
    assert ids(lake, spec) == [1, 2, 3]
    land(lake, spec, 4)
    assert done(lake, engine, spec).warnings == ()
    assert ids(lake, spec) == [1, 2, 3, 4]


def test_older_copy_of_the_ledger_is_refused_until_the_newest_is_back(engine: LocalPort, tmp_path: Path) -> None:
    lake, copies = Lake(tmp_path), tmp_path / "copies"
    state = Path(lake.layout(KEYLESS).state)
    loaded(lake, engine, KEYLESS, 1)
    shutil.copytree(state, copies / "old")
    land(lake, KEYLESS, 2)
    done(lake, engine, KEYLESS)
    shutil.copytree(state, copies / "new")
    shutil.rmtree(state)
    shutil.copytree(copies / "old", state)
    refused = run(lake, engine, KEYLESS)
    assert refused.error is not None
    assert refused.error.code == "LEDGER_BEHIND"
    shutil.rmtree(state)
    shutil.copytree(copies / "new", state)
    land(lake, KEYLESS, 3)
    done(lake, engine, KEYLESS)
    assert ids(lake, KEYLESS) == [1, 2, 3]


@pytest.mark.parametrize("step", ["append", "replica"])
def test_older_copy_with_the_plan_of_a_later_batch(engine: LocalPort, tmp_path: Path, step: str) -> None:
    """The plan in progress is resumed where it is the tables' newest batch, and refused where a later one followed."""
    lake, copies = Lake(tmp_path), tmp_path / "copies"
    state = Path(lake.layout(KEYLESS).state)
    loaded(lake, engine, KEYLESS, 1)
    land(lake, KEYLESS, 2)
    job = lake.job([KEYLESS])
    assert lake.results(engine, job, Breaker({KEYLESS.table: Break(step)}))[KEYLESS.table].error is not None
    shutil.copytree(state, copies / "planned")
    done(lake, engine, KEYLESS)
    shutil.rmtree(state)
    shutil.copytree(copies / "planned", state)
    done(lake, engine, KEYLESS)
    assert ids(lake, KEYLESS) == [1, 2]
    land(lake, KEYLESS, 3)
    done(lake, engine, KEYLESS)
    shutil.rmtree(state)
    shutil.copytree(copies / "planned", state)
    refused = run(lake, engine, KEYLESS)
    assert refused.error is not None
    assert refused.error.code == "LEDGER_BEHIND"


def test_ledger_and_change_table_behind_the_replica(engine: LocalPort, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    loaded(lake, engine, KEYLESS, 1)
    changes = Path(lake.layout(KEYLESS).changes)
    shutil.copytree(changes, tmp_path / "copy")
    land(lake, KEYLESS, 2)
    done(lake, engine, KEYLESS)
    commits(lake, KEYLESS)[-1].unlink()
    shutil.rmtree(changes)
    shutil.copytree(tmp_path / "copy", changes)
    refused = run(lake, engine, KEYLESS)
    assert refused.error is not None
    assert refused.error.code == "LEDGER_BEHIND"
    assert "replica" in refused.error.message
    assert ids(lake, KEYLESS) == [1, 2]


def test_ledger_from_before_a_full_refresh(engine: LocalPort, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    loaded(lake, engine, KEYLESS, 1)
    land(lake, KEYLESS, 2)
    done(lake, engine, KEYLESS, REFRESH)
    commits(lake, KEYLESS)[-1].unlink()
    refused = run(lake, engine, KEYLESS)
    assert refused.error is not None
    assert refused.error.code == "LEDGER_BEHIND"
    done(lake, engine, KEYLESS, REFRESH)
    assert ids(lake, KEYLESS) == [1, 2]


@pytest.mark.parametrize("name", ["changes", "replica"])
def test_table_from_an_older_copy_is_refused(engine: LocalPort, tmp_path: Path, name: str) -> None:
    lake = Lake(tmp_path)
    loaded(lake, engine, KEYED, 1)
    path = Path(getattr(lake.layout(KEYED), name))
    shutil.copytree(path, tmp_path / "copy")
    land(lake, KEYED, 2)
    done(lake, engine, KEYED)
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "copy", path)
    land(lake, KEYED, 3)
    for _ in range(2):
        error = run(lake, engine, KEYED).error
        assert error is not None
        assert error.code == "TABLE_DAMAGED"
        assert Path(path).name in error.message
    done(lake, engine, KEYED, options_of("rebuild" if name == "replica" else "reload", full_listing=True))
    assert done(lake, engine, KEYED).warnings == ()
    assert ids(lake, KEYED) == [1, 2, 3]


@pytest.mark.deep_on_many
def test_one_source_behind_stops_no_other(engine: LocalPort, tmp_path: Path) -> None:
    lake, two = Lake(tmp_path), Sharded(tmp_path, ("eu", "us"))
    for shard in two.shards:
        two.change(shard, ("I", 1, f"{shard} 1"))
    done(lake, engine, two.spec)
    for shard in two.shards:
        two.change(shard, ("I", 2, f"{shard} 2"))
    done(lake, engine, two.spec)
    state = Path(lake.layout(two.spec).state, "shards", "eu", "commits")
    max(state.iterdir()).unlink()
    two.change("us", ("I", 3, "us 3"))
    before = len(read(lake.layout(two.spec).changes))
    refused = run(lake, engine, two.spec)
    assert refused.error is not None
    assert refused.error.code == "LEDGER_BEHIND"
    assert "eu" in refused.error.message
    assert "us" not in refused.error.message
    assert len(read(lake.layout(two.spec).changes)) == before + 1


def crashed_then_refused(lake: Lake, engine: LocalPort, spec: TableSpec) -> None:
    """A batch breaks off after it appended its changes, and a rebuild after it is refused."""
    land(lake, spec, 2)
    broken = lake.results(engine, lake.job([spec]), Breaker({spec.table: Break("append")}))
    assert broken[spec.table].error is not None
    land(lake, spec, 3, op="?")
    refused = run(lake, engine, replace(spec, on_bad_row="fail"), REFRESH)
    assert refused.error is not None
    assert refused.error.code == "BAD_ROWS"
    land(lake, spec, 3)


@pytest.mark.parametrize("start", [loaded, lambda *_: None], ids=["second batch", "first batch"])
def test_refused_refresh_leaves_the_interrupted_batch(
    engine: LocalPort, tmp_path: Path, start: Callable[[Lake, LocalPort, TableSpec, int], None]
) -> None:
    lake = Lake(tmp_path)
    start(lake, engine, KEYLESS, 1)
    crashed_then_refused(lake, engine, KEYLESS)
    done(lake, engine, KEYLESS)
    assert len(ids(lake, KEYLESS)) == len(set(ids(lake, KEYLESS)))
    assert set(ids(lake, KEYLESS)) >= {2, 3}
