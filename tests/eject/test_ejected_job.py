"""`gddl eject`: the plain job loads the scenarios that it claims, from nothing and from tables that we have loaded."""

from __future__ import annotations

import runpy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.eject import files_of
from tests.conftest import SPARK, LocalPort
from tests.scenarios.loading import load_all
from tests.scenarios.model import Scenario
from tests.scenarios.playing import play
from tests.scenarios.staging import LocalGround

CLAIMED = (
    "dms_parallel_load", "r01_default_choice", "r01_sequence_not_arrival", "r01_several_columns", "r01_text_lsn",
    "r01_whole_numbers", "r02_net_change_per_key", "r02_position_decides_inside_a_file", "r05_bounded_batches",
    "r04_same_changes_under_a_new_name", "r08_delete_carries_only_the_key", "r11_new_column_added",
    "r12_columns_excluded",
)  # fmt: skip
SCENARIOS = [scenario for scenario in load_all() if scenario.name in CLAIMED]


def test_claimed_scenarios_exist() -> None:
    assert {scenario.name for scenario in SCENARIOS} == set(CLAIMED)


def loaded(spark: SparkSession, spec: TableSpec, layout: Layout, columns: tuple[str, ...], folder: Path) -> int:
    """Files that the ejected job loads."""
    folder.mkdir(exist_ok=True)
    for name, text in files_of(spec, layout, columns, "@hourly").items():
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


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    """Columns of the replicas that we make of the scenarios."""
    ground = LocalGround(tmp_path_factory.mktemp("ours"))
    seen = play(LocalPort("delta_rs"), SCENARIOS, ground)
    return {name: tuple(found[-1].columns) for name, found in seen.items()}


@pytest.mark.parametrize(
    "scenario", [SCENARIOS[0], *(pytest.param(one, marks=pytest.mark.deep) for one in SCENARIOS[1:])], ids=str
)
def test_job_loads_a_table_from_nothing(
    scenario: Scenario, spark: SparkSession, columns: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    ground = LocalGround(tmp_path)
    spec = scenario.spec()
    layout = Layout.of(ground.roots, spec)
    for run in scenario.runs:
        ground.land(scenario, run)
        loaded(spark, spec, layout, columns[scenario.name], tmp_path / "job")
    assert rows_of(spark, layout.replica) == wanted(scenario)
    assert loaded(spark, spec, layout, columns[scenario.name], tmp_path / "job") == 0


def test_job_continues_tables_that_we_have_loaded(
    spark: SparkSession, columns: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    """Our files are not read again: rows of a full load that were deleted since don't come back."""
    ground = LocalGround(tmp_path)
    several = [scenario for scenario in SCENARIOS if len(scenario.runs) > 1]
    play(LocalPort("delta_rs"), [replace(scenario, runs=scenario.runs[:-1]) for scenario in several], ground)
    for scenario in several:
        spec = scenario.spec()
        layout = Layout.of(ground.roots, spec)
        ground.land(scenario, scenario.runs[-1])
        assert loaded(spark, spec, layout, columns[scenario.name], tmp_path / scenario.name) == len(
            scenario.runs[-1].files
        )
        assert rows_of(spark, layout.replica) == wanted(scenario), scenario.name
