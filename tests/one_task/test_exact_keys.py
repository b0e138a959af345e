"""Keys that differ past the microsecond: two rows, a refusal or rows put aside, never one row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.totals import TableOutcome
from tests.harness.lake import Lake
from tests.harness.landing import write

_AT = 1_700_000_000_123_456_700
_TEXTS = [
    "2023-11-14 22:13:20.1234567",
    "2023-11-14 22:13:20.1234568",
    "2023-11-14 22:13:20.123457",
    "2023-11-14 22:13:20",
]
_NANOS = [_AT, _AT + 100, _AT + 300, _AT - 123_456_700]


def spec_of(**fields: Any) -> TableSpec:
    return TableSpec(table="s.t", keys=("id", "at"), sequence_by=("seq",), settle="0s", **fields)


def _nanos(values: list[int]) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp("ns"))


def _texts(values: list[int]) -> pa.Array:
    return pa.array([_TEXTS[_NANOS.index(value)] for value in values])


Column = Callable[[list[int]], pa.Array]


def land(lake: Lake, spec: TableSpec, name: str, at: pa.Array, **more: list[Any]) -> None:
    columns = {name: pa.array(values) for name, values in more.items()}
    write(Path(lake.layout(spec).landing), name, pa.table({**columns, "id": [1] * len(at), "at": at}))


def rows(lake: Lake, spec: TableSpec) -> dict[str, str]:
    found = pa.table(DeltaTable(lake.layout(spec).replica).scan()).to_pylist()
    return {str(row["at"]): row["v"] for row in found}


@pytest.mark.parametrize("name", ["LOAD00000001.parquet", "20250101-000000001.parquet"])
@pytest.mark.parametrize(("column", "types"), [(_nanos, {}), (_texts, {"at": "timestamp_ntz"})])
@pytest.mark.parametrize("policy", ["truncate", "round", "quarantine"])
def test_key_is_never_cut(tmp_path: Path, name: str, column: Column, types: dict[str, str], policy: Any) -> None:
    lake, spec = Lake(tmp_path), spec_of(options={"types": types}, sub_microseconds=policy)
    land(lake, spec, name, column(_NANOS), Op=["I"] * 4, seq=[1, 2, 3, 4], v=list("abcd"))
    outcome = lake.run(spec)
    assert isinstance(outcome, TableOutcome)
    if policy == "quarantine":
        assert outcome.result.error is None
        assert (outcome.result.quarantined, len(rows(lake, spec))) == (2, 2)
        return
    assert outcome.result.error is not None
    assert (outcome.result.error.code, Path(lake.layout(spec).replica).exists()) == ("KEY_TYPE", False)


@pytest.mark.parametrize("name", ["LOAD00000001.parquet", "20250101-000000001.parquet"])
@pytest.mark.parametrize("column", [_nanos, _texts])
def test_key_as_text_has_all_digits(tmp_path: Path, name: str, column: Column) -> None:
    lake, spec = Lake(tmp_path), spec_of(options={"types": {"at": "string"}})
    land(lake, spec, name, column(_NANOS), Op=["I"] * 4, seq=[1, 2, 3, 4], v=list("abcd"))
    assert [w.code for w in lake.done(spec).warnings if w.code == "TIMES_REDUCED"] == []
    assert rows(lake, spec) == dict(zip(_TEXTS, "abcd", strict=True))
    land(lake, spec, "20250101-000000002.parquet", column(_NANOS[1:3]), Op=["D", "U"], seq=[11, 12], v=[None, "c2"])
    lake.done(spec)
    assert rows(lake, spec) == {_TEXTS[0]: "a", _TEXTS[2]: "c2", _TEXTS[3]: "d"}


def test_image_of_a_key_before_an_update_is_never_cut(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(before_image_prefix="BI_")
    whole = pa.array([_AT // 1000], pa.int64()).cast(pa.timestamp("us"))
    land(lake, spec, "LOAD00000001.parquet", whole, v=["a"])
    lake.done(spec)
    moved = {"Op": ["U"], "seq": [1], "v": ["b"], "BI_id": [1], "BI_at": _nanos([_AT])}
    land(lake, spec, "20250101-000000001.parquet", pa.array([0]).cast(pa.timestamp("us")), **moved)
    outcome = lake.run(spec)
    assert isinstance(outcome, TableOutcome)
    assert outcome.result.error is not None
    assert outcome.result.error.code == "KEY_TYPE"
