"""SIGKILL inside a rebuild, then an ordinary run: it finishes the refresh, and the tables are right."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.oracle import replay
from tests.spark.children import Ended, killed_at
from tests.spark.crash_tables import RUNS, TYPES, spec_of
from tests.spark.table_lines import TableLines, by_engine, by_oracle, differences, everything

pytestmark = pytest.mark.deep_on_many

STEPS = ("append", "replica", "commit")
UNDISTURBED = spec_of("refreshed")
REFRESH = JobOptions(action=Rebuild())


@dataclass(frozen=True)
class Played:
    """By table.

    Attributes:
        living: as the oracle sees the tables before any refresh, and between the crash and the rerun.
        held: all of them in the end.
        left: files that the refresh has left beside the tables.
    """

    ended: Ended
    before: TableLines
    between: Mapping[str, TableLines]
    rerun: Mapping[str, JobResult]
    held: Mapping[str, TableLines]
    seen: TableLines
    left: Mapping[str, list[str]]


@pytest.fixture(scope="module")
def played(spark: LocalPort, tmp_path_factory: pytest.TempPathFactory) -> Played:
    lake = Lake(tmp_path_factory.mktemp("refresh"))
    broken = {step: spec_of(f"refresh_{step}") for step in STEPS}
    specs = [UNDISTURBED, *broken.values()]
    for run in RUNS:
        for spec in specs:
            lake.land(spec, run, TYPES)
        done = lake.results(spark, lake.job(specs, run_id="before"))
        assert {result.status for result in done.values()} == {"succeeded"}, done
    before = by_engine(lake.layout(UNDISTURBED))
    job = spark.tiered(lake.job(list(broken.values()), REFRESH, "dies"))
    ended = killed_at(job, {spec.table: step for step, spec in broken.items()})
    between = {s.table: by_engine(lake.layout(s)) for s in broken.values()}
    refreshed = lake.results(spark, lake.job([UNDISTURBED], REFRESH, "refresh"))
    rerun = lake.results(spark, lake.job(list(broken.values()), run_id="rerun"))
    return Played(
        ended, before, between, {**refreshed, **rerun},
        held={s.table: everything(lake.layout(s)) for s in specs},
        seen=by_engine(lake.layout(UNDISTURBED)),
        left={s.table: [f.path for f in spark.runtime.storage.list(f"{lake.layout(s).state}/refresh")] for s in specs},
    )  # fmt: skip


def table(step: str) -> str:
    return spec_of(f"refresh_{step}").table


def test_uninterrupted_refresh_is_correct(played: Played) -> None:
    """Same replica, history and change table; the quarantine holds what the files leave there now, as before."""
    wanted = by_oracle(replay(UNDISTURBED, RUNS), UNDISTURBED)
    assert differences(wanted, played.before) == []
    assert differences(played.before, played.seen) == []
    result = played.rerun[UNDISTURBED.table]
    assert (result.status, result.mode, result.changes_written) == ("succeeded", "refresh", 0), result.error


def test_child_is_killed_at_the_step(played: Played) -> None:
    assert played.ended.status == -signal.SIGKILL, played.ended


@pytest.mark.parametrize("step", STEPS)
def test_concurrent_readers_see_consistent_tables(step: str, played: Played) -> None:
    """The files have not changed, so the old replica and the new one hold the same."""
    found = played.between[table(step)]
    for name in ("replica", "changes", "history"):
        assert found[name] == played.before[name], name


@pytest.mark.parametrize("step", STEPS)
def test_rerun_completes_the_refresh(step: str, played: Played) -> None:
    result = played.rerun[table(step)]
    assert (result.status, result.mode) == ("succeeded", "refresh"), result.error
    assert differences(played.held[UNDISTURBED.table], played.held[table(step)]) == []


@pytest.mark.parametrize("step", STEPS)
def test_shadow_tables_are_removed(step: str, played: Played) -> None:
    assert played.left[table(step)] == []
