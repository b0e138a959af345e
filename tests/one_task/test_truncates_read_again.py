"""Truncates of a rebuild that reads the files again: they stand where they stood among the changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.spec import JobOptions
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import to_table, write

SPEC = spec_of(truncate="apply", force_update="forced", history=True)
REBUILD = JobOptions(action=Rebuild())


def land(lake: Lake, number: int, *rows: tuple[str, int, int | None, bool | None]) -> Path:
    columns, types = ["Op", "seq", "id", "forced"], {"seq": "int64", "id": "int32", "forced": "bool"}
    table = to_table([dict(zip(columns, row, strict=True)) for row in rows], columns, types)
    return write(lake.landing(SPEC), f"20240101-{number:09d}.parquet", table)


def filled(root: Path) -> Lake:
    """Rows of the truncate's sequence stand before and behind it; a forced change came before it, and one later."""
    lake = Lake(root)
    land(lake, 1, ("I", 1, 1, True), ("I", 2, 2, False))
    lake.done(SPEC)
    land(lake, 2, ("I", 9, 3, False), ("T", 9, None, None), ("I", 9, 4, False))
    lake.done(SPEC)
    land(lake, 3, ("U", 8, 5, True))
    lake.done(SPEC)
    assert ids(lake) == [4, 5]
    return lake


def ids(lake: Lake) -> list[Any]:
    return sorted(row["id"] for row in lake.rows(lake.layout(SPEC).replica))


@pytest.mark.parametrize("lost", [["state"], ["changes"], ["state", "changes"]], ids="+".join)
def test_rows_are_those_of_before(lost: list[str], tmp_path: Path) -> None:
    lake = filled(tmp_path)
    for name in lost:
        shutil.rmtree(getattr(lake.layout(SPEC), name))
    for _ in range(2):
        lake.done(SPEC, REBUILD)
        assert ids(lake) == [4, 5]


def test_the_ledger_knows_one_whose_file_is_gone(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    (lake.landing(SPEC) / "20240101-000000002.parquet").unlink()
    shutil.rmtree(lake.layout(SPEC).changes)
    lake.done(SPEC, REBUILD)
    assert 2 not in ids(lake)
