"""`gddl eject`: the plain job loads the scenarios that it claims, from nothing and from tables that we have loaded."""

from __future__ import annotations

import runpy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
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
from airflow_gddl.tools.eject import Known, files_of
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


def decimals(scale: int, *values: str) -> pa.Array:
    return pa.array([Decimal(value) for value in values], pa.decimal128(12, scale))


NOON = datetime(2024, 7, 1, 12)  # noqa: DTZ001 - no zone
FITS: dict[str, tuple[pa.Array, pa.Array, pa.Array]] = {
    "scale": (decimals(2, "1.25"), decimals(4, "2.5000"), decimals(4, "2.5001")),
    "digits": (decimals(2, "1.25"), decimals(0, "7"), pa.array([Decimal(10) ** 20], pa.decimal128(38, 0))),
    "double_to_int": (pa.array([1]), pa.array([2.0]), pa.array([2.5])),
    "double_to_decimal": (decimals(2, "1.25"), pa.array([0.1]), pa.array([0.125])),
    "wide_to_double": (pa.array([1.0]), pa.array([2**53]), pa.array([2**53 + 1])),
    "narrower": (pa.array([1], pa.int16()), pa.array([7]), pa.array([70_000])),
    "time_to_day": (pa.array([NOON.date()]), pa.array([datetime(2024, 7, 1)]), pa.array([NOON])),  # noqa: DTZ001 - no zone
    "text_to_int": (pa.array([1]), pa.array(["2"]), pa.array(["2.5"])),
    "float": (pa.array([1.5], pa.float32()), pa.array([2.5]), pa.array([0.1])),
}
"""Values of a column: as the table has it, in another type that fits, and one that would be cut or lost."""


def test_values_of_another_type_are_right_or_stop_the_job(spark: SparkSession, tmp_path: Path) -> None:
    """As ours has them; what ours puts into quarantine stops the job, and changes nothing."""
    lake, spec = Lake(tmp_path), spec_of()
    write(lake.landing(spec), "LOAD00000001.parquet", pa.table({"id": [0], **{n: one[0] for n, one in FITS.items()}}))
    lake.done(spec)
    known = known_of(spec, lake.roots)
    good = pa.table({"Op": ["I"], "seq": [1], "id": [1], **{name: one[1] for name, one in FITS.items()}})
    write(lake.landing(spec), "20240101-000000001.parquet", good)
    assert loaded(spark, spec, lake.roots, known, tmp_path / "job") == 1
    mine = rows_of(spark, lake.layout(spec).replica)
    wanted = [{n: one[at].cast(one[0].type)[0].as_py() for n, one in FITS.items()} for at in (0, 1)]
    assert [{name: row[name] for name in FITS} for row in mine] == wanted
    for number, (name, (_, _, bad)) in enumerate(FITS.items(), start=2):
        file = f"20240101-{number:09d}.parquet"
        write(lake.landing(spec), file, pa.table({"Op": ["I"], "seq": [2], "id": [2], name: bad}))
        with pytest.raises(PySparkException, match=f"{name}, .*, does not fit .* in row 0 of {file}"):
            loaded(spark, spec, lake.roots, known, tmp_path / "job")
        (lake.landing(spec) / file).unlink()
    assert rows_of(spark, lake.layout(spec).replica) == mine


def test_files_of_one_run_lose_no_digits_together(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads whole numbers and doubles together as doubles."""
    lake, spec = Lake(tmp_path), spec_of()
    write(lake.landing(spec), "LOAD00000001.parquet", pa.table({"id": [0], "seq": [0], "v": [2**53 + 1]}))
    write(lake.landing(spec), "LOAD00000002.parquet", pa.table({"id": [1], "seq": [0], "v": [1.5]}))
    with pytest.raises(PySparkException, match="v, bigint, does not fit double in row 0 of LOAD00000001"):
        loaded(spark, spec, lake.roots, Known(), tmp_path / "job")


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_texts_that_no_partition_holds_stop_the_job(value: str, spark: SparkSession, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(spec_of(), partition_by=("v",))
    lake.load(spec)
    lake.done(spec)
    known = known_of(spec, lake.roots)
    lake.change(spec, 1, [("U", 0, "other")])
    assert loaded(spark, spec, lake.roots, known, tmp_path / "job") == 1
    lake.change(spec, 2, [("U", 1, value)])
    with pytest.raises(PySparkException, match="v, string, does not fit string"):
        loaded(spark, spec, lake.roots, known, tmp_path / "job")
    assert lake.replica(spec) == {0: "other", 1: "load 1", 2: "load 2"}


def test_columns_with_marks_in_their_names(spark: SparkSession, tmp_path: Path) -> None:
    """A dot names no field of a struct; also of a column that comes later, and in the key and the order."""
    lake, spec = Lake(tmp_path), replace(spec_of(), keys=("a.id",), sequence_by=("b.seq",))
    write(lake.landing(spec), "LOAD00000001.parquet", pa.table({"a.id": [0, 1], "c.v`w": ["x", "y"]}))
    write(lake.landing(spec), "20240101-000000001.parquet",
          pa.table({"Op": ["U"], "b.seq": [1], "a.id": [0], "c.v`w": ["z"]}))  # fmt: skip
    lake.done(spec)
    known = known_of(spec, lake.roots)
    later = {"Op": ["U", "U"], "b.seq": [2, 3], "a.id": [1, 0], "d.late": ["new", "newer"]}
    write(lake.landing(spec), "20240101-000000002.parquet", pa.table(later))
    assert loaded(spark, spec, lake.roots, known, tmp_path / "job") == 1
    rows = [{name: row.get(name) for name in ("a.id", "b.seq", "c.v`w", "d.late")} for row in
            rows_of(spark, lake.layout(spec).replica)]  # fmt: skip
    assert rows == [{"a.id": 0, "b.seq": 3, "c.v`w": "z", "d.late": "newer"},
                    {"a.id": 1, "b.seq": 2, "c.v`w": "y", "d.late": "new"}]  # fmt: skip


def test_a_later_file_with_an_equal_sequence_replaces_the_row(spark: SparkSession, tmp_path: Path) -> None:
    """As with ours, to which the names of files tell their order."""
    lakes = [Lake(tmp_path / name) for name in ("ours", "theirs")]
    spec = spec_of()
    for lake in lakes:
        lake.load(spec)
        change(
            lake, spec, 1, ("Op", "seq", "id", "v"), ("U", 5, 0, "first"), ("U", 6, 1, "first"), ("U", 7, 2, "first")
        )
        lake.done(spec)
    known = known_of(spec, lakes[1].roots)
    for lake in lakes:
        change(lake, spec, 2, ("Op", "seq", "id", "v"), ("U", 5, 0, "equal"), ("D", 6, 1, None), ("U", 6, 2, "older"))
    lakes[0].done(spec)
    assert loaded(spark, spec, lakes[1].roots, known, tmp_path / "job") == 1
    assert lakes[1].replica(spec) == lakes[0].replica(spec) == {0: "equal", 2: "first"}
