"""How a continuous job gets new rows and its stop request: through objects in the lake."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import desired_path, stop_path
from airflow_gddl.contract.spec import Continuous, DesiredState, JobOptions, JobSpec, Roots, TableSpec, TierSpec
from airflow_gddl.runtime.landing.continuous_job import FRESH_SECONDS, DesiredStateKeeper
from airflow_gddl.stores import Storage
from spark_jobs.continuous.loop import POLL_SECONDS, DesiredStateReader
from spark_jobs.job.stop import Stop

A, B = (TableSpec(table=f"s.{name}", keys=("id",)) for name in "ab")


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Metadata:
    """What the keeper would read."""

    order: DesiredState | None = field(default_factory=lambda: DesiredState(tables=(A,)))
    down: bool = False

    def __call__(self) -> DesiredState | None:
        if self.down:
            raise RetriableError("METADATA_UNREACHABLE", "it does not answer")
        return self.order


@dataclass
class Both:
    """The two sides of one folder, each with its clock."""

    standing: DesiredStateKeeper
    orders: DesiredStateReader
    metadata: Metadata
    clock: Clock

    def later(self) -> bool:
        """Both look again; whether the job's tables have changed."""
        self.clock.now += max(FRESH_SECONDS, POLL_SECONDS)
        self.standing.refresh()
        return self.orders.poll()


@pytest.fixture
def both(tmp_path: Path) -> Both:
    roots, clock, metadata = Roots(landing=str(tmp_path), lake=str(tmp_path)), Clock(), Metadata()
    standing = DesiredStateKeeper(roots, "gddl_pack.s", metadata, now=clock)
    options = JobOptions(continuous=Continuous(folder=standing.folder))
    job = JobSpec(run_id="run 1/x", roots=roots, tables=(A,), options=options)
    standing.put(DesiredState(tables=(A,), tiers=job.tiers))
    metadata.order = DesiredState(tables=(A,), tiers=job.tiers)
    return Both(standing, DesiredStateReader(job, Storage(), Stop(), clock), metadata, clock)


def test_unchanged_desired_state_changes_nothing(both: Both) -> None:
    assert both.orders.poll() is False
    assert both.later() is False


def test_added_row_changed_tier_and_removed_row(both: Both) -> None:
    tiers = {"small": TierSpec(cores=7)}
    for order in (
        DesiredState(tables=(A, B), tiers=both.orders.job.tiers),
        DesiredState(tables=(A, B), tiers=tiers),
        DesiredState(tables=(B,), tiers=tiers),
    ):
        both.metadata.order = order
        assert both.later() is True
        assert (both.orders.job.tables, both.orders.job.tiers) == (order.tables, order.tiers)
        assert both.later() is False


def test_polling_is_limited_on_both_sides(both: Both) -> None:
    both.orders.poll()
    both.metadata.order = DesiredState(tables=(B,))
    both.clock.now += FRESH_SECONDS - 0.1
    both.standing.refresh()
    both.clock.now = POLL_SECONDS - 0.1
    assert both.orders.poll() is False
    assert both.later() is True


def test_unreadable_metadata_and_damaged_state_change_nothing(both: Both) -> None:
    both.metadata.down = True
    assert both.later() is False
    both.metadata.down, both.metadata.order = False, None
    assert both.later() is False
    Path(desired_path(both.standing.folder)).write_text('{"tables": [{"table": 7}]}')
    both.clock.now += POLL_SECONDS
    assert both.orders.poll() is False
    assert both.orders.job.tables == (A,)
    assert not both.orders.stop.is_asked


def test_stop_request_is_for_one_job(both: Both) -> None:
    Path(stop_path(both.standing.folder, "another")).touch()
    assert (both.later(), both.orders.stop.is_asked) == (False, False)
    Path(stop_path(both.standing.folder, "run 1/x")).touch()
    both.later()
    assert both.orders.stop.is_asked


def test_job_without_a_folder_reads_nothing(both: Both) -> None:
    job = JobSpec(run_id="r", roots=both.orders.job.roots, tables=(A,), options=JobOptions(continuous=Continuous()))
    assert DesiredStateReader(job, Storage(), Stop(), both.clock).poll() is False
