"""Erased keys stay erased under every name that their table gets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import HandleErrors, Reload, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.totals import TableOutcome
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


def retargeted(lake: Lake, *names: str) -> TableSpec:
    """The row after it was loaded by each of these names."""
    for name in names:
        lake.done(named(name))
    return named(names[-1])


def stated(lake: Lake, row: TableSpec) -> list[str]:
    found: list[str] = json.loads(Path(lake.layout(row).erased, "keyed-by").read_text())["tables"]
    return found


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
    lake.done(row, JobOptions(action=HandleErrors(mode="replay")))


def from_files(lake: Lake, row: TableSpec) -> None:
    lake.done(row, REFRESH)


@pytest.mark.parametrize("way", [same_file, replay, from_files], ids=lambda way: str(way.__name__))
@pytest.mark.parametrize("names", [("s.t", "t.q"), ("s.t", "t.q", "s.o"), ("s.t", "t.q", "s.t")], ids=len)
def test_erased_key_is_not_loaded_by_another_name(names: Sequence[str], way: Any, tmp_path: Path) -> None:
    lake = filled(tmp_path)
    erased(lake, named("s.t"), 1)
    row = retargeted(lake, *names)
    way(lake, row)
    assert 1 not in lake.replica(row)
    require_erased(lake, row, 1)
    assert stated(lake, row) == ["s.t"]


def test_keys_erased_by_several_names(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    first = erased(lake, named("s.t"), 1)[0].details
    row = retargeted(lake, "t.q")
    erased(lake, row, 2)
    again = erased(lake, row, 1)[0]
    assert again.details["hash"] == first["hash"]
    assert again.details["removed"] == first["removed"]
    row = retargeted(lake, "s.o")
    erased(lake, row, 3)
    require_erased(lake, row, 1, 2, 3)
    assert len(list(Path(lake.layout(row).erased).glob("*.json"))) == 3


# Tables of several sources


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
