"""Types and values: by Connect's schema, by the metadata, by JSON alone."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.debezium.probing import event, probe, rows_of, text, wrapped


def decimal(scale: int, precision: int | None = None) -> dict[str, Any]:
    digits = {} if precision is None else {"connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": str(scale), **digits}}  # fmt: skip


def time(name: str, kind: str = "int64") -> dict[str, Any]:
    return {"type": kind, "name": f"io.debezium.time.{name}"}


@pytest.mark.parametrize(
    ("schema", "value", "sql", "expected"),
    [
        ({"type": "int16"}, 7, "smallint", 7),
        ({"type": "int64"}, 2**62, "bigint", 2**62),
        ({"type": "float"}, 0.5, "float", 0.5),
        ({"type": "double"}, 3, "double", 3.0),
        ({"type": "boolean"}, True, "boolean", True),
        ({"type": "bytes"}, "AAH/", "binary", b"\x00\x01\xff"),
        (decimal(2, 10), "MDk=", "decimal(10,2)", Decimal("123.45")),
        (decimal(2, 10), "z8c=", "decimal(10,2)", Decimal("-123.45")),
        (decimal(0), "AQ==", "decimal(38,0)", Decimal(1)),
        (decimal(2, 10), 123.45, "decimal(10,2)", Decimal("123.45")),
        ({"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []},
         {"scale": 3, "value": "AeJA"}, "string", "123.456"),
        (time("Date", "int32"), 19723, "date", date(2024, 1, 1)),
        (time("Timestamp"), 1704067200123, "timestamp_ntz", datetime.fromisoformat("2024-01-01T00:00:00.123")),
        (time("MicroTimestamp"), 1704067200123456, "timestamp_ntz",
         datetime.fromisoformat("2024-01-01T00:00:00.123456")),
        (time("ZonedTimestamp", "string"), "2024-01-01T02:00:00.5+02:00", "timestamp",
         datetime(2024, 1, 1, 0, 0, 0, 500000, tzinfo=UTC)),
        (time("Time", "int32"), 3_723_004, "string", "01:02:03.004"),
        (time("MicroTime"), 86_399_000_000, "string", "23:59:59"),
        (time("MicroTime"), 3_020_399_000_000, "string", "838:59:59"),
        (time("MicroTime"), -3_020_399_000_000, "string", "-838:59:59"),
        (time("MicroTime"), -500_000, "string", "-00:00:00.5"),
        (time("MicroTime"), 86_400_000_000, "string", "24:00:00"),
        (time("Time", "int32"), -1, "string", "-00:00:00.001"),
        ({"type": "int32", "name": "org.apache.kafka.connect.data.Time"}, 90_000_000, "string", "25:00:00"),
        (time("NanoTime"), -90_000_000_000_001, "string", "-25:00:00.000000001"),
        ({"type": "array", "items": time("MicroTime")}, [-1_000_000, 90_000_000_000], "array<string>",
         ["-00:00:01", "25:00:00"]),
        (time("Year", "int32"), 2024, "int", 2024),
        (time("IsoDate", "string"), "2017-09-15Z", "string", "2017-09-15Z"),
        ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": 1}', "string", '{"a": 1}'),
        ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, 0, "timestamp",
         datetime(1970, 1, 1, tzinfo=UTC)),
        ({"type": "array", "items": {"type": "int32"}}, [1, None], "array<int>", [1, None]),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "string", "optional": True}}, {"a": None},
         "map<string,string>", [("a", None)]),
        ({"type": "struct", "name": "io.debezium.data.geometry.Point",
          "fields": [{"field": "x", "type": "double"}, {"field": "wkb", "type": "bytes"}]},
         {"x": 1.5, "wkb": "AQ=="}, "struct<`x`:double,`wkb`:binary>", {"x": 1.5, "wkb": b"\x01"}),
    ],
)  # fmt: skip
def test_values_have_the_type_of_their_schema(
    tmp_path: Path, schema: dict[str, Any], value: Any, sql: str, expected: Any
) -> None:
    events = [event("c", {"id": 1, "v": value}), event("c", {"id": 2, "v": None}, 2)]
    found = probe(tmp_path, wrapped({"id": {"type": "int32"}, "v": schema}, *events))
    assert dict(found.columns)["v"] == sql
    first, second = (row["v"] for row in rows_of(found))
    assert second is None
    assert first == expected


def test_nanoseconds_are_left_to_the_engine(tmp_path: Path) -> None:
    found = probe(
        tmp_path, wrapped({"id": {"type": "int32"}, "v": time("NanoTimestamp")}, event("c", {"id": 1, "v": 1001}))
    )
    assert found.table is not None
    assert str(found.table.schema.field("v").type) == "timestamp[ns]"


@pytest.mark.parametrize(
    ("schema", "good", "bad", "texts", "stated"),
    [
        (time("ZonedTimestamp", "string"), "2024-01-01T00:00:00Z", "infinity",
         ["2024-01-01T00:00:00.000000+00:00", "infinity"], "timestamp"),
        (time("ZonedTimestamp", "string"), "2024-01-01T00:00:00Z", "2024-01-01T00:00:00.1234567Z",
         ["2024-01-01T00:00:00.000000+00:00", "2024-01-01T00:00:00.1234567Z"], "timestamp"),
        (time("Timestamp"), 1704067200123, 2**63 - 1, ["2024-01-01 00:00:00.123000", str(2**63 - 1)], "timestamp_ntz"),
        (time("NanoTimestamp"), 1704067200123456789, 2**63, ["2024-01-01 00:00:00.123456789", str(2**63)],
         "timestamp_ntz"),
        (time("Date", "int32"), 19723, "soon", ["2024-01-01", "soon"], "date"),
        (decimal(2, 4), "MDk=", "AeJA", ["123.45", "1234.56"], "decimal(4,2)"),
        ({"type": "int32"}, 1, "many", ["1", "many"], "int"),
        ({"type": "float"}, 0.5, 1e39, ["0.5", "1e+39"], "float"),
        (decimal(-2), "AQ==", "Ag==", ["100", "200"], None),
        ({"type": "bytes"}, "AQ==", "?", ["AQ==", "?"], None),
    ],
)  # fmt: skip
def test_column_with_a_misfit_is_text_of_a_stated_type(
    tmp_path: Path, schema: Any, good: Any, bad: Any, texts: Any, stated: str | None
) -> None:
    events = [event("c", {"id": 1, "v": good}), event("c", {"id": 2, "v": bad}, 2)]
    found = probe(tmp_path, wrapped({"id": {"type": "int32"}, "v": schema}, *events))
    assert dict(found.columns)["v"] == "string"
    assert [row["v"] for row in rows_of(found)] == texts
    assert found.stated == (() if stated is None else (("v", stated),))


@pytest.mark.parametrize("number", ["1e400", "-1e400"])
def test_number_beyond_the_greatest_double_is_a_misfit(tmp_path: Path, number: str) -> None:
    """Without a schema, with one, and in an array, which is text then."""
    bare = text(event("c", {"id": 1, "v": 0}), event("c", {"id": 2, "v": 0.5}, 2)).replace(
        '"v": 0}', f'"v": {number}}}'
    )
    schema = {"id": {"type": "int32"}, "v": {"type": "double"}}
    lines = wrapped(schema, event("c", {"id": 1, "v": 0}), event("c", {"id": 2, "v": 0.5}, 2))
    for content in (bare, lines.replace('"v":0}', f'"v":{number}}}')):
        found = probe(tmp_path, content)
        assert (dict(found.columns)["v"], found.stated) == ("string", (("v", "double"),))
        assert [row["v"] for row in rows_of(found)] == [number, "0.5"]
    (row,) = rows_of(probe(tmp_path, text(event("c", {"id": 1, "v": [0]})).replace("[0]", f"[{number}]")))
    assert row["v"] == f"[{number}]"


@pytest.mark.parametrize("value", ['{"a":1e999}', '{"a":[1e999]}', '[{"a":1e999}]'])
def test_number_beyond_the_greatest_double_inside_an_object_is_text(tmp_path: Path, value: str) -> None:
    """Objects are text with all their digits, whatever they hold."""
    lines = text(event("c", {"id": 1, "v": "#"}), event("c", {"id": 2, "v": None}, 2))
    found = probe(tmp_path, lines.replace('"#"', value))
    assert (dict(found.columns)["v"], found.stated) == ("string", ())
    assert [row["v"] for row in rows_of(found)] == [value, None]


_FAR = 9_223_372_036_825_200_000
"""PostgreSQL's `infinity` in a timestamp's microseconds."""
_DAY, _MICROS = time("Date", "int32"), time("MicroTimestamp")


@pytest.mark.parametrize(
    ("schemas", "values", "sql", "expected"),
    [
        ((decimal(2, 10), decimal(4, 10)), ("MDk=", "MDk="), "decimal(12,4)", [Decimal("123.45"), Decimal("1.2345")]),
        (({"type": "int32"}, decimal(2, 10)), (7, "MDk="), "decimal(12,2)", [Decimal(7), Decimal("123.45")]),
        ((decimal(0, 38), decimal(38, 38)), ("AQ==", "AQ=="), "string", ["1", f"0.{1:038d}"]),
        (({"type": "int32"}, {"type": "int64"}), (7, 2**40), "bigint", [7, 2**40]),
        (({"type": "int64"}, {"type": "double"}), (2**53 + 1, 0.5), "string", [str(2**53 + 1), "0.5"]),
        (({"type": "float"}, {"type": "double"}), (0.5, 0.1), "double", [0.5, 0.1]),
        ((_DAY, _MICROS), (19723, 1704067200123456), "timestamp_ntz",
         [datetime.fromisoformat("2024-01-01"), datetime.fromisoformat("2024-01-01T00:00:00.123456")]),
        ((_DAY, {"type": "string"}), (19723, "soon"), "string", ["2024-01-01", "soon"]),
        ((_MICROS, {"type": "string"}), (_FAR, "x"), "string", [str(_FAR), "x"]),
        ((_DAY, _MICROS), (None, 0), "timestamp_ntz", [None, datetime.fromisoformat("1970-01-01")]),
    ],
)  # fmt: skip
def test_type_change_within_a_file(tmp_path: Path, schemas: Any, values: Any, sql: str, expected: list[Any]) -> None:
    """Each value by the schema of its own record: the same bytes are another number under another scale."""
    lines = [
        wrapped({"id": {"type": "int32"}, "v": schemas[at % 2]}, event("c", {"id": at, "v": values[at % 2]}, at + 1))
        for at in range(4)
    ]
    found = probe(tmp_path, "".join(lines))
    assert dict(found.columns)["v"] == sql
    assert [(row["id"], row["v"]) for row in rows_of(found)] == list(enumerate(expected * 2))


def test_numbers_keep_all_their_digits(tmp_path: Path) -> None:
    """The converter's `decimal.format=NUMERIC`."""
    digits = "1234567890123456789012.34"
    lines = wrapped({"id": {"type": "int32"}, "v": decimal(2, 30)}, event("c", {"id": 1, "v": 0}))
    (row,) = rows_of(probe(tmp_path, lines.replace('"v":0', f'"v":{digits}')))
    assert row["v"] == Decimal(digits)
    bare = text(event("c", {"id": 1, "v": 0})).replace('"v": 0', f'"v": {digits}')
    assert rows_of(probe(tmp_path, bare, types={"v": "decimal(30,2)"}))[0]["v"] == digits
    assert rows_of(probe(tmp_path, bare))[0]["v"] == float(digits)
    nested = text(event("c", {"id": 1, "v": {"n": [0, {"m": 1.5}]}})).replace("0, {", f"{digits}, {{")
    assert rows_of(probe(tmp_path, nested))[0]["v"] == f'{{"n":[{digits},{{"m":1.5}}]}}'
    listed = text(event("c", {"id": 1, "v": [0]})).replace("[0]", f"[{digits}]")
    assert rows_of(probe(tmp_path, listed, types={"v": "array<decimal(30,2)>"}))[0]["v"] == f"[{digits}]"


