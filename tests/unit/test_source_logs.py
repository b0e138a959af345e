"""Positions of sources' logs: as the vendors write them, and as text that has their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.consistent_cut import asked_moment, lsn_of
from airflow_gddl.contract.source_logs import LOGS, LogName, log_of_text, place_in

WRITTEN: dict[LogName, tuple[str, int]] = {
    "postgresql": ("16/B3740A8", 0x16_0B3740A8),
    "sqlserver": ("00000027:00000ac0:0003", 0x00000027_00000AC0_0003),
    "oracle": ("2751829", 2751829),
}
NAMES = st.sampled_from(sorted(WRITTEN))


@pytest.mark.parametrize("log", sorted(WRITTEN))
def test_positions_are_read_and_shown_as_the_vendor_writes_them(log: LogName) -> None:
    text, number = WRITTEN[log]
    asked = asked_moment(text)
    assert (asked.log, asked.position, log_of_text(text)) == (log, number, (log, number))
    assert lsn_of(place_in(0, number, log), log) == lsn_of(place_in(3, number, log), log) == text


@given(log=NAMES, first=st.integers(0, 2**64 - 1), second=st.integers(0, 2**64 - 1), number=st.integers(0, 9))
def test_places_have_the_order_of_positions(log: LogName, first: int, second: int, number: int) -> None:
    one, other = place_in(number, first, log), place_in(number, second, log)
    assert (one < other) == (first < second)
    assert place_in(number, second, log) < place_in(number + 1, first, log)


@given(log=NAMES, bound=st.integers(1, 2**64 - 1), number=st.integers(0, 9))
def test_the_last_position_before_a_bound_is_the_one_below_it(log: LogName, bound: int, number: int) -> None:
    """Of a bound that is the commit before transactions, the bound itself."""
    place = place_in(number, bound, log)
    assert LOGS[log].until(place) == place_in(number, bound - 1 if LOGS[log].is_own else bound, log)
    assert LOGS[log].until("") == ""
