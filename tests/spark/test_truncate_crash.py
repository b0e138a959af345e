"""SIGKILL while a truncate is applied, then a rerun: the tables of an undisturbed run, in every way of the engine."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from airflow_gddl.contract.spec import TableSpec
from tests.conftest import LocalPort, Way, table_of, ways_of_spark
from tests.oracle import Run, replay
from tests.spark.children import killed_at
from tests.spark.crash_tables import BEFORE, COLUMNS, SECOND_CHANGES, SECOND_COPIES, TYPES, change, spec_of
from tests.spark.lake import Lake
from tests.spark.table_lines import by_engine, by_oracle, differences
from tests.strategies import file_of

pytestmark = pytest.mark.timeout(900)

TRUNCATED = Run((
    file_of("20240101-000000002.parquet", load=False, rows=[*SECOND_CHANGES, change("T", 22, None)], columns=COLUMNS),
    file_of("20240101-000000003.parquet", load=False, rows=SECOND_COPIES, columns=COLUMNS),
))  # fmt: skip
WAYS = {"merged": Way(merged=True), "small": Way(), "large": Way(in_tasks=True, large=True)}
STEPS = ("append", "truncate", "merge")


def _spec(step: str, way: str) -> TableSpec:
    name = table_of(WAYS[way], spec_of(f"truncate_{step}").table)
    return replace(spec_of(name.removeprefix("crash.")), truncate="apply")


def test_rerun_after_a_kill(spark: LocalPort, tmp_path_factory: pytest.TempPathFactory) -> None:
    lake = Lake(tmp_path_factory.mktemp("crash"))
    places = [(_spec(step, way), step) for way in WAYS for step in STEPS]
    specs = [spec for spec, _ in places]
    for spec in specs:
        lake.land(spec, BEFORE, TYPES)
    first = lake.run(LocalPort("delta_rs"), lake.job(specs, run_id="before"))
    assert {result.status for result in first.values()} == {"succeeded"}, first
    for spec in specs:
        lake.land(spec, TRUNCATED, TYPES)
    job = spark.tiered(lake.job(specs, run_id="dies"))
    ended = killed_at(job, {spec.table: step for spec, step in places})
    assert ended.status == -signal.SIGKILL, ended
    with ways_of_spark():
        lake.run(spark, lake.job(specs, run_id="rerun"))
    for spec in specs:
        wanted = by_oracle(replay(spec, (BEFORE, TRUNCATED)), spec)
        assert differences(wanted, by_engine(lake.layout(spec))) == [], spec.table