@pytest.mark.parametrize(
    ("values", "sql", "expected"),
    [
        ([1, None], "bigint", [1, None]),
        ([1, 2.5], "double", [1.0, 2.5]),
        ([True, False], "boolean", [True, False]),
        (["a", None], "string", ["a", None]),
        (["a", 1], "string", ["a", "1"]),
        ([1.5, True], "string", ["1.5", "true"]),
        ([[1.5], [True]], "string", ["[1.5]", "[true]"]),
        ([2**70, 1], "string", [str(2**70), "1"]),
        ([{"a": 1}, None], "string", ['{"a":1}', None]),
        ([["a"], []], "array<string>", [["a"], []]),
        ([None, None], "void", [None, None]),
    ],
)
def test_values_without_schema_have_json_types(tmp_path: Path, values: Any, sql: str, expected: Any) -> None:
    found = probe(tmp_path, text(*(event("c", {"id": at, "v": value}, at + 1) for at, value in enumerate(values))))
    assert dict(found.columns)["v"] == sql
    assert [row["v"] for row in rows_of(found)] == expected


def test_types_option_applies_to_files_without_schema(tmp_path: Path) -> None:
    row = {"id": 1, "at": 1704067200123456, "price": 12.5, "n": 7}
    found = probe(tmp_path, text(event("c", row)), semantic_types={"AT": "io.debezium.time.MicroTimestamp"},
                 types={"Price": "decimal(8,2)"})  # fmt: skip
    assert [dict(found.columns)[name] for name in ("at", "price", "n")] == ["timestamp_ntz", "string", "bigint"]
    assert rows_of(found)[0]["price"] == "12.5"
