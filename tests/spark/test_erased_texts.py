"""The text of a key as Spark finds it in stored tables is the one that the rules hash."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F
from spark_jobs.engines.spark.erasing import text_of

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.rules.erased_keys import ErasedKeys, key_text
from tests.conftest import LocalPort

NAIVE = datetime.fromisoformat("2024-03-31 02:30:00.000100")
VALUES: dict[str, list[Any]] = {
    "int": [0, -7, 2**31 - 1],
    "bigint": [2**63 - 1],
    "decimal(10,2)": [Decimal("1.50"), Decimal("0.00"), Decimal("-0.01"), Decimal("100.00"), Decimal("10.10")],
    "decimal(38,10)": [Decimal("0E-10"), Decimal("1E-10"), Decimal(9999999999999999999999999999)],
    "string": ["", " a ", "5:x", "Grüße 😀", "\n'\"\\"],
    "date": [date(1, 1, 1), date(2024, 2, 29)],
    "timestamp": [NAIVE.replace(tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)],
    "timestamp_ntz": [NAIVE, datetime.fromisoformat("2024-01-01"), datetime.fromisoformat("2024-01-01 10:00:00")],
    "boolean": [True, False],
    "double": [0.0, -0.0, 5.0, -7.0, 2.0**52],
    "float": [5.0, 2.0**23],
}


@pytest.fixture(scope="module")
def port() -> LocalPort:
    return LocalPort("spark")


def test_every_type_of_key(port: LocalPort) -> None:
    spark = port.spark.for_table()
    for kind, values in VALUES.items():
        rows = spark.createDataFrame([(str(v), v) for v in values], f"told string, k {kind}")
        text = text_of(F.col("k"), [parse_type(kind)])
        found = {row["told"]: row["t"] for row in rows.select("told", text.alias("t")).collect()}
        assert found == {str(value): key_text(value, parse_type(kind)) for value in values}, kind


def test_key_with_null_part_is_not_erased() -> None:
    erased = ErasedKeys(table="s.t", salt=b"x" * 32, hashes=frozenset({"-"}))
    assert erased.held([key_text(1, parse_type("int")), key_text(None, parse_type("string"))]) is None
