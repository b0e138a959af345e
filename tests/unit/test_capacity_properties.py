"""Starts as croniter counts them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

import pytest
from croniter import croniter
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.spec import DEFAULT_TIERS, TableSpec
from airflow_gddl.metadata.cron import days_of, longest_gap, minutes_of
from airflow_gddl.tools.capacity.plan import starts_on
from airflow_gddl.topology.pipelines import arrange
from tests.harness.examples import at_random


def fields(least: int, most: int) -> st.SearchStrategy[str]:
    numbers = st.integers(least, most)
    ranges = st.tuples(numbers, numbers).map(lambda pair: f"{min(pair)}-{max(pair)}")
    lists = st.lists(numbers, min_size=1, max_size=3).map(lambda found: ",".join(map(str, found)))
    steps = st.integers(1, max(2, most // 2)).map(lambda step: f"*/{step}")
    return st.one_of(st.just("*"), numbers.map(str), ranges, lists, steps)


DAYS = st.dates(date(2026, 1, 1), date(2027, 12, 31))
CRONS = st.builds(
    lambda *parts: " ".join(parts),
    fields(0, 59),
    fields(0, 23),
    st.one_of(st.just("*"), fields(1, 28)),
    st.one_of(st.just("*"), fields(1, 12)),
    st.one_of(st.just("*"), fields(0, 6)),
)


def fires(cron: str, day: date) -> list[int]:
    """Minutes of the day at which croniter says that the line fires."""
    start = datetime.combine(day, time(), UTC)
    found, moment = [], croniter(cron, start - timedelta(minutes=1))
    while (when := moment.get_next(datetime)) < start + timedelta(days=1):
        found.append(when.hour * 60 + when.minute)
    return found


@given(cron=CRONS, day=DAYS)
def test_starts_are_those_of_croniter(cron: str, day: date) -> None:
    assert (list(minutes_of(cron)) if days_of(cron.split(maxsplit=2)[2], day, 1) else []) == fires(cron, day)


@given(crons=st.lists(CRONS, min_size=1, max_size=12), day=DAYS)
def test_the_starts_of_a_day_are_those_of_its_dags(crons: list[str], day: date) -> None:
    rows = [TableSpec(table=f"s.t{n}", keys=("id",), size="large", schedule=cron) for n, cron in enumerate(crons)]
    fired = {f"gddl.s.t{n}": len(fires(cron, day)) for n, cron in enumerate(crons)}
    assert starts_on(arrange(rows, DEFAULT_TIERS).pipelines, day) == {dag: many for dag, many in fired.items() if many}


@settings(max_examples=at_random(20), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(cron=CRONS, day=DAYS)
@example(cron="0 0 1 * 0", day=date(2026, 1, 1))
def test_the_longest_gap_is_that_between_starts(cron: str, day: date) -> None:
    moments = [number * 1440 + minute for number in range(31) for minute in fires(cron, day + timedelta(days=number))]
    longest = max((later - earlier for earlier, later in pairwise(moments)), default=0)
    once = len({moment // 1440 for moment in moments}) < 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_gddl.metadata.cron.DAYS", 31)
        patch.setattr("airflow_gddl.metadata.cron.START", datetime.combine(day, time(), UTC))
        assert longest_gap.__wrapped__(cron) == 60 * (31 * 1440 if once else longest)
