"""SIGKILL while a truncate is applied, then a rerun: the tables of an undisturbed run, in every way of the engine."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from airflow_gddl.contract.spec import TableSpec
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.places import Way, table_of
from tests.oracle import replay
from tests.spark.children import killed_at
from tests.spark.crash_tables import TRUNCATED_LATE, TYPES, spec_of
from tests.spark.table_lines import by_engine, by_oracle, differences

pytestmark = pytest.mark.timeout(900)

WAYS = {"merged": Way(merged=True), "small": Way(), "large": Way(in_tasks=True, large=True)}
STEPS = ("append", "truncate", "fold_again", "replica")


def _spec(step: str, way: str) -> TableSpec:
    name = table_of(WAYS[way], spec_of(f"truncate_{step}").table)
    return replace(spec_of(name.removeprefix("crash.")), truncate="apply", ignore_null_updates=True)


@pytest.mark.deep_on_many
def test_rerun_after_a_kill(spark: LocalPort, tmp_path_factory: pytest.TempPathFactory) -> None:
    lake = Lake(tmp_path_factory.mktemp("crash"))
    places = [(_spec(step, way), step) for way in WAYS for step in STEPS]
    specs = [spec for spec, _ in places]
    first, last = TRUNCATED_LATE
    for spec in specs:
        lake.land(spec, first, TYPES)
    loaded = lake.results(LocalPort("one"), lake.job(specs, run_id="before"))
    assert {result.status for result in loaded.values()} == {"succeeded"}, loaded
    for spec in specs:
        lake.land(spec, last, TYPES)
    job = spark.tiered(lake.job(specs, run_id="dies"))
    ended = killed_at(job, {spec.table: step for spec, step in places})
    assert ended.status == -signal.SIGKILL, ended
    lake.results(spark.everywhere(), lake.job(specs, run_id="rerun"))
    for spec in specs:
        wanted = by_oracle(replay(spec, TRUNCATED_LATE), spec)
        assert differences(wanted, by_engine(lake.layout(spec))) == [], spec.table
