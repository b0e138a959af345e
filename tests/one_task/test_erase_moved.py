"""Erased keys stay erased under every name that their table gets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import ErrorsReplay, Move, Reload, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.ledger.move_note import NOTE
from tests.harness.asked import options_of
from tests.harness.lake import Lake, spec_of
from tests.harness.sharded import Sharded, rows_of

pytestmark = pytest.mark.wide

REFRESH, VERIFY = JobOptions(action=Reload(confirmed=True)), JobOptions(action=Verify())


def key(action: str, number: int, **fields: str) -> JobOptions:
    return options_of(action, key={"id": str(number), **fields})


def named(table: str) -> TableSpec:
    """The source's table `s.t` under a name of the lake."""
    return spec_of() if table == "s.t" else replace(spec_of(), table=table, source_table="s.t")


def filled(root: Path) -> Lake:
    lake = Lake(root)
    lake.load(named("s.t"), 5)
    lake.done(named("s.t"))
    lake.change(named("s.t"), 1, [("U", 1, "changed"), ("?", 1, "bad"), ("?", 4, "bad")])
    lake.done(named("s.t"))
    return lake


def move(lake: Lake, *names: str) -> TableSpec:
    for old, new in pairwise(names):
        lake.done(named(old), JobOptions(action=Move(to=new)))
    return named(names[-1])


def as_before(lake: Lake, row: TableSpec) -> None:
    """The register as earlier releases left it."""
    path = Path(lake.layout(row).erased, "keyed-by")
    path.write_text(json.dumps({"keys": json.loads(path.read_text())["keys"]}))


def stated(lake: Lake, row: TableSpec) -> list[str]:
    found: list[str] = json.loads(Path(lake.layout(row).erased, "keyed-by").read_text())["tables"]
    return found


def note_of(lake: Lake, table: str) -> Path:
    return Path(lake.layout(named(table)).state, NOTE)


def erased(lake: Lake, row: TableSpec, *numbers: int) -> list[JobResult]:
    return [lake.done(row, key("erase", number)) for number in numbers]


def require_erased(lake: Lake, row: TableSpec, *numbers: int) -> None:
    """Also after everything was loaded again."""
    result = lake.done(row, REFRESH)
    assert "ERASED_SKIPPED" in {warning.code for warning in result.warnings}
    assert sorted(lake.replica(row)) == [number for number in range(5) if number not in numbers]
    assert lake.done(row, VERIFY).details["verdict"] == "equal"
    for number in numbers:
        assert lake.done(row, key("explain", number)).details["erased_at"]


def same_file(lake: Lake, row: TableSpec) -> None:
    folder = Path(lake.layout(row).landing)
    (folder / "20240101-000000009.parquet").write_bytes((folder / "20240101-000000001.parquet").read_bytes())
    lake.done(row)


def replay(lake: Lake, row: TableSpec) -> None:
    same_file(lake, row)
    lake.done(row, JobOptions(action=ErrorsReplay()))


def from_files(lake: Lake, row: TableSpec) -> None:
    lake.done(row, REFRESH)


@pytest.mark.parametrize("way", [same_file, replay, from_files], ids=lambda way: str(way.__name__))
@pytest.mark.parametrize("names", [("s.t", "t.q"), ("s.t", "t.q", "s.o"), ("s.t", "t.q", "s.t")], ids=len)
def test_erased_key_is_not_loaded_after_a_move(names: Sequence[str], way: Any, tmp_path: Path) -> None:
    lake = filled(tmp_path)
    erased(lake, named("s.t"), 1)
    row = move(lake, *names)
    way(lake, row)
    assert 1 not in lake.replica(row)
    require_erased(lake, row, 1)
    assert stated(lake, row) == ["s.t"]


