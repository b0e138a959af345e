"""Which rows of a file are changes: in the driver and in tasks of Spark alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.spec import TableSpec
from tests.conftest import LocalPort
from tests.harness.lake import Lake, LakeTable
from tests.harness.landing import write


def text(*values: bytes | None) -> pa.Array:
    """Text as a careless writer leaves it in a file."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


def table(engine: LocalPort, root: Path, **row: Any) -> LakeTable:
    return LakeTable(Lake(root, port=engine.everywhere()), TableSpec(table="s.t", settle="0s", **row))


def land(one: LakeTable, number: int, **columns: Any) -> None:
    write(one.landing, f"20250101-{number:09d}.parquet", pa.table(columns))


def test_text_that_is_not_utf8_holds_a_delete_up_in_its_key_alone(engine: LocalPort, tmp_path: Path) -> None:
    one = table(engine, tmp_path, keys=("id", "part"), sequence_by=("seq",))
    land(one, 1, Op=["I"] * 4, seq=[1] * 4, id=[1, 2, 3, 4], part=["p"] * 4, v=["a"] * 4)
    assert one.run().quarantined == 0
    broken = text(b"\xff", b"\xff", b"b", b"b")
    land(one, 2, Op=["D", "U", "D", "D"], seq=[2] * 4, id=[1, 2, 3, 4], part=text(b"p", b"p", b"p", b"\xff"), v=broken)
    one.run()
    assert one.values("replica", "id", "v") == [(2, "a"), (4, "a")]
    assert sorted((row["code"], row["column"]) for row in one.rows("errors")) == [
        ("TEXT_NOT_UTF8", "part"), ("TEXT_NOT_UTF8", "v"),
    ]  # fmt: skip


@pytest.mark.parametrize("lacking", ["without the column", "of no type"])
@pytest.mark.parametrize("sequence", [("seq",), ("seq", "nth")])
def test_changes_of_a_file_without_the_sequence_are_quarantined(
    engine: LocalPort, tmp_path: Path, sequence: tuple[str, ...], lacking: str
) -> None:
    one = table(engine, tmp_path, keys=("id",), sequence_by=sequence)
    land(one, 1, Op=["I", "I"], seq=[1, 1], nth=[1, 2], id=[1, 2], v=["a", "a"])
    last = {} if lacking == "without the column" else {sequence[-1]: pa.nulls(1)}
    others = {name: [2] for name in sequence[:-1]}
    land(one, 2, Op=["U"], id=[1], v=["b"], **others, **last)
    one.run()
    assert one.values("replica", "id", "v") == [(1, "a"), (2, "a")]
    assert [row["code"] for row in one.rows("errors")] == ["SEQUENCE_NULL"]
