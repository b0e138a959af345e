"""Numbers that a connector writes as text, beside the type of their column (`datatype.propagate.source.type`)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.extensions import DebeziumOptions
from spark_jobs.rooms.dialects.debezium.change_events import read_events, table_of

_COLUMN = "__debezium.source.column."


def values_of(parameters: dict[str, str], *values: str | None) -> tuple[pa.DataType, list[Any]]:
    """Type and values of the column, and the type that it states where a value is none of it."""
    named = {f"{_COLUMN}{name}": value for name, value in parameters.items()}
    fields = [{"field": "n", "type": "string", "optional": True, "parameters": named}]
    schema = {
        "type": "struct",
        "fields": [{"type": "struct", "field": side, "fields": fields} for side in ("before", "after")],
    }
    source = {"connector": "postgresql", "lsn": 1, "ts_ms": 1}
    lines = [
        json.dumps({"schema": schema, "payload": {"op": "c", "before": None, "after": {"n": value}, "source": source}})
        for value in values
    ]
    found = table_of(read_events("\n".join(lines).encode()), DebeziumOptions(), None)
    return found.stated.get("n", found.table.schema.field("n").type), found.table.column("n").to_pylist()


@pytest.mark.parametrize(
    ("parameters", "texts", "kind", "values"),
    [
        ({"type": "NUMERIC", "length": "10", "scale": "2"}, ("1.50", None), pa.decimal128(10, 2),
         [Decimal("1.50"), None]),
        ({"type": "NUMERIC", "length": "50", "scale": "2"}, ("1.5",), pa.decimal128(38, 2), [Decimal("1.50")]),
        ({"type": "NUMERIC", "length": "5"}, ("12",), pa.decimal128(5, 0), [Decimal(12)]),
        ({"type": "MONEY", "length": "2147483647", "scale": "0"}, ("12.34",), pa.decimal128(38, 2), [Decimal("12.34")]),
        ({"type": "NUMERIC", "length": "131089", "scale": "0"}, ("1.500", "NAN"), pa.string(), ["1.500", "NaN"]),
        ({"type": "NUMERIC", "length": "131089"}, ("POSITIVE_INFINITY", "NEGATIVE_INFINITY"), pa.string(),
         ["Infinity", "-Infinity"]),
        ({"type": "NUMERIC", "length": "10", "scale": "2"}, ("1.50", "NAN"), pa.decimal128(10, 2), ["1.50", "NAN"]),
        ({"type": "VARCHAR", "length": "10"}, ("1.50",), pa.string(), ["1.50"]),
        ({"name": "n"}, ("1.50",), pa.string(), ["1.50"]),
    ],
)  # fmt: skip
def test_texts_are_of_the_column_s_type(
    parameters: dict[str, str], texts: tuple[str | None, ...], kind: pa.DataType, values: list[Any]
) -> None:
    assert values_of(parameters, *texts) == (kind, values)
