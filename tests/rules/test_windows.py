"""Windows of time: which one holds a row, what they prove, and how files count in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.rules.windows import (
    STEPS,
    Grid,
    Window,
    WindowState,
    judged,
    missing_from,
    proven_until,
    time_column,
    with_files,
)

AT = datetime(2026, 3, 1, 10, 20, tzinfo=UTC)
GRID = Grid.of(AT, AT + timedelta(hours=3), STEPS["hour"])


def test_windows_are_whole_hours_and_days_of_utc() -> None:
    there = timezone(timedelta(hours=-5))
    days = Grid.of(AT.astimezone(there), AT + timedelta(days=1), STEPS["day"])
    assert [(w.start, w.end) for w in days.windows()] == [
        ("2026-03-01T00:00:00+00:00", "2026-03-02T00:00:00+00:00"),
        ("2026-03-02T00:00:00+00:00", "2026-03-03T00:00:00+00:00"),
    ]
    assert [w.start[11:16] for w in GRID.windows()] == ["10:00", "11:00", "12:00", "13:00"]


@given(seconds=st.integers(-100_000, 100_000), zone=st.integers(-12, 14))
def test_each_time_is_in_the_window_that_holds_it(seconds: int, zone: int) -> None:
    moment = AT + timedelta(seconds=seconds)
    number = GRID.number(moment.astimezone(timezone(timedelta(hours=zone))))
    assert number == GRID.number(moment.replace(tzinfo=None)) == GRID.number(moment.isoformat())
    first, last = GRID.bounds(0)[0], GRID.bounds(GRID.count - 1)[0]
    if number is None:
        assert moment < first
    elif number == GRID.count - 1:
        assert moment >= last
    else:
        start, end = GRID.bounds(number)
        assert start <= moment < end


def test_a_row_without_a_time_is_in_no_window() -> None:
    assert GRID.number(None) is None


def states(*found: WindowState) -> list[Window]:
    windows = GRID.windows()
    return [Window(start=w.start, end=w.end, state=state) for w, state in zip(windows, found, strict=True)]


@pytest.mark.parametrize(
    ("found", "proven", "missing"),
    [
        (states("ok", "ok", "ok", "open"), "13:00", None),
        (states("ok", "missing", "ok", "open"), "11:00", "11:00"),
        (states("unsettled", "ok", "extra", "open"), None, "12:00"),
        (states("open", "open", "open", "open"), None, None),
    ],
)
def test_what_windows_prove(found: list[Window], proven: str | None, missing: str | None) -> None:
    shown = [None if one is None else one[11:16] for one in (proven_until(found), missing_from(found))]
    assert shown == [proven, missing]


def test_an_open_window_is_never_wrong() -> None:
    window = Window(start="", end="", missing=3, unsettled=1)
    assert [judged(window, closed=closed).state for closed in (True, False)] == ["missing", "open"]
    assert not judged(window, closed=False).is_wrong


def test_files_count_in_each_window_that_they_have_commits_in() -> None:
    spans = [
        ("2026-03-01T09:10:00+00:00", "2026-03-01T09:50:00+00:00"),
        ("2026-03-01T09:50:00+00:00", "2026-03-01T11:10:00+00:00"),
        ("2026-03-01T11:00:00+00:00", "2026-03-01T11:59:59+00:00"),
        ("2026-03-01T13:59:00+00:00", "2026-03-01T15:00:00+00:00"),
        ("2026-03-01T14:00:00+00:00", "2026-03-01T15:00:00+00:00"),
    ]
    assert [w.files for w in with_files(GRID.windows(), GRID, spans)] == [1, 2, 0, 1]


def test_the_time_column_is_known_by_its_name_or_named() -> None:
    columns = ("id", "Last_Update", "Modified_At", "shipped_at")
    assert time_column(columns, "") == "Modified_At"
    assert time_column(columns, "SHIPPED_AT") == "shipped_at"
    assert time_column(columns, "other") is None
    assert time_column(("id", "v"), "") is None
