"""The moment of a cut, from what is known of its tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_gddl.contract.consistent_cut import CutFacts, FoundPlaces, asked_moment, chosen, lsn_of
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.postgresql_log import place_in

READ = CutFacts(
    table="s.one", kind="log", generation=1, version=1, complete=place_in(0, 500), until=place_in(0, 500),
    whole=True, least=place_in(0, 100), newest="2026-01-01T12:00:00+00:00", known_at="2026-01-01T12:10:00+00:00",
    loaded_at="2026-01-01T11:00:00+00:00",
)  # fmt: skip
"""A table whose log was read until then."""
LATER = replace(
    READ, table="s.two", complete=place_in(0, 900), until=place_in(0, 900), newest="2026-01-01T12:20:00+00:00",
    known_at="2026-01-01T12:30:00+00:00",
)  # fmt: skip
"""Of the same source, looked at when more of the log was read."""


@pytest.mark.parametrize("facts", [(READ, LATER), (LATER, READ)])
def test_a_time_is_known_of_all_tables_or_refused(facts: tuple[CutFacts, ...]) -> None:
    """What the second table got by 12:20 is behind the end of what is known of the first, which a cut can't pass."""
    assert chosen(asked_moment("2026-01-01T12:05:00Z"), facts).bound == place_in(0, 500)
    for time in ("12:05:01", "12:20:00", "12:25:00"):
        with pytest.raises(FatalError, match=r"it is by 2026-01-01T12:05:00") as found:
            chosen(asked_moment(f"2026-01-01T{time}Z"), facts)
        assert found.value.code == "CUT_REFUSED"


def test_the_newest_change_of_tables_that_were_read_equally_far_is_known() -> None:
    facts = (replace(READ, known_at=None), replace(LATER, complete=READ.complete, until=READ.until, known_at=None))
    assert chosen(asked_moment("2026-01-01T12:20:00Z"), facts).bound == place_in(0, 500)
    with pytest.raises(FatalError, match="CUT_REFUSED"):
        chosen(asked_moment("2026-01-01T12:20:01Z"), facts)


@pytest.mark.parametrize("number", [0, 1])
def test_tables_of_several_logs_or_readers_have_no_cut(number: int) -> None:
    other = replace(LATER, number=1) if number else replace(LATER, connector="crm")
    with pytest.raises(FatalError, match=r"read by gddl itself; s\.two: ") as found:
        chosen(asked_moment("latest"), (READ, other))
    assert found.value.code == "CUT_REFUSED"


@pytest.mark.parametrize(
    "text",
    ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-10:00", "0001-01-01T00:00:00+14:00", "2026-01-31", "", "0/x"],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(MetadataError) as found:
        asked_moment(text)
    assert found.value.code == "OPTION_INVALID"


@pytest.mark.parametrize(("own", "is_refused"), [(400, True), (450, False), (460, False)])
def test_a_transaction_with_a_change_behind_the_position_was_committed_later(own: int, is_refused: bool) -> None:
    """Whichever of the tables has it; the other one alone would not tell."""
    found = FoundPlaces(before=place_in(0, 300), own=place_in(0, 310), behind=place_in(0, 500))
    facts = (
        replace(READ, found=found),
        replace(READ, table="s.two", found=replace(found, own=place_in(0, own))),
    )
    asked = asked_moment(lsn_of(place_in(0, 450)))
    if is_refused:
        with pytest.raises(FatalError, match=r"s\.two: a transaction has its last change at 0/190") as caught:
            chosen(asked, facts)
        assert caught.value.code == "CUT_REFUSED"
    else:
        assert chosen(asked, facts).bound == place_in(0, 300)


def test_a_position_in_a_log_that_was_reset_since_the_load_is_refused() -> None:
    """A time, and the latest moment, tell in which log they are."""
    end = place_in(1, 50)
    facts = (replace(READ, complete=end, until=end, found=FoundPlaces(after=place_in(1, 20))),)
    with pytest.raises(FatalError, match=r"s\.one: the log was reset") as found:
        chosen(asked_moment("0/C8"), facts)
    assert found.value.code == "CUT_REFUSED"
    assert chosen(asked_moment("2026-01-01T12:00:00Z"), facts).bound == place_in(1, 20)
    assert chosen(asked_moment("latest"), facts).bound == end