def test_keys_erased_before_and_after_moves(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    first = erased(lake, named("s.t"), 1)[0].details
    row = move(lake, "s.t", "t.q")
    erased(lake, row, 2)
    again = erased(lake, row, 1)[0]
    assert again.details["hash"] == first["hash"]
    assert again.details["removed"] == first["removed"]
    row = move(lake, "t.q", "s.o")
    erased(lake, row, 3)
    require_erased(lake, row, 1, 2, 3)
    assert len(list(Path(lake.layout(row).erased).glob("*.json"))) == 3


def moved_before(lake: Lake, *names: str) -> TableSpec:
    """Key n erased under the name n, of tables that earlier releases moved: hashes by the names of their time."""
    for number, name in enumerate(names, start=1):
        erased(lake, named(name), number)
        as_before(lake, named(name))
        if number < len(names):
            row = move(lake, name, names[number])
            Path(lake.layout(row).erased, "keyed-by").write_text(json.dumps({"keys": ["id"], "tables": [row.table]}))
    return named(names[-1])


@pytest.mark.parametrize("names", [("s.o", "t.q"), ("s.o", "t.q", "s.p"), ("s.o", "t.q", "s.o")], ids=len)
@pytest.mark.parametrize("trace", ["notes", "records"])
def test_keys_of_tables_moved_by_earlier_releases(trace: str, names: Sequence[str], tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(named(names[0]), 5)
    lake.done(named(names[0]))
    row = moved_before(lake, *names)
    notes = [note_of(lake, name) for name in names[:-1]]
    if trace == "notes":
        for path in Path(lake.layout(row).runs).glob("*.erase.json"):
            path.unlink()
    for path in notes if trace == "records" else ():  # the names were given to other tables
        path.unlink(missing_ok=True)
    numbers = range(1, len(names) + 1)
    for number in numbers:
        assert lake.done(row, key("explain", number)).details["erased_at"]
    assert "tables" not in Path(lake.layout(row).erased, "keyed-by").read_text(), "explain writes nothing"
    require_erased(lake, row, *numbers)
    for path in notes:
        path.unlink(missing_ok=True)
    assert set(stated(lake, row)) >= set(names), "found once, kept"
    row = move(lake, row.table, "x.y")
    require_erased(lake, row, *numbers)
    hashes = {path.stem for path in Path(lake.layout(row).erased).glob("*.json")}
    assert {result.details["hash"] for result in erased(lake, row, *numbers)} == hashes


def test_move_broken_off_by_an_earlier_release(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    erased(lake, named("s.t"), 1)
    as_before(lake, named("s.t"))
    row, old = named("t.q"), lake.layout(named("s.t"))
    copied = Path(lake.layout(row).erased)
    copied.mkdir(parents=True)
    for path in Path(old.erased).iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    note = json.dumps({"old": "s.t", "new": "t.q", "at": "2026-01-01T00:00:00+00:00"})
    for table in ("s.t", "t.q"):
        note_of(lake, table).parent.mkdir(parents=True, exist_ok=True)
        note_of(lake, table).write_text(note)
    require_erased(lake, move(lake, "s.t", "t.q"), 1)


def test_name_taken_by_another_table(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    erased(lake, named("s.t"), 1)
    move(lake, "s.t", "t.q")
    other = spec_of("o")
    lake.load(other, 5)
    lake.done(other)
    erased(lake, other, 2)
    lake.done(other, JobOptions(action=Move(to="s.t")))
    require_erased(lake, named("t.q"), 1)
    other = replace(other, table="s.t", source_table="s.o")
    require_erased(lake, other, 2)
    erased(lake, other, 1)
    require_erased(lake, other, 1, 2)


# Tables of several sources, which another target loads again


def sharded(root: Path) -> Sharded:
    one = Sharded(root, ("eu", "us"))
    for shard in one.shards:
        one.load(shard, {1: f"{shard} 1", 2: f"{shard} 2"})
    return one


def keys_of(lake: Lake, row: TableSpec) -> set[tuple[str, int]]:
    return set(rows_of(pa.table(DeltaTable(lake.layout(row).replica).scan()).to_pylist()))


def documents(lake: Lake, row: TableSpec) -> dict[str, Any]:
    paths = Path(lake.layout(row).erased).glob("*.json")
    return {path.stem: {**json.loads(path.read_text()), "table": ""} for path in paths}


def test_sharded_table_with_another_target(tmp_path: Path) -> None:
    lake, row = Lake(tmp_path), sharded(tmp_path).spec
    lake.done(row)
    lake.done(row, key("erase", 1, _source="eu"))
    for target, number in (("t.q", 2), ("t.q2", 1)):
        row = replace(row, table=target, source_table="s.t")
        lake.done(row)
        lake.done(row, key("erase", number, _source="us"))
    assert keys_of(lake, row) == {("eu", 2)}
    assert lake.done(row, key("explain", 2, _source="us")).details["erased_at"]
    # Back to the table that was left, which still has us 1 and us 2: from now on its loads know all erasures.
    lake.done(row, key("erase", 1, _source="eu"))  # once more: what came until now is erased, too
    newer = documents(lake, row)
    row = replace(row, table="s.t", source_table=None)
    lake.done(row)
    assert documents(lake, row) == newer
    assert len(newer) == 3


def test_sharded_table_with_another_target_and_other_keys(tmp_path: Path) -> None:
    lake, row = Lake(tmp_path), sharded(tmp_path).spec
    lake.done(row)
    lake.done(row, key("erase", 1, _source="eu"))
    row = replace(row, table="t.q", source_table="s.t", keys=("_source", "id", "v"))
    found = lake.run(row)
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert found.result.error.code == "ERASED_BY_OTHER_KEYS"
    assert not Path(lake.layout(row).replica).exists()
