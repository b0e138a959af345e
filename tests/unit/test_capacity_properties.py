"""Starts as croniter counts them, and hot minutes wherever they are put."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

from croniter import croniter
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from airflow_gddl.capacity import AIRFLOW, Metadata, make_plan
from airflow_gddl.contract.spec import DEFAULT_TIERS, TableSpec
from airflow_gddl.topology.pipelines import arrange
from airflow_gddl.topology.table_row import gaps, minutes_of, runs_on, starts_on
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
    assert (list(minutes_of(cron)) if runs_on(cron, day) else []) == fires(cron, day)


@given(crons=st.lists(CRONS, min_size=1, max_size=12), day=DAYS)
def test_the_minutes_sum_to_the_runs_of_the_day(crons: list[str], day: date) -> None:
    rows = [TableSpec(table=f"s.t{n}", keys=("id",), size="large", schedule=cron) for n, cron in enumerate(crons)]
    starts = starts_on(arrange(rows, DEFAULT_TIERS).pipelines, day)
    fired = Counter(minute for cron in crons for minute in fires(cron, day))
    assert starts.per_minute == tuple(fired[minute] for minute in range(1440))
    assert starts.runs == fired.total()


@settings(max_examples=at_random(30))
@given(minute=st.integers(0, 1439), many=st.integers(30, 60), others=st.integers(0, 100))
def test_a_hot_minute_is_found_wherever_it_is(minute: int, many: int, others: int) -> None:
    cron = f"{minute % 60} {minute // 60} * * *"
    rows = [TableSpec(table=f"s.t{n}", keys=("id",), size="large") for n in range(others)]
    rows += [TableSpec(table=f"s.hot{n}", keys=("id",), size="large", schedule=cron) for n in range(many)]
    plan = make_plan(Metadata(tables=tuple(rows), tiers=DEFAULT_TIERS), AIRFLOW, date(2026, 5, 4))
    assert plan.fullest_minute == f"{minute // 60:02d}:{minute % 60:02d}"
    (found,) = [one for one in plan.advice if one.code == "STARTS_CROWDED"]
    assert found.count == many
    assert all(name.startswith("s.hot") for name in found.tables)


@settings(max_examples=at_random(20), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(cron=CRONS, day=DAYS)
@example(cron="0 0 1 * 0", day=date(2026, 1, 1))
def test_gaps_are_those_between_starts(cron: str, day: date) -> None:
    moments = [number * 1440 + minute for number in range(31) for minute in fires(cron, day + timedelta(days=number))]
    between = [later - earlier for earlier, later in pairwise(moments)]
    once = len({moment // 1440 for moment in moments}) < 2
    assert gaps(cron, day) == ((31 * 1440, 31 * 1440) if once else (min(between), max(between)))
