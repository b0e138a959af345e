"""Keys that are none: a full load, and a rebuild by other keys, say where rows share one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

REBUILD = JobOptions(action=Rebuild())


def shared(result: JobResult) -> list[int]:
    return [warning.count for warning in result.warnings if warning.code == "KEYS_SHARED"]


@pytest.mark.parametrize(("keys", "rows", "said"), [(("grp",), 2, [2]), (("id", "grp"), 4, []), (("ID",), 4, [])])
def test_rows_that_share_a_new_key_are_counted(
    keys: tuple[str, ...], rows: int, said: list[int], tmp_path: Path
) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    loaded = pa.table({"id": pa.array([1, 2, 3, 4], pa.int32()), "grp": pa.array([1, 1, 2, 2], pa.int32())})
    write(Path(lake.layout(spec).landing), "LOAD00000001.parquet", loaded)
    lake.done(spec)
    rebuilt = lake.done(replace(spec, keys=keys), REBUILD)
    assert (rebuilt.main.rows, shared(rebuilt)) == (rows, said)
    back = lake.done(spec, REBUILD)
    assert (back.main.rows, shared(back)) == (4, [])


@pytest.mark.parametrize(("keys", "rows", "said"), [(("grp",), 2, [2]), (("id", "grp"), 4, []), (("id",), 4, [])])
def test_rows_of_a_full_load_that_share_a_key_are_counted(
    keys: tuple[str, ...], rows: int, said: list[int], engine: LocalPort, tmp_path: Path
) -> None:
    lake, spec = Lake(tmp_path), replace(spec_of(), keys=keys)
    loaded = pa.table({"id": pa.array([1, 2, 3, 4], pa.int32()), "grp": pa.array([1, 1, 2, 2], pa.int32())})
    write(Path(lake.layout(spec).landing), "LOAD00000001.parquet", loaded)
    first = lake.results(engine, lake.job([spec]))[spec.table]
    assert (first.main.rows, shared(first)) == (rows, said)
    corrected = lake.results(engine, lake.job([spec_of()], REBUILD))[spec.table]
    assert (corrected.main.rows, shared(corrected)) == (4, [])


def test_rows_that_came_twice_share_no_key(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    loaded = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"]})
    for number in (1, 2):
        write(Path(lake.layout(spec).landing), f"LOAD0000000{number}.parquet", loaded)
    first = lake.done(spec)
    assert (first.main.rows, first.redelivered, shared(first)) == (2, 2, [])
