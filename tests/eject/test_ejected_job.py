"""`gddl eject`: the plain job loads the scenarios that it claims, from nothing and from tables that we have loaded."""

from __future__ import annotations

import runpy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_gddl.contract.actions import Eject, Erase
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, JobSpec, Roots, TableSpec
from airflow_gddl.eject import Known, files_of
from spark_jobs.job.job_tables import run_job
from tests.conftest import SPARK, LocalPort
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write
from tests.scenarios.loading import load_all
from tests.scenarios.model import Scenario
from tests.scenarios.playing import play
from tests.scenarios.staging import LocalGround

CLAIMED = (
    "dms_parallel_load", "r01_default_choice", "r01_sequence_not_arrival", "r01_several_columns",
    "r01_whole_numbers", "r02_net_change_per_key", "r02_position_decides_inside_a_file", "r05_bounded_batches",
    "r04_same_changes_under_a_new_name", "r11_new_column_added",
    "r12_columns_excluded",
)  # fmt: skip
SCENARIOS = [scenario for scenario in load_all() if scenario.name in CLAIMED]


def test_claimed_scenarios_exist() -> None:
    assert {scenario.name for scenario in SCENARIOS} == set(CLAIMED)


def loaded(spark: SparkSession, spec: TableSpec, roots: Roots, known: Known, folder: Path) -> int:
    """Files that the ejected job loads."""
    folder.mkdir(exist_ok=True)
    for name, text in files_of(spec, roots, known, "@hourly").items():
        (folder / name).write_text(text)
    run = runpy.run_path(str(folder / "job.py"))["run"]
    return int(run(spark))


def rows_of(spark: SparkSession, path: str) -> list[dict[str, Any]]:
    rows = spark.read.format("delta").load(path).collect()
    return compared(row.asDict(recursive=True) for row in rows)


