"""A first load of which no file can be read is never green."""

from __future__ import annotations

from pathlib import Path

from airflow_gddl.contract.spec import JobOptions
from spark_jobs.table.runtime import TableOutcome
from tests.delta_rs.small_lake import SmallLake, spec_of
from tests.landing import write_bytes


def code(found: object) -> str | None:
    assert isinstance(found, TableOutcome), found
    return None if found.result.error is None else found.result.error.code


def test_runs_and_verify_fail_until_a_file_is_readable(tmp_path: Path) -> None:
    lake, spec = SmallLake(tmp_path), spec_of()
    write_bytes(Path(lake.layout(spec).landing), "LOAD00000001.parquet", b"PAR1 and nothing else")
    assert [code(lake.run(spec)) for _ in range(2)] == ["FIRST_LOAD_UNREADABLE"] * 2
    assert code(lake.run(spec, JobOptions(action="verify"))) == "FIRST_LOAD_UNREADABLE"
    lake.load(spec)
    assert code(lake.run(spec)) is None
    assert code(lake.run(spec, JobOptions(action="verify"))) is None
    assert len(lake.replica(spec)) == 3


def test_table_with_empty_folder_is_idle(tmp_path: Path) -> None:
    lake, spec = SmallLake(tmp_path), spec_of()
    Path(lake.layout(spec).landing).mkdir(parents=True)
    assert code(lake.run(spec)) is None
