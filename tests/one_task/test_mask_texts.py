"""Equal values have one hash under a mask, whatever types files and tables have: docs/metadata.md, texts of masks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.actions import Erase, HandleErrors, Rebuild, Reload
from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

NUMBERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(),
           pa.float32(), pa.float64(), pa.decimal128(5, 0), pa.decimal128(20, 2), pa.decimal128(38, 18)]  # fmt: skip
NAIVE = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")]
ZONED = [pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in ("UTC", "Europe/Berlin", "+05:30")]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
BYTES = [pa.binary(), pa.large_binary(), pa.binary(2)]
MIDNIGHT, NOON = datetime(2024, 7, 1), datetime(2024, 7, 1, 12, 30, 5, 250_000)  # noqa: DTZ001 - no zone


def of(kinds: list[pa.DataType], value: Any) -> list[pa.Array]:
    return [pa.array([float(value) if pa.types.is_floating(kind) else value], kind) for kind in kinds]


def moments(value: datetime, *kinds: pa.DataType) -> list[pa.Array]:
    zoned = value.replace(tzinfo=UTC)
    return [pa.array([zoned if kind.tz else value], kind) for kind in kinds]


GROUPS: dict[str, list[pa.Array]] = {
    "5": [*of(NUMBERS, 5), pa.array(["5"]), pa.array([b"5"])],
    "0": [*of(NUMBERS, 0), pa.array([-0.0])],
    "-120": [*of([kind for kind in NUMBERS if not pa.types.is_unsigned_integer(kind)], -120)],
    "5.5": [*of([pa.float32(), pa.float64()], 5.5), *of(NUMBERS[-2:], Decimal("5.5")), pa.array(["5.5"])],
    "0.1": [pa.array([0.1]), *of(NUMBERS[-2:], Decimal("0.1"))],
    "1152921504606846976": [*of([pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(38, 2)], 2**60)],
    "0.0000001": [pa.array([1e-7]), pa.array([Decimal("0.0000001")], pa.decimal128(38, 18))],
    "100000000": [pa.array([1e8]), *of([pa.int32(), pa.int64(), pa.decimal128(20, 2)], 10**8)],
    "NaN": [*of([pa.float32(), pa.float64()], float("nan")), pa.array(["NaN"])],
    "true": [pa.array([True]), pa.array(["true"])],
    "2024-07-01": [*of([pa.date32(), pa.date64()], date(2024, 7, 1)), *moments(MIDNIGHT, *NAIVE, *ZONED)],
    "2024-07-01 12:30:05.25": moments(NOON, *NAIVE[1:], *ZONED),
    "0007.50": [pa.array(["0007.50"]).cast(kind) for kind in TEXTS],
    "é": [*(pa.array(["é"]).cast(kind) for kind in TEXTS), *of(BYTES, "é".encode())],
}  # fmt: skip
"""The text, and one value in each type that it may have."""


def of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def columns() -> Iterator[tuple[str, str, pa.Array]]:
    for group, (text, arrays) in enumerate(GROUPS.items()):
        for number, values in enumerate(arrays):
            yield f"c{group}_{number}", text, values


@pytest.mark.parametrize("later", [False, True], ids=["from_files", "from_the_change_table"])
def test_equal_values_have_one_hash(later: bool, engine: LocalPort, tmp_path: Path) -> None:
    """Also where the mask comes later, of values in the types that the lake has."""
    lake, named = Lake(tmp_path, port=engine), {name: "hash" for name, _, _ in columns()}
    spec = replace(spec_of(), mask=named)
    given = {name: values for name, _, values in columns()}
    folder = lake.landing(spec)
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), **given}), folder / "LOAD00000001.parquet")
    if later:
        lake.done(replace(spec, mask={}))
    lake.done(spec, JobOptions(action=Rebuild()) if later else None)
    (row,) = lake.rows(lake.layout(spec).replica)
    wrong = {(text, str(values.type)) for name, text, values in columns() if row[name] != of_text(text)}
    assert wrong == set()


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.decimal128(20, 6)], ids=str)
def test_a_file_of_another_type_changes_no_key_and_opens_no_version(
    kind: pa.DataType, engine: LocalPort, tmp_path: Path
) -> None:
    lake = Lake(tmp_path, port=engine)
    spec = spec_of(history=True, mask={"id": "hash", "n": "hash"})
    first = {"id": pa.array([Decimal(5)], pa.decimal128(10, 2)), "n": pa.array([Decimal(7)], pa.decimal128(10, 2))}
    write(lake.landing(spec), "LOAD00000001.parquet", pa.table({**first, "v": ["a"]}))
    (five,), (seven,) = of([kind], 5), of([kind], 7)
    changed = {"Op": ["U"], "seq": [1], "id": five, "n": seven, "v": ["a"]}
    write(lake.landing(spec), "20240101-000000001.parquet", pa.table(changed))
    lake.done(spec)
    for name in ("replica", "history"):
        rows = lake.rows(getattr(lake.layout(spec), name))
        assert [(row["id"], row["n"]) for row in rows] == [(of_text("5"), of_text("7"))], name
    erased = lake.done(spec, JobOptions(action=Erase(key={"id": "5"}, asked_by="x")))
    assert (erased.main.deleted, [w.count for w in erased.warnings if w.code == "ERASED_IN_FILES"]) == (1, [2])


def test_nested_values_have_texts_of_their_parts(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(mask={"a": "hash", "b": "hash"})
    small = pa.array([{"n": 5, "t": date(2024, 7, 1)}], pa.struct({"n": pa.int32(), "t": pa.date32()}))
    grown = pa.array([{"t": MIDNIGHT, "n": 5, "x": None}],
                     pa.struct({"t": pa.timestamp("us"), "n": pa.decimal128(20, 2), "x": pa.string()}))  # fmt: skip
    write(lake.landing(spec), "LOAD00000001.parquet", pa.table({"id": [1], "a": small, "b": grown}))
    lake.done(spec)
    (row,) = lake.rows(lake.layout(spec).replica)
    assert row["a"] == row["b"] == of_text('{"n":"5","t":"2024-07-01"}')


def test_a_row_from_the_quarantine_has_the_hash_that_a_good_one_has(engine: LocalPort, tmp_path: Path) -> None:
    lake, types = Lake(tmp_path, port=engine), {"price": "decimal(9,2)", "at": "timestamp"}
    spec = replace(spec_of(), mask={"price": "hash", "at": "hash"}, options={"types": {**types, "n": "int"}})
    rows = {"id": [1, 2], "price": ["5.50", "05.5"], "at": ["2024-07-01T02:00:00+02:00"] * 2, "n": ["1", "x"]}
    write(lake.landing(spec), "LOAD00000001.parquet", pa.table(rows))
    lake.done(spec)
    spec = replace(spec, options={"types": {**types, "n": "string"}})
    lake.done(spec, JobOptions(action=HandleErrors(mode="replay")))
    stored = [(row["price"], row["at"]) for row in lake.rows(lake.layout(spec).replica)]
    assert stored == [(of_text("5.5"), of_text("2024-07-01"))] * 2


@pytest.mark.parametrize("column", ["id", "v"])
@pytest.mark.parametrize(("before", "after"), [("int", None), (None, "bigint"), ("string", "int")])
def test_entry_of_types_that_changes_hashes_needs_the_files(
    engine: LocalPort, tmp_path: Path, column: str, before: str | None, after: str | None
) -> None:
    """`007` is another number than text: a row with a masked key would be there twice, and a delete find none."""
    lake = Lake(tmp_path, port=engine.everywhere())
    specs = [
        spec_of(settle="0s", mask={column: "hash"}, options={"types": {column: kind} if kind else {}})
        for kind in (before, after)
    ]
    folder = lake.landing(specs[0])
    write(folder, "LOAD00000001.parquet", pa.table({"id": ["007", "008"], "v": ["1", "02"]}))
    lake.done(specs[0])
    write(folder, "20240101-000000001.parquet", pa.table({"Op": ["U"], "seq": [1], "id": ["007"], "v": ["03"]}))
    for action, code, remedy in ((None, "MASK_CHANGED", "reload"), (Rebuild(), "REBUILD_NEEDS_FILES", "reload")):
        error = lake.result(specs[1], None if action is None else JobOptions(action=action)).error
        assert error is not None
        assert (error.code, f"gddl {remedy} --from-files --table s.t" in error.message) == (code, True)
    lake.done(specs[1], JobOptions(action=Reload(confirmed=True)))
    texts = {"id": ["007", "008"], "v": ["03", "02"]}[column]
    kept = [text if after is None else text.lstrip("0") for text in texts]
    rows = lake.rows(lake.layout(specs[1]).replica)
    assert sorted(row[column] for row in rows) == sorted(hashlib.sha256(text.encode()).hexdigest() for text in kept)


@pytest.mark.parametrize(("before", "after"), [("int", "bigint"), ("string", None)])
def test_entry_of_types_that_changes_no_hash_needs_nothing(tmp_path: Path, before: str, after: str | None) -> None:
    lake, spec = Lake(tmp_path), spec_of(settle="0s", mask={"id": "hash"})
    write(lake.landing(spec), "LOAD00000001.parquet", pa.table({"id": ["007"], "v": ["1"]}))
    lake.done(replace(spec, options={"types": {"id": before}}))
    lake.done(replace(spec, options={"types": {"id": after} if after else {}}))
