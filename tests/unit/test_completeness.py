"""Until when a source is known to be complete, and when its log stands still, against a source that is simulated."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.actions import Verify, WindowLength
from airflow_gddl.contract.completeness import (
    DELIVERY_SECONDS,
    HeartbeatFacts,
    Verified,
    complete_until,
    is_stopped,
    window_bounds,
)
from airflow_gddl.contract.errors import FatalError
from spark_jobs.verification import grid_of
from tests.harness.examples import at_random

LIMIT, BEAT, DELIVERY = 1800.0, 60.0, 240.0
moments = st.floats(0, 10**6)
maybe = st.none() | moments


@dataclass
class Source:
    """The truth: the source updates its heartbeat each minute until it stops; a file lands after some delay, which
    grows and shrinks; runs take what has landed.

    Attributes:
        stops: when the service ends to read the log; null: never.
    """

    stops: float | None = None
    now: float = 0.0
    facts: HeartbeatFacts = field(default_factory=HeartbeatFacts)

    def run(self, after: float, delay: float) -> None:
        self.now += after
        end = self.now - delay if self.stops is None else min(self.stops, self.now - delay)
        newest = end // BEAT * BEAT
        if newest >= 0:
            loaded = self.now if newest != self.facts.commit else self.facts.loaded
            self.facts = HeartbeatFacts(commit=newest, loaded=loaded, as_of=self.now)


steps = st.lists(st.tuples(st.floats(0, 20_000), st.floats(0, DELIVERY)), min_size=1, max_size=12)


@settings(max_examples=at_random(2000))
@given(steps=steps, pause=st.floats(0, 10**6))
def test_a_log_that_goes_on_is_never_said_to_stand_still(steps: list[tuple[float, float]], pause: float) -> None:
    """However rarely it is looked at, and however long nobody has."""
    source = Source()
    for after, delay in steps:
        source.run(after, delay)
        assert not is_stopped(source.facts, LIMIT)
    source.now += pause
    assert not is_stopped(source.facts, LIMIT)


@settings(max_examples=at_random(1000))
@given(steps=steps, stops=st.floats(0, 10_000))
def test_a_log_that_stands_still_is_found_by_the_next_look(steps: list[tuple[float, float]], stops: float) -> None:
    source = Source(stops=stops)
    for after, delay in steps:
        source.run(after, delay)
        if source.facts.commit is not None:
            assert is_stopped(source.facts, LIMIT) == (source.now - source.facts.commit > LIMIT)
    source.now = max(source.now, stops)
    source.run(LIMIT + BEAT + 1, 0.0)
    assert is_stopped(source.facts, LIMIT)


def test_without_evidence_or_limit_nothing_stands_still() -> None:
    old = HeartbeatFacts(commit=0.0, as_of=10**9)
    assert is_stopped(old, LIMIT)
    assert not any((is_stopped(None, LIMIT), is_stopped(old, None), is_stopped(HeartbeatFacts(as_of=10**9), LIMIT)))


def test_a_table_with_changes_of_its_own_is_not_stopped() -> None:
    """What updates the heartbeat has ended; the log goes on."""
    ended = HeartbeatFacts(commit=0.0, as_of=10_000.0)
    assert [is_stopped(ended, LIMIT, commit) for commit in (None, 10_000.0 - LIMIT - 1, 10_000.0 - LIMIT)] == [
        True, True, False,
    ]  # fmt: skip


def test_a_heartbeat_of_which_only_the_full_load_came_stands_still_since_then() -> None:
    assert not is_stopped(HeartbeatFacts(loaded=0.0, as_of=LIMIT), LIMIT)
    assert is_stopped(HeartbeatFacts(loaded=0.0, as_of=LIMIT + 1), LIMIT)


@settings(max_examples=at_random(2000))
@given(commit=maybe, as_of=maybe, beat=maybe, verified=maybe, missing=maybe)
def test_complete_until_is_what_evidence_says_and_not_more(
    commit: float | None, as_of: float | None, beat: float | None, verified: float | None, missing: float | None
) -> None:
    found = complete_until(commit, as_of, HeartbeatFacts(commit=beat), verified=verified, missing_from=missing)
    if found is None:
        assert (commit, verified) == (None, None)
        assert beat is None or as_of is None
        return
    assert missing is None or found <= missing
    proven = [x for x in (commit, verified) if x is not None]
    assert found <= max([*proven, *([] if beat is None or as_of is None else [min(beat, as_of - DELIVERY_SECONDS)])])
    if missing is None:
        assert all(found >= x for x in proven)


def test_a_heartbeat_is_no_evidence_of_what_may_not_have_landed() -> None:
    beat = HeartbeatFacts(commit=5000.0)
    assert complete_until(1000.0, 4000.0, beat) == 4000.0 - DELIVERY_SECONDS
    assert complete_until(1000.0, 9000.0, beat) == 5000.0
    assert complete_until(1000.0, None, beat) == 1000.0


def test_a_commit_time_that_can_not_be_hides_no_stopped_log() -> None:
    """One row of the year 9999 is the newest commit for good."""
    never, day = 253_370_764_800.0, 86_400.0
    beat = HeartbeatFacts(commit=never, loaded=5000.0, as_of=15_000.0)
    assert (beat.standstill, is_stopped(beat, 3600.0)) == (10_000.0, True)
    assert not is_stopped(HeartbeatFacts(commit=never, loaded=14_000.0, as_of=15_000.0), 3600.0)
    ahead = HeartbeatFacts(commit=15_000.0 + day, loaded=5000.0, as_of=15_000.0)
    assert ahead.standstill == 0.0, "a clock may be ahead"


def test_a_finding_ends_when_its_time_is_compared_again() -> None:
    found = Verified().after(since=0.0, until=50.0, missing_from=50.0)
    assert found == Verified(until=50.0, missing_from=50.0)
    assert found.after(since=60.0, until=100.0, missing_from=None) == Verified(until=100.0, missing_from=50.0)
    assert found.after(since=50.0, until=100.0, missing_from=None) == Verified(until=100.0)
    assert found.after(since=None, until=100.0, missing_from=None) == Verified(until=100.0)
    assert found.after(since=0.0, until=70.0, missing_from=70.0) == Verified(until=70.0, missing_from=70.0)
    for until in (None, 40.0, 50.0):  # not compared, or open or unsettled from then on
        assert found.after(since=0.0, until=until, missing_from=None) == found
    assert found.after(since=60.0, until=None, missing_from=70.0) == Verified(until=50.0, missing_from=50.0)


def test_bounds_are_read_of_verifications_by_windows_alone() -> None:
    assert window_bounds({"windows": {"since": "a", "missing_from": None}}) == ("a", None)
    assert [window_bounds(details) for details in (None, {}, {"windows": None}, {"batches": []})] == [None] * 4


@pytest.mark.parametrize(("days", "window"), [(417, "hour"), (10_001, "day"), (1_000_000, "day")])
def test_more_windows_than_can_be_kept_are_refused(days: int, window: WindowLength) -> None:
    until = datetime(2024, 1, 31, tzinfo=UTC)
    with pytest.raises(FatalError, match="OPTION_INVALID"):
        grid_of(Verify(since_seconds=days * 86_400.0, window=window), until)
    assert grid_of(Verify(since_seconds=416 * 86_400.0, window="hour"), until)