def compared(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return sorted(map(known, rows), key=by_name)


def known(row: Mapping[str, Any]) -> dict[str, Any]:
    """As scenarios write rows: no nulls, times as text."""
    texts = {name: str(value) if isinstance(value, datetime) else value for name, value in row.items()}
    return {name: value for name, value in texts.items() if name != "_gddl" and value is not None}


def by_name(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def wanted(scenario: Scenario) -> list[dict[str, Any]]:
    return compared(scenario.expect.replica or ())


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return SPARK.for_table()


def ejected(port: LocalPort, spec: TableSpec, roots: Roots) -> JobResult:
    options = JobOptions(action=Eject(), full_listing=True)
    job = JobSpec(run_id="eject", roots=roots, tables=(spec,), tiers=DEFAULT_TIERS, options=options)
    (outcome,) = run_job(port.tiered(job), port.runtime, lambda _: None)
    return outcome.result


def known_of(spec: TableSpec, roots: Roots) -> Known:
    """What ours knows, once it has loaded the table."""
    found = ejected(LocalPort("one"), spec, roots)
    assert found.error is None, found.error
    return Known(**(found.details or {}))


@pytest.fixture(scope="module")
def sequences(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Known]:
    """What orders changes in the tables that we make of the scenarios."""
    ground = LocalGround(tmp_path_factory.mktemp("ours"))
    play(LocalPort("one"), SCENARIOS, ground)
    found = {one.name: known_of(replace(one.spec(), size="small"), ground.roots) for one in SCENARIOS}
    return {name: Known(sequence=one.sequence) for name, one in found.items()}


@pytest.mark.parametrize(
    "scenario", [SCENARIOS[0], *(pytest.param(one, marks=pytest.mark.deep) for one in SCENARIOS[1:])], ids=str
)
def test_job_loads_a_table_from_nothing(
    scenario: Scenario, spark: SparkSession, sequences: dict[str, Known], tmp_path: Path
) -> None:
    ground = LocalGround(tmp_path)
    spec = scenario.spec()
    layout = Layout.of(ground.roots, spec)
    for run in scenario.runs:
        ground.land(scenario, run)
        loaded(spark, spec, ground.roots, sequences[scenario.name], tmp_path / "job")
    assert rows_of(spark, layout.replica) == wanted(scenario)
    assert loaded(spark, spec, ground.roots, sequences[scenario.name], tmp_path / "job") == 0


@pytest.mark.deep
def test_job_continues_tables_that_we_have_loaded(spark: SparkSession, tmp_path: Path) -> None:
    """Our files are not read again: rows of a full load that were deleted since don't come back."""
    ground = LocalGround(tmp_path)
    several = [scenario for scenario in SCENARIOS if len(scenario.runs) > 1]
    play(LocalPort("one"), [replace(scenario, runs=scenario.runs[:-1]) for scenario in several], ground)
    for scenario in several:
        spec = scenario.spec()
        layout, known = Layout.of(ground.roots, spec), known_of(spec, ground.roots)
        ground.land(scenario, scenario.runs[-1])
        new = loaded(spark, spec, ground.roots, known, tmp_path / scenario.name)
        assert new == len(scenario.runs[-1].files)
        assert rows_of(spark, layout.replica) == wanted(scenario), scenario.name


def change(lake: Lake, spec: TableSpec, number: int, names: Sequence[str], *rows: tuple[Any, ...]) -> None:
    """A change file with these names of the columns op, seq, id and v."""
    kinds = (pa.string(), pa.int64(), pa.int32(), pa.string())
    columns = {
        name: pa.array([row[at] for row in rows], kind)
        for at, (name, kind) in enumerate(zip(names, kinds, strict=True))
    }
    write(lake.landing(spec), f"20240101-{number:09d}.parquet", pa.table(columns))


def test_names_compare_without_case_and_bad_rows_stop_the_job(spark: SparkSession, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    lake.change(spec, 1, [("U", 0, "newer"), ("D", 1, None)])
    lake.done(spec)
    known = known_of(spec, lake.roots)
    change(lake, spec, 2, ("OP", "SEQ", "ID", "V"), ("U", 50, 0, "older"), ("d", 60, 2, None), ("I", 70, 9, "new"))
    assert loaded(spark, spec, lake.roots, known, tmp_path / "job") == 1
    assert lake.replica(spec) == {0: "newer", 9: "new"}
    for number, row in enumerate([("X", 80, 0, "op"), ("U", None, 0, "seq"), ("U", 90, None, "id")], start=3):
        change(lake, spec, number, ("Op", "seq", "id", "v"), row)
        with pytest.raises(PySparkException, match="no key, sequence or known operation"):
            loaded(spark, spec, lake.roots, known, tmp_path / "job")
        (lake.landing(spec) / f"20240101-{number:09d}.parquet").unlink()
    assert lake.replica(spec) == {0: "newer", 9: "new"}


def test_what_ours_has_taken_away_does_not_come_back(spark: SparkSession, tmp_path: Path) -> None:
    """An erased key, rows of a file that the change table lacks, and a key that is used again."""
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    lake.change(spec, 1, [("U", 0, "one"), ("I", 7, "person"), ("D", 1, None)])
    lake.change(spec, 2, [("U", 0, "one"), ("I", 7, "person"), ("D", 1, None)])
    lake.done(spec)
    lake.done(spec, JobOptions(action=Erase(key={"id": "7"})))
    change(lake, spec, 3, ("Op", "seq", "id", "v"), ("U", 101, 7, "person"), ("U", 900, 2, "two"))
    known = known_of(spec, lake.roots)
    assert [*known.files] == ["20240101-000000001.parquet", "20240101-000000002.parquet", "LOAD00000001.parquet"]
    assert loaded(spark, spec, lake.roots, known, tmp_path / "job") == 1
    assert lake.replica(spec) == {0: "one", 2: "two"}
    change(lake, spec, 4, ("Op", "seq", "id", "v"), ("I", 950, 7, "another person"))
    assert loaded(spark, spec, lake.roots, known, tmp_path / "job") == 1
    assert lake.replica(spec) == {0: "one", 2: "two", 7: "another person"}


def test_the_order_is_known_where_a_full_load_alone_lacks_its_columns(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(spec_of(), sequence_by=("seq", "step"))
    write(lake.landing(spec), "LOAD00000001.parquet", pa.table({"id": [1], "v": ["a"], "step": [0]}))
    lake.done(spec)
    assert known_of(spec, lake.roots).sequence == ["seq", "step"]


LEFT_OUT: dict[str, dict[str, Any]] = {
    "excluded": {"exclude_columns": ("seq",)},
    "not_named": {"columns": ("v",)},
}


def reason(lake: Lake, spec: TableSpec) -> str:
    found = ejected(LocalPort("one"), spec, lake.roots)
    assert found.error is not None
    assert found.error.code == "EJECT_UNSUPPORTED"
    return found.error.message


def test_tables_whose_state_a_job_does_not_know_are_refused(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    lake.change(spec, 1, [("U", 0, "one")])
    lake.done(spec)
    lake.change(spec, 1, [("U", 0, "corrected")])
    assert "written again" in reason(lake, spec)
    lake.done(spec)
    lake.load(spec, rows=0)
    lake.done(spec)
    assert "waits for a decision" in reason(lake, spec)
    for name, left_out in LEFT_OUT.items():
        spec = spec_of(name, **left_out)
        lake.load(spec)
        lake.change(spec, 1, [("U", 0, "one")])
        lake.done(spec)
        assert "lacks a column that orders changes" in reason(lake, spec), name
    texts = spec_of("texts")
    lake.load(texts)
    row = pa.table({"Op": ["U"], "seq": ["0/A"], "id": pa.array([0], pa.int32()), "v": ["text"]})
    write(lake.landing(texts), "20240101-000000001.parquet", row)
    lake.done(texts)
    assert "text in a form of its own" in reason(lake, texts)
