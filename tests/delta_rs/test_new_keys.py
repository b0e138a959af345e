"""A rebuild by other keys says where rows share one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

REBUILD = JobOptions(full_refresh=True)


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
