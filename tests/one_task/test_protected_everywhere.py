"""A mask or an exclusion that comes later holds in every table, also in those that the row no longer asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Rebuild, Reload
from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.harness.lake import Lake, read, spec_of
from tests.harness.landing import write

PERSONAL = "secret of a person"
REPAIRS = {"rebuild": Rebuild(), "reload": Reload(confirmed=True)}
BEFORE: dict[str, dict[str, Any]] = {
    "history": {"history": True},
    "keys": {"keys": ("id", "mail"), "history": True},
}
"""Fields of the row by which the tables were made; the row has lost them since."""
AFTER: dict[str, dict[str, Any]] = {
    "masked": {"mask": {"mail": "hash"}},
    "excluded": {"exclude_columns": ("mail",)},
}


def tables_with(root: Path) -> list[str]:
    """Delta tables, wherever they are in the lake, whose rows hold the personal value."""
    tables = {path.parent for path in (root / "lake").rglob("_delta_log")}
    assert len(tables) >= 4
    return sorted(str(table) for table in tables if PERSONAL in repr(read(str(table))))


def land(folder: Path) -> None:
    """Rows of which one changes, one goes and one is quarantined."""
    load = {"id": pa.array([1, 2], pa.int32()), "mail": [PERSONAL] * 2}
    write(folder, "LOAD00000001.parquet", pa.table(load))
    changes = {"Op": ["U", "D", "I"], "seq": [1, 2, 3], "id": pa.array([1, 2, None], pa.int32())}
    write(folder, "20240101-000000001.parquet", pa.table({**changes, "mail": [f"{PERSONAL} {n}" for n in range(3)]}))


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize(("before", "keys"), [(name, keys) for name in BEFORE for keys in (("id",), ())])
def test_no_table_keeps_the_clear_values(
    before: str, keys: tuple[str, ...], after: str, repair: str, engine: LocalPort, tmp_path: Path
) -> None:
    lake = Lake(tmp_path, port=engine)
    made: Mapping[str, Any] = BEFORE[before]
    spec = replace(spec_of(), **made)
    land(lake.landing(spec))
    lake.done(spec)
    assert lake.rows(lake.layout(spec).history)
    if "keys" not in made:
        lake.done(spec := spec_of())
    spec = replace(spec_of(), keys=keys, **AFTER[after])
    lake.done(spec, JobOptions(action=REPAIRS[repair]))
    assert tables_with(tmp_path) == []
