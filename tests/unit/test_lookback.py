"""A continuous job looks far back at intervals: late files are found, none is loaded twice, turns stay cheap."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.extensions import DmsOptions
from spark_jobs.discovery import EVERY, GLANCE_BACK, DeepListings, discover
from spark_jobs.plan.waiting_files import Discovery
from tests.harness.landing_folder import START, Table

SECOND = timedelta(seconds=1)


@dataclass
class Job:
    """Turns of one table, as a job that goes on takes them."""

    table: Table
    deep_listings: DeepListings = field(default_factory=DeepListings)
    taken: Counter[str] = field(default_factory=Counter)
    longs: int = 0

    def poll(self, took: timedelta = timedelta(0)) -> Discovery:
        """`took`: how long it takes where it is a long look."""
        place, ledger, now = self.table.place, self.table.ledger(), self.table.now
        back = self.deep_listings.reach(place.root, now)
        found = discover(place, ledger, now, back=back)
        if back is None:
            self.longs += 1
            self.deep_listings.record(place.root, found, ledger.state.cursor, now, now + took)
        return found

    def turn(self, most: int = 1000) -> None:
        """Take what waits, in at most so many batches."""
        found = self.poll()
        self.taken.update(self.table.take(self.table.ledger(), found, most))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    table = Table.below(tmp_path, DmsOptions(lookback="2d"))
    table.land("LOAD00000001.csv")
    table.land_changes(48, timedelta(hours=1))
    made = Job(table)
    made.turn()
    return made


def test_a_turn_after_another_lists_the_newest_files_alone(job: Job) -> None:
    job.turn()
    assert (job.longs, job.poll().listed) == (2, 2)
    job.table.land(job.table.name(job.table.now))
    job.table.now += SECOND
    job.turn()
    assert (job.longs, sum(job.taken.values())) == (2, 50)


def test_a_late_file_is_taken_within_a_minute(job: Job) -> None:
    job.turn()
    late = job.table.land(job.table.name(START + timedelta(minutes=30)))
    job.table.now += EVERY - SECOND
    job.turn()
    assert job.taken[late] == 0
    job.table.now += SECOND
    job.turn()
    assert job.taken[late] == 1


def test_finding_of_a_deep_listing_causes_another(job: Job) -> None:
    """A poll only reports that there is work; the run that takes it, later, lists for itself."""
    late = f"{job.table.landing}/{job.table.land(job.table.name(START + timedelta(minutes=30)))}"
    for _ in range(2):
        assert [file.path for file in job.poll().waiting] == [late]
    job.turn()
    job.turn()
    assert job.longs == 5
    assert job.poll().waiting == ()
    assert job.longs == 5


def test_a_reload_is_seen_at_once(job: Job) -> None:
    job.turn()
    job.table.land("LOAD00000001.csv", "I,2")
    assert [file.generation for file in job.poll().waiting] == [2]


def test_deep_listings_are_limited_by_their_duration(job: Job) -> None:
    job.poll(took=timedelta(seconds=30))
    job.table.now += timedelta(seconds=9 * 60)
    job.poll()
    assert job.longs == 2
    job.table.now += timedelta(seconds=90)
    job.poll()
    assert job.longs == 3


def test_clock_set_back_causes_a_deep_listing(job: Job) -> None:
    job.turn()
    job.table.now -= SECOND
    job.turn()
    assert job.longs == 3


def test_table_without_change_files_is_listed_in_full(tmp_path: Path) -> None:
    job = Job(Table.below(tmp_path))
    job.table.land("LOAD00000001.csv")
    job.turn()
    job.turn()
    assert (job.longs, sum(job.taken.values())) == (2, 1)


ARRIVALS = st.lists(
    st.tuples(
        st.integers(-3, 3).map(lambda n: n * GLANCE_BACK / 2),  # named so much after the clock's time
        st.integers(0, 40).map(lambda n: n * SECOND),  # and the clock goes on
        st.sampled_from([0, 1, 1, 2]),  # batches that a turn then takes
    ),
    max_size=25,
)


@given(arrivals=ARRIVALS)
def test_each_late_file_is_ingested_once(arrivals: list[tuple[timedelta, timedelta, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Table.below(Path(folder), DmsOptions(lookback="1d"))
        table.limits = type(table.limits)(max_files=2, max_bytes=10**9)
        table.now = START + timedelta(hours=12)
        landed = {table.land("LOAD00000001.csv")}
        job = Job(table)
        for named, passes, batches in arrivals:
            landed.add(table.land(table.name(table.now + named)))
            table.now += passes
            job.turn(batches)
        job.turn()
        table.now += EVERY
        job.turn()
        assert job.taken == Counter(landed)
