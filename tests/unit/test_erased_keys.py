"""Keys as text, and hashes that tell keys apart."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.stores import Storage
from spark_jobs.ledger.erasures import Erasure, ErasureRegister
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rules.erasure import Bound, ErasedKeys, key_text, message_of
from tests.harness.landed import planned_file


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("5", "int", "5"), (5, "bigint", "5"), ("05", "int", "5"), (Decimal("5.0"), "int", "5"), ("5.5", "int", None),
        ("five", "int", None), ("127", "tinyint", "127"), ("-129", "tinyint", None), ("3000000000", "int", None),
        ("9223372036854775807", "bigint", "9223372036854775807"), ("99999999999999999999", "bigint", None),
        ("-9223372036854775809", "bigint", None), ("123.45", "decimal(4,2)", None), ("12.3", "decimal(4,2)", "12.3"),
        ("NaN", "double", None), ("Infinity", "float", None), ("NaN", "decimal(4,2)", None),
        ("1.5", "decimal(10,2)", "1.5"), (Decimal("0.00"), "decimal(10,2)", "0"),
        ("-0", "decimal(10,2)", "0"),
        ("100.00", "decimal(10,2)", "100"), (Decimal(5), "decimal(12,2)", "5"), ("1.555", "decimal(10,2)", None),
        ("1E-10", "decimal(38,10)", "0.0000000001"),
        ("9" * 28, "decimal(38,10)", "9" * 28), (" a ", "string", " a "), (7, "string", "7"),
        ("2024-02-29", "date", "2024-02-29"), (date(2024, 2, 29), "date", "2024-02-29"), ("2024-02-30", "date", None),
        ("2024-03-31T02:30:00.5+02:00", "timestamp", "2024-03-31 00:30:00.5"),
        ("2024-03-31 02:30:00", "timestamp_ntz", "2024-03-31 02:30:00"), ("TRUE", "boolean", "true"),
        ("2024-02-29", "timestamp_ntz", "2024-02-29"), (5.0, "double", "5"), (2.0**53, "double", None),
        ("yes", "boolean", None), (1.5, "double", None), (b"x", "binary", None), (None, "int", None),
    ],
)  # fmt: skip
def test_a_value_or_its_text_is_the_text_of_its_type(value: Any, kind: str, text: str | None) -> None:
    assert key_text(value, parse_type(kind)) == text


def test_no_two_keys_are_hashed_alike() -> None:
    reported = [
        ("a", ["1", "2"]),
        ("a", ["12"]),
        ("a", ["1:2"]),
        ("a", ["", "12"]),
        ("a\n1", ["2"]),
        ("a", ["1", "2", ""]),
    ]
    assert len({message_of(table, texts) for table, texts in reported}) == len(reported)


def register(lake: Path, name: str) -> ErasureRegister:
    return ErasureRegister(Storage(), str(lake / "erased" / "s" / name), TableSpec(table=f"s.{name}", keys=()))


def test_the_salt_is_made_once_and_hashes_depend_on_it(tmp_path: Path) -> None:
    books = [register(tmp_path, "a"), register(tmp_path, "b")]
    assert not books[0].keys()
    salts = {book.salted().salt for book in (*books, *books)}
    assert len(salts) == 1
    first = books[0].salted().hash_of(["1"])
    assert first != books[1].salted().hash_of(["1"])
    assert first != ErasedKeys(table="s.a", salt=b"other").hash_of(["1"])


def test_a_key_keeps_the_hash_by_which_it_was_erased() -> None:
    """The table had another name then: a hash of the new one would not be known."""
    old = ErasedKeys(table="s.old", salt=b"salt").hash_of(["1"])
    keys = ErasedKeys(table="s.new", former=("s.old",), salt=b"salt", hashes=frozenset({old}))
    assert keys.hash_of(["1"]) == old
    assert keys.hash_of(["2"]) == ErasedKeys(table="s.new", salt=b"salt").hash_of(["2"])


def test_register_requires_its_salt(tmp_path: Path) -> None:
    book = register(tmp_path, "a")
    key_hash = book.salted().hash_of(["1"])
    when = datetime(2024, 1, 1).isoformat()  # noqa: DTZ001 - any text
    erasure = Erasure(
        hash=key_hash, table="s.a", asked_at=when, until=when, by="me", run_id="r", removed={"changes": 1}
    )
    book.write(erasure)
    assert book.read(key_hash) == erasure
    assert book.read("0" * 64) is None
    assert book.keys().held(["1"]) == key_hash
    assert book.keys().held(["2"]) is None
    assert book.keys().held([None]) is None
    (tmp_path / "erased" / "salt.json").unlink()
    with pytest.raises(FatalError, match="ERASURE_SALT_MISSING"):
        book.keys()


UNTIL = datetime(2024, 5, 1, 12, tzinfo=UTC)
BEFORE, AFTER = UNTIL - timedelta(hours=1), UNTIL + timedelta(hours=1)


def version(at: datetime, fingerprint: str) -> PlannedFile:
    return replace(planned_file("LOAD00000001.csv"), modified=at.isoformat(), fingerprint=fingerprint)


OLD, NEW = version(BEFORE, "old"), version(AFTER, "new")


@pytest.mark.parametrize(
    ("commit_ts", "sequence", "file", "expected"),
    [
        (BEFORE, "9", NEW, True),  # the commit time decides, however late the file
        (UNTIL, None, NEW, True),
        (AFTER, "1", NEW, False),
        (AFTER, "9", OLD, False),
        (AFTER.replace(tzinfo=None), None, NEW, False),
        (AFTER, "9", version(AFTER, "held"), True),  # the very file that held the key
        (None, "5", NEW, True),  # without a commit time: the sequence
        (None, "6", NEW, False),
        (None, "6", OLD, True),  # on its way when it was asked for
        (None, '"a"', NEW, False),  # sequences that don't compare
        (None, None, NEW, False),  # a full-load row: its file's time
        (None, None, OLD, True),
        (None, None, None, True),  # nothing is known
    ],
)
def test_bound_of_an_erasure(
    commit_ts: datetime | None, sequence: str | None, file: PlannedFile | None, expected: bool
) -> None:
    bound = Bound(until=UNTIL, sequence="5", fingerprints=frozenset({"held"}))
    assert bound.covers(commit_ts, sequence, file) is expected
