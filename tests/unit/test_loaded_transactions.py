"""Which changes of PostgreSQL's log a load has read, by the snapshot in which it read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.postgresql_log import position_of
from spark_jobs.plan.loaded_transactions import LoadedTransactions
from spark_jobs.rooms.dialects.debezium.technical import OP, with_loaded
from spark_jobs.rooms.dialects.protocol import LOADED

SEEN = LoadedTransactions(snapshot="100:110:102,105", upto=1000)
FAR = 1 << 32


@pytest.mark.parametrize(
    ("transaction", "is_loaded"),
    [(99, True), (100, True), (101, True), (102, False), (105, False), (109, True), (110, False), (500, False)],
)
def test_transaction_is_loaded_if_the_snapshot_sees_it(transaction: int, is_loaded: bool) -> None:
    assert SEEN.has(transaction, 1000, 0) is is_loaded


@pytest.mark.parametrize("epoch", [1, 7])
def test_numbers_in_the_log_have_32_bits(epoch: int) -> None:
    first = epoch * FAR - 2
    seen = LoadedTransactions(snapshot=f"{first}:{first + 5}:{first + 3}", upto=1000)
    numbers = range(first - 3, first + 7)
    assert [number - first for number in numbers if seen.has(number % FAR, 1, 0)] == [-3, -2, -1, 0, 1, 2, 4]


def test_number_that_comes_again_is_another_transaction() -> None:
    assert SEEN.has(99, 1000, 0)
    assert not SEEN.has(99, 1001, 0)


def test_log_that_was_opened_anew_has_nothing_of_the_load_before() -> None:
    second = LoadedTransactions(snapshot="5:5:", upto=10, log=2)
    assert second.has(900, 5000, 1), "of a log that ended before the load"
    assert not second.has(4, 5, 3), "of one that began after it"


def test_places_compare_as_numbers() -> None:
    assert position_of("1/0") - position_of("0/FFFFFFFF") == 1


@pytest.mark.parametrize(("source", "is_loaded"), [
    ({"connector": "postgresql", "txId": 99, "lsn": 5}, True),
    ({"connector": "postgresql", "txId": 105, "lsn": 5}, False),
    ({"connector": "mysql", "txId": 99, "lsn": 5}, False), ({"connector": "postgresql", "txId": "99", "lsn": 5}, False),
    ({"connector": "postgresql", "lsn": 5}, False), ({"connector": "postgresql", "txId": 99}, False), ({}, False),
])  # fmt: skip
def test_changes_that_a_load_has_read_are_marked(source: dict[str, Any], is_loaded: bool) -> None:
    rows = pa.table({OP: ["U", "I"], "id": [1, 2]})
    others = {"connector": "postgresql", "txId": 500, "lsn": 5000}
    found = with_loaded(rows, [source, others], SEEN, 0)
    assert found.column(OP).to_pylist() == [LOADED if is_loaded else "U", "I"]
    assert with_loaded(rows, [source, others], None, 0) is rows
