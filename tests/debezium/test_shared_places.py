"""Several changes at one place of the log, of which some are left out, put aside, sent again or parted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LocalPort
from tests.debezium.probing import event, text
from tests.debezium.topic import Topic, enveloped, warnings_of

_STRICT = {"short": {"rule": "v <> 'bad'"}}


def copied(*values: str, place: int = 7) -> list[Any]:
    """Inserts of a `COPY`: rows that share their place in the log."""
    return [event("c", {"v": value}, place) for value in values]


def test_equal_rows_stay_where_rows_between_them_are_left_out(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, keys=[], where="v <> 'out'", expect=_STRICT)
    topic.land(text(*copied("a", "out", "a", "bad", "a")))
    result = topic.run()
    assert (result.redelivered, result.quarantined, result.filtered) == (0, 1, 1)
    assert topic.replica("v") == [("a",)] * 3
    topic.with_row(expect={}).run(action="errors_replay")
    assert topic.replica("v") == [("a",)] * 3 + [("bad",)]


def numbered(*values: tuple[str, int]) -> list[Any]:
    """As `copied`, by a connector with `provide.transaction.metadata`."""
    transaction = {"id": "1", "data_collection_order": 1}
    return [event("c", {"v": v}, 7) | {"transaction": {**transaction, "total_order": n}} for v, n in values]


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_numbers_in_a_transaction_tell_rows_from_one_that_is_sent_again(
    engine: LocalPort, tmp_path: Path, form: str
) -> None:
    topic = Topic(engine, tmp_path, keys=[])
    for rows, redelivered in (((1, 2, 2), 1), ((2, 3, 4), 1)):
        events = numbered(*(("a", number) for number in rows))
        topic.land(text(*events) if form == "json" else enveloped(*events), form)
        result = topic.run()
        assert (result.redelivered, warnings_of(result)) == (redelivered, [])
    assert topic.replica("v", "_dbz_number") == [("a", str(number)) for number in (1, 2, 3, 4)]


def test_equal_rows_without_numbers_are_counted(engine: LocalPort, tmp_path: Path) -> None:
    """The last event may be sent twice when a connector starts again, and a sink may part a place into two files."""
    topic = Topic(engine, tmp_path, keys=[])
    topic.land(text(*copied("a", "b", "b")))
    (warning,) = topic.run().warnings
    assert (warning.code, warning.count) == ("EQUAL_ROWS_UNDECIDED", 1)
    topic.land(text(*copied("b", "c"), *copied("d", place=8)))
    (warning,) = topic.run().warnings
    assert (warning.code, warning.count) == ("EQUAL_ROWS_UNDECIDED", 1)
    assert "1 that equal rows of another file" in warning.message
    assert topic.replica("v") == [("a",), ("b",), ("b",), ("c",), ("d",)]


@pytest.mark.parametrize(
    ("first", "later"), [(["a", "bad", "a"], ["a"]), (["bad", "a"], ["b", None]), (["a", None, "bad"], ["bad", "b"])]
)
def test_a_replayed_change_stands_where_its_file_has_it(
    engine: LocalPort, tmp_path: Path, first: Sequence[str | None], later: Sequence[str | None]
) -> None:
    """Replica and history are as if it had been good from the beginning; so they are after a rebuild."""
    found = []
    for name, expect in (("quarantined", _STRICT), ("good", {})):
        topic = Topic(engine, tmp_path / name, history=True, expect=expect)
        topic.land(text(*(_change(value, 7) for value in first), *(_change(value, 8) for value in later)))
        topic.run()
        topic.with_row(expect={}).run(action="errors_replay")
        merged = topic.replica("id", "v"), topic.history("v", "__start_at", "__end_at")
        topic.with_row(expect={}).run(action="rebuild")
        found += [merged, (topic.replica("id", "v"), topic.history("v", "__start_at", "__end_at"))]
    assert found == [found[-1]] * 4


def _change(value: str | None, place: int) -> Any:
    return event("d" if value is None else "u", {"id": 1, "v": value}, place)
